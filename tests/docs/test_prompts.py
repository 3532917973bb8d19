"""The page on written prompts is walked through, in a fresh folder."""

from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT, blocks, in_shell

PAGE = (ROOT / "docs/prompts.md").read_text(encoding="utf-8")


@pytest.mark.prefect
@pytest.mark.slow
def test_the_walk_writes_a_prompt_and_lists_its_edits(tmp_path: Path):
    (begin,) = [block for block in blocks(PAGE, "sh") if "convergence init" in block]
    script = f"export PYTHONPATH={ROOT} COLUMNS=150\n{begin}convergence show\n"
    printed = in_shell(script, tmp_path)
    assert "Prompt edits" in printed
    assert "reflect" in printed
