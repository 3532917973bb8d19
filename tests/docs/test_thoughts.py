"""The page on thoughts: its names are the product's."""

import re
from pathlib import Path

from convergence_core.rlp.commitments import ESTIMATORS
from convergence_core.rlp.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/thoughts.md").read_text(encoding="utf-8")


def test_every_strategy_and_rung_is_named():
    for name in (*STRATEGIES, *ESTIMATORS):
        assert f"`{name}`" in PAGE, name


def test_every_module_of_the_papers_page_exists():
    text = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([a-z_/]+\.py)`", text):
        places = (
            ROOT / name,
            ROOT / "convergence_core/rlp" / name,
            ROOT / "convergence_core/sao" / name,
            ROOT / "convergence_core" / name,
        )
        assert any(place.exists() for place in places), name
