"""The TypeScript client: built from the service's document, and tested against a real service."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from convergence.policy import PolicyClient
from docs.openapi import document
from tests.support.children import ROOT

FOLDER = ROOT / "clients/typescript"
PAGE = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
GIVEN = """declare const process: { env: Record<string, string | undefined> };
declare function myScore(prompt: string): number;
"""
"""What the page's example takes for given."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a copy of the package with the packages that it needs."""
    if shutil.which("npm") is None or not (FOLDER / "node_modules").is_dir():
        pytest.skip("the packages of the client are missing: npm --prefix clients/typescript ci")
    copy = tmp_path / "clients" / "typescript"
    shutil.copytree(
        FOLDER, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "schema.ts")
    )
    (copy / "node_modules").symlink_to(FOLDER / "node_modules")
    return copy


def npm(folder: Path, script: str, **environment: str) -> None:
    done = subprocess.run(
        ["npm", "run", "--silent", script], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_the_client_is_built_from_the_document_and_works_against_the_service(
    package: Path, tmp_path: Path
):
    (tmp_path / "build").mkdir()
    (tmp_path / "build/openapi.json").write_text(document(), encoding="utf-8")
    npm(package, "generate")
    (example,) = re.findall(r"^```ts\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert "convergence-client" in example
    given = example.replace("convergence-client", "./index.js")
    (package / "src/example.ts").write_text(GIVEN + given, encoding="utf-8")
    npm(package, "build")
    (package / "dist/example.js").unlink()
    with PolicyClient() as client:
        url = client.start_server(tmp_path / "store", "--set", "batch_size=8")
        npm(package, "test", POLICY_URL=url, POLICY_TOKEN=client.token)
