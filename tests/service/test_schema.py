"""Requests made from the schema, valid and broken ones: the service answers as it says."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from convergence.client import Client
from tests.service.conftest import SECRETS, Start

pytest.importorskip("schemathesis")


@pytest.mark.slow
def test_schemathesis_finds_nothing(start: Start, tmp_path: Path):
    service = start(rate=None)
    with Client(service.url, token=SECRETS["admin"]) as client:
        for name in ("a", "b"):
            client.offer("bot", name, {"n": name})
        chosen = client.select("bot", user_id="u")
    known = {
        "path.system": "bot",
        "path.decision_id": chosen.decision_id,
        "query.user_id": "u",
    }
    (tmp_path / "schemathesis.toml").write_text(
        "[parameters]\n" + "".join(f'"{k}" = {json.dumps(v)}\n' for k, v in known.items())
    )
    for config in ((), ("--config-file", str(tmp_path / "schemathesis.toml"))):
        found = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", *config, "run",
             f"{service.url}/openapi.json", "--seed", "1", "--max-examples", "20",
             "--header", f"Authorization: Bearer {SECRETS['admin']}", "--no-color"],
            capture_output=True, text=True, cwd=tmp_path, check=False,
            env={**os.environ, "PYTHONHASHSEED": "0", "SALT": secrets.token_hex(2)},
        )  # fmt: skip
        assert found.returncode == 0, found.stdout[-6_000:] + found.stderr[-2_000:]
