"""The page on written prompts is walked through, in a fresh folder."""

from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT, blocks, in_shell

PAGE = (ROOT / "docs/prompts.md").read_text(encoding="utf-8")


def lines_of(text: str) -> list[str]:
    """Return lines without what only aligns them."""
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.prefect
@pytest.mark.slow
def test_the_walk_prints_what_the_page_shows(tmp_path: Path):
    (begin,) = [block for block in blocks(PAGE, "sh") if "convergence init" in block]
    script = f"export PYTHONPATH={ROOT} COLUMNS=150\n{begin}convergence show\n"
    printed = lines_of(in_shell(script, tmp_path))
    shown = [block for block in blocks(PAGE, "text") if "How the prompt was written" in block]
    assert len(shown) == 2
    for line in lines_of("\n".join(shown)):
        assert any(
            one.startswith(line.removesuffix("\N{HORIZONTAL ELLIPSIS}")) for one in printed
        ), line
