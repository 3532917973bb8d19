"""The pages on thoughts: names are the product's."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
