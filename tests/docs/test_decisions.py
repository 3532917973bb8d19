"""Decisions name numbers and names of the code: they must be those of the code."""

import inspect
import re
from pathlib import Path

import pytest

from convergence_core.budget.rate_limit import LONGEST_HINT_S, Aimd
from convergence_core.search.schedule import FINAL_SHARE
from tasks.http.retries import LONGEST_PAUSE_S
from tasks.store.tables.lineage import OFFLINE

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"


def test_every_decision_is_listed_under_its_own_title():
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.M)
    pages = sorted(path.name for path in FOLDER.glob("0*.md"))
    assert [name for _, _, name in listed] == pages
    for number, title, name in listed:
        page = (FOLDER / name).read_text()
        assert re.match(
            rf"# {number}\. {re.escape(title)}\n\n\*\*Status\.\*\* (Accepted|Superseded)\b", page
        ), name


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("010", f"start at {inspect.signature(Aimd).parameters['start'].default} "),
        ("011", f"for {LONGEST_HINT_S:g} seconds at most"),
        ("011", {600.0: "more than ten minutes"}[LONGEST_PAUSE_S]),
        ("012", f"{FINAL_SHARE:.0%}".replace("%", " %")),
        ("013", f"`NAME.{OFFLINE}`"),
    ],
)
def test_numbers_and_names_are_those_of_the_code(page: str, said: str):
    (path,) = FOLDER.glob(f"{page}-*.md")
    assert said in path.read_text()
