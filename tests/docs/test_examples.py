"""Each example runs by itself, in a fresh folder."""

import shutil
from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT, in_shell

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PRINTED = {
    "optimize_function": "{'slope':",
    "serve_arms": "large",
    "write_preferences": "of 6 pairs were kept",
    "write_thoughts": "It was warm",
}


@pytest.mark.prefect
@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path):
    shutil.copy(path, tmp_path)
    printed = in_shell(f"export PYTHONPATH={ROOT}; python {path.name}", tmp_path)
    assert PRINTED[path.stem] in printed


def test_every_example_is_listed():
    listed = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert all(f"({path.name})" in listed for path in EXAMPLES)
