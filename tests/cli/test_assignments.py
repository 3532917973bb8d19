"""``--set key=value`` replaces any key, for every command that reads a configuration before a run."""

from pathlib import Path

import pytest

from tasks.inputs import loader
from tests.support.commands import Runner


@pytest.fixture
def project(here: Path, cli: Runner) -> Path:
    assert cli("init", ".", "--template", "function").code == 0
    return here


@pytest.mark.parametrize("command", ["validate", "estimate"])
def test_a_key_that_is_set_takes_the_place_of_the_written_one(
    command: str, project: Path, cli: Runner
):
    plain, fewer = (
        cli(command, "--json", *more)
        for more in ((), ("--set", "optimization.evolution.generations=1"))
    )
    assert (plain.code, fewer.code) == (0, 0)
    assert plain.json != fewer.json


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("optimization.seed", "must be `dotted.key=value`"),
        ("api.name.x=1", "must lead through mappings, but `name` is not one"),
        ("api.name=[", "must have a YAML value"),
        ("optimization.sead=3", "`optimization.sead`"),
    ],
)
def test_what_is_no_assignment_is_told(assignment: str, says: str, project: Path, cli: Runner):
    done = cli("validate", "--set", assignment)
    assert done.code == 2
    assert says in (done.out + done.err).replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[on, off]", ["on", "off"]),
        ("[12:30]", ["12:30"]),
        ("[010]", [10]),
        ("[1e3]", [1000.0]),
        ("", None),
    ],
)
def test_a_value_is_read_as_in_the_file(text: str, value: object):
    tree: dict[str, object] = {}
    loader._assign(tree, f"a.b={text}")
    assert tree == {"a": {"b": value}}
