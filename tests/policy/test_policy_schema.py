"""Requests to the policy made from the schema, valid and broken ones: it answers as it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convergence.service.policy import PolicyMount
from convergence.service.server import Service, ServiceOptions
from convergence_core.judges.text_features import HASHED_NGRAMS
from tasks.policy.prompt_mutator import PromptMutator
from tasks.policy.served_policy import ServedPolicy
from tasks.store.policy.experience_store import ExperienceStore
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.policy.test_served_policy import settings
from tests.service.conftest import SECRETS, all_tokens

pytest.importorskip("schemathesis")


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["given", HASHED_NGRAMS])
def test_schemathesis_finds_nothing(tmp_path: Path, embedding: str):
    with (
        RuntimeStore(tmp_path / "store") as runtime,
        ExperienceStore(runtime.root) as store,
        ServedPolicy(store, settings(embedding=embedding)) as policy,
    ):
        mount = PolicyMount(policy=policy, mutator=PromptMutator(), prefix="/policy")
        options = ServiceOptions(port=0, rate=None, max_body=4_194_304)
        with Service(runtime, all_tokens(), options, policy=mount) as service:
            found = subprocess.run(
                [sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json",
                 "--seed", "1", "--max-examples", "30", "--include-path-regex", "^/policy/",
                 "--header", f"Authorization: Bearer {SECRETS['admin']}", "--no-color"],
                capture_output=True, text=True, cwd=tmp_path, check=False,
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )  # fmt: skip
    assert found.returncode == 0, found.stdout[-6_000:] + found.stderr[-2_000:]
