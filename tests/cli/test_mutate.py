"""``mutate``: one edit by hand."""

from pathlib import Path

from tests.support.commands import Runner
from tests.support.writing_runs import PARENT, write_project


def test_an_edit_by_hand_shows_the_difference_and_writes_a_file(cli: Runner, here: Path):
    write_project(here, None)
    (here / "p.txt").write_text(PARENT)
    done = cli("mutate", "p.txt", "--operator", "constraint-addition", "--rules", "-o", "new.txt")
    assert done.code == 0, done.err
    assert "  +" in done.out
    assert (here / "new.txt").read_text().startswith(PARENT)


def test_merging_takes_two_prompts(cli: Runner, here: Path):
    write_project(here, None)
    (here / "p.txt").write_text(PARENT)
    done = cli("mutate", "p.txt", "--operator", "merge", "--rules")
    assert done.code == 2
    assert "--with" in done.err


def test_a_text_that_breaks_an_invariant_is_refused(cli: Runner, here: Path):
    write_project(here, None, prompts={"writer": "rules", "max_length": 40})
    (here / "p.txt").write_text(PARENT)
    done = cli("mutate", "p.txt", "--operator", "expansion", "--json")
    assert done.code == 100
    assert done.json["verdict"] == "too_long"
    assert done.json["text"] is None
