"""Hard cases: what breaks the system in a game is proposed, and becomes a test case if a person says so."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from convergence_core.errors import ConfigurationError
from tasks.games.sandbox import why_unavailable
from tasks.inputs.loader import load
from tasks.pages.overview import overview
from tasks.pages.source import PageSource
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.cli.conftest import cli as cli  # noqa: PLC0414 - the fixture
from tests.docs.test_documents import ROOT, blocks
from tests.games.game_worlds import Gamer, play_round, write_games
from tests.support.commands import Runner
from tests.support.page_viewer import sections
from tests.support.stepped_runs import STORE

(GAME,) = blocks((ROOT / "docs/games.md").read_text(encoding="utf-8"), "python")
TARGET = """
def ask(system, text, **others):
    return "4" if text.startswith("Calculate") else "positive"
"""
INPUTS = ("2*2", "2*3", "open('/etc/passwd')", "7*6")
pytestmark = pytest.mark.skipif(bool(why_unavailable()), reason="programs cannot be run here")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A system that knows one sum, and a critic with four inputs."""
    folder = tmp_path_factory.mktemp("hard")
    gamer = Gamer(lambda _, number: INPUTS[number % 4])
    with gamer.server() as server:
        config = write_games(
            folder, server.url,
            {"sums": {"file": "sums.py:Sums", "roles": {"incumbent": {"player": "system"}}}},
            society__games__plays=8, optimization__seed=6,
            evaluation__test_cases__approved="approved.jsonl",
        )  # fmt: skip
        (folder / "sums.py").write_text(GAME, encoding="utf-8")
        (folder / "target.py").write_text(TARGET, encoding="utf-8")
        report = play_round(config)
    (game,) = report.games
    assert (game.n_played, game.coin.feeds) == (8, "hard_cases")
    assert next(one.mean for one in game.scores if one.role == "critic") == 0.5
    return folder


def proposed(cli: Runner, folder: Path) -> list[dict[str, str]]:
    done = cli("review", folder / "optimization.yaml", "--store", folder / STORE, "--json")
    assert done.code == 0, done.err
    return list(done.json["proposed"])


def counted(folder: Path) -> str | None:
    """Return what the overview of the pages says waits for a decision."""
    source = PageSource(ParquetStore(folder / STORE))
    with closing(source):
        return sections(overview(source)).get("Needs your attention")


def test_a_person_decides_what_becomes_a_test_case(cli: Runner, project: Path):
    found = {one["prompt"]: one for one in proposed(cli, project)}
    assert found.keys() == {"Calculate 2*3", "Calculate 7*6"}, "each once, and no other"
    assert found["Calculate 2*3"]["response"] == "4"
    assert found["Calculate 7*6"]["marks"].endswith("the reference answers 42")
    assert not (project / "approved.jsonl").exists()
    assert counted(project) == (
        "2 inputs that broke the system in a game may become test cases. convergence review"
    )
    config, store = project / "optimization.yaml", ("--store", project / STORE)
    n_cases = len(load(config).cases)
    name = found["Calculate 7*6"]["interaction_id"]
    assert cli("review", config, *store, "--approve", name).code == 0
    case = json.loads((project / "approved.jsonl").read_text(encoding="utf-8"))
    assert (case["id"], case["input"], case["expected"], case["tags"]) == (
        f"game-{name}", {"text": "Calculate 7*6"}, "42", ["games"],
    )  # fmt: skip
    assert len(load(config).cases) == n_cases + 1
    assert (
        counted(project)
        == "1 input that broke the system in a game may become a test case. convergence review"
    )
    other = found["Calculate 2*3"]["interaction_id"]
    assert cli("review", config, *store, "--reject", other).code == 0
    assert proposed(cli, project) == []
    assert counted(project) is None
    with FeedbackStore(project / STORE) as feedback:
        assert feedback.fetch("SELECT count(*) FROM ratings", ()) == [(0,)], "nobody rated it"


def test_the_system_plays_only_where_its_cases_show_how_it_is_asked(tmp_path: Path):
    (tmp_path / "sums.py").write_text(GAME, encoding="utf-8")
    config = write_games(
        tmp_path, "http://127.0.0.1:1",
        {"sums": {"file": "sums.py:Sums", "roles": {"incumbent": {"player": "system"}}}},
        evaluation__test_cases={"inline": [{"input": {"text": text, "more": "b"}, "expected": "c"} for text in "xyz"]},
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"roles\.incumbent\.player"):
        play_round(config)
