"""Proposed games: asked for within the budget, stored as text, decided once, never run unapproved."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import ConfigurationError, ResumeError
from tasks.inputs.loader import load
from tasks.pages.overview import overview
from tasks.pages.source import PageSource
from tasks.run.game_proposals import (
    approve_game,
    propose_games,
    reject_game,
    stored_proposals,
    waiting,
)
from tasks.run.opener import resume_run
from tasks.store import ParquetStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.cli.conftest import cli as cli  # noqa: PLC0414 - the fixture
from tests.core.games.test_proposal import GAME, fenced
from tests.games.game_worlds import Gamer, play_round, write_games
from tests.support.children import ROOT
from tests.support.commands import Runner
from tests.support.http_server import Answer, error_answer
from tests.support.writing_runs import STORE, rows

KEY = "secret-key-of-this-test"
TOUCHING = GAME + "\n__import__('pathlib').Path('touched').touch()\n"


def answer(text: str, number: int) -> str:
    """Propose a game, another one each time; then what is none."""
    if number == 3:
        return fenced(TOUCHING)
    return fenced(
        GAME.replace('"copy"', f'"copy-{number}"').replace("class Copy", f"class Copy{number}")
    )


def write(folder: Path, url: str, **keys: Any) -> Path:
    return write_games(folder, url, {"nim": {"roles": {"second": {"player": "chance"}}}}, **keys)


@pytest.fixture
def gamer() -> Gamer:
    return Gamer(answer)


@pytest.fixture
def config(gamer: Gamer, tmp_path: Path) -> Iterator[Path]:
    with gamer.server() as server:
        yield write(tmp_path, server.url)


def feedback_of(folder: Path) -> FeedbackStore:
    return FeedbackStore(folder / STORE)


def test_proposals_are_paid_stored_and_each_another_game(
    config: Path, gamer: Gamer, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    found, why = propose_games(load(config), 3)
    assert why is None
    assert [one.proposal.game for one in found] == ["copy-1", "copy-2", ""]
    assert "`__import__`" in found[2].proposal.reason
    assert not (tmp_path / "touched").exists()
    assert "another one: copy-1, critic, debate" in gamer.asked[1]
    assert "copy-2" in gamer.asked[2]
    stored = rows(tmp_path, "SELECT * EXCLUDE (run_id) FROM game_proposals ORDER BY position")
    assert [(row["game"], row["class_name"], row["generation"]) for row in stored] == [
        ("copy-1", "Copy1", 0), ("copy-2", "Copy2", 0), (None, None, 0),
    ]  # fmt: skip
    assert stored[0]["purpose"] == "A word is said, and said again."
    assert (stored[0]["reason"], stored[0]["model"]) == (None, "scribe")
    assert stored[0]["text"] == found[0].proposal.text
    (paid,) = rows(
        tmp_path, "SELECT count(*) n, sum(cost_usd) usd FROM attempts WHERE purpose = 'game'"
    )
    assert paid["n"] == 3
    assert sum(row["cost_usd"] for row in stored) == pytest.approx(paid["usd"])
    again, _ = propose_games(load(config), 1)
    assert "copy-2" in gamer.asked[3], "also what an earlier command proposed"
    assert again[0].proposal.game == "copy-4"
    assert [one.proposal.game for one in stored_proposals(load(config))] == [
        "copy-1",
        "copy-2",
        "",
        "copy-4",
    ]


def test_a_text_that_comes_twice_is_one_proposal(tmp_path: Path):
    with Gamer(lambda *_: fenced(GAME)).server() as server:
        config = write(tmp_path, server.url)
        first, _ = propose_games(load(config), 2)
    assert [one.proposal.reason for one in first] == ["", "its `id` copy is that of another game"]
    with feedback_of(tmp_path) as feedback:
        assert [one.proposal.game for one in waiting(load(config), feedback)] == ["copy"]


def test_an_approved_game_is_a_file_that_can_be_played(config: Path, tmp_path: Path, gamer: Gamer):
    propose_games(load(config), 2)
    with feedback_of(tmp_path) as feedback:
        first, second = waiting(load(config), feedback)
        output = tmp_path / "copy1.py"
        assert approve_game(load(config), feedback, first.proposal.proposal_id, output) == first
        assert output.read_text("utf-8") == first.proposal.text
        reject_game(load(config), feedback, second.proposal.proposal_id)
        assert waiting(load(config), feedback) == []
        done = first.proposal.proposal_id
        with pytest.raises(ConfigurationError, match="waits for a decision"):
            reject_game(load(config), feedback, done)
        with pytest.raises(ConfigurationError, match="waits for a decision"):
            approve_game(load(config), feedback, done, tmp_path / "more.py")
    assert not (tmp_path / "more.py").exists()
    games = {"copy-1": {"file": "copy1.py:Copy1"}}
    report = play_round(write_games(tmp_path, server_of(config), games, society__games__plays=2))
    assert [one.coin.game for one in report.games] == ["copy-1"]


def server_of(config: Path) -> str:
    """Return the URL that a configuration names."""
    found = load(config).configuration.llm
    assert found is not None
    return str(found.endpoint).removesuffix("/v1")


def test_of_many_decisions_at_once_one_holds(config: Path, tmp_path: Path):
    propose_games(load(config), 1)
    with feedback_of(tmp_path) as feedback:
        (one,) = waiting(load(config), feedback)

    def decide(k: int) -> bool:
        with feedback_of(tmp_path) as own:
            try:
                if k % 2:
                    reject_game(load(config), own, one.proposal.proposal_id)
                else:
                    approve_game(
                        load(config), own, one.proposal.proposal_id, tmp_path / f"g{k}.py"
                    )
            except ConfigurationError:
                return False
            return True

    with ThreadPoolExecutor(8) as threads:
        held = [*threads.map(decide, range(16))]
    assert held.count(True) == 1
    written = sorted(path.name for path in tmp_path.glob("g*.py"))
    assert written == [f"g{held.index(True)}.py"] * (held.index(True) % 2 == 0)


def test_a_file_is_never_overwritten(config: Path, tmp_path: Path):
    propose_games(load(config), 1)
    taken = tmp_path / "mine.py"
    taken.write_text("mine", encoding="utf-8")
    with feedback_of(tmp_path) as feedback:
        (one,) = waiting(load(config), feedback)
        for output in (taken, tmp_path / "nowhere" / "game.py", tmp_path):
            with pytest.raises(ConfigurationError, match="must be a new file"):
                approve_game(load(config), feedback, one.proposal.proposal_id, output)
        assert waiting(load(config), feedback) == [one]
    assert taken.read_text("utf-8") == "mine"


def test_secrets_of_the_configuration_reach_no_proposal(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SCRIBE_KEY", KEY)
    code = fenced(GAME.replace("said again.", f"said again with {KEY}."))
    with Gamer(lambda *_: code).server() as server:
        config = write(tmp_path, server.url, llm__api_key_env="SCRIBE_KEY")
        ((one,), _) = propose_games(load(config), 1)
    assert KEY not in one.proposal.text
    assert KEY not in one.proposal.purpose
    files = [path for path in (tmp_path / STORE).rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_share_that_is_too_small_and_a_server_that_fails_are_told(tmp_path: Path):
    with Gamer(answer).server() as server:
        found, why = propose_games(
            load(write(tmp_path / "poor", server.url, budget__max_calls=10)), 3
        )
    assert len(found) == 1, "a tenth of the calls"
    assert "max_calls" in str(why)

    class Broken(Gamer):
        def respond(self, request: Any) -> Answer:
            return error_answer(500)

    with Broken().server() as server:
        given = {"optimization__execution__max_retries": 0}
        found, why = propose_games(load(write(tmp_path / "broken", server.url, **given)), 2)
    assert found == []
    assert "500" in str(why)


def test_without_a_model_nobody_proposes(config: Path):
    loaded = load(config)
    without = loaded.configuration.model_copy(update={"llm": None})
    with pytest.raises(ConfigurationError, match="`llm` is required"):
        propose_games(replace(loaded, configuration=without), 1)


def test_what_was_killed_goes_on_and_pays_nothing_twice(
    config: Path, gamer: Gamer, tmp_path: Path
):
    code = f"from tests.games.test_game_proposals import *; propose_games(load(Path({str(config)!r})), 2)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    gamer.before_answer = lambda n: os.kill(child.pid, signal.SIGKILL) if n == 2 else None
    assert child.wait(timeout=120) == -signal.SIGKILL
    assert rows(tmp_path, "SELECT * FROM game_proposals") == []
    gamer.before_answer = lambda _: None
    with pytest.raises(ResumeError, match="Run `convergence games propose` again"):
        resume_run(tmp_path / STORE, ParquetStore(tmp_path / STORE).runs()[0].run_id)
    found, _ = propose_games(load(config), 2)
    assert len(gamer.asked) == 3, "the one that was under way is asked again"
    assert gamer.asked[1] == gamer.asked[2]
    assert len({one.proposal.proposal_id for one in found}) == 2
    (runs,) = rows(tmp_path, "SELECT count(*) n FROM runs WHERE name LIKE '%.proposals'")
    assert runs["n"] == 1


def test_the_commands_list_show_and_decide(config: Path, cli: Runner, tmp_path: Path):
    assert "No game is proposed." in cli("games", "proposals", config).err
    done = cli("games", "propose", config, "--n", "3")
    assert done.code == 0
    assert "copy-1: A word is said, and said again." in done.out
    assert "scribe proposed no game: it must not use the name `__import__`." in " ".join(
        done.out.split()
    )
    listed = cli("games", "proposals", config, "--json").json["proposals"]
    assert [one["game"] for one in listed] == ["copy-1", "copy-2"]
    first, second = (one["proposal_id"] for one in listed)
    assert (
        cli("games", "proposals", config, "--show", first).out.strip() == listed[0]["text"].strip()
    )
    told = "2 games that a model proposed wait for a decision."
    listing = " `convergence games proposals` lists them."
    assert told + listing in " ".join(cli("review", config).err.split())
    source = PageSource(ParquetStore(tmp_path / STORE))
    needs = overview(source)["needs"]
    assert [(one["sentence"], one["command"]) for one in needs] == [
        (told, "convergence games proposals")
    ]
    source.close()
    output = tmp_path / "one.py"
    approved = cli("games", "proposals", config, "--approve", first, "--output", output)
    assert "Nothing of it was run" in approved.err
    assert f'copy-1: {{file: "{output.as_posix()}:Copy1"}}' in "".join(approved.out.splitlines())
    assert "is not proposed again" in cli("games", "proposals", config, "--reject", second).err
    for given in (
        ("--approve", second), ("--output", output), ("--approve", first, "--reject", second),
        ("--show", "no"), ("--reject", "no"),
    ):  # fmt: skip
        assert cli("games", "proposals", config, *given).code == 2
    assert cli("games", "propose", write(tmp_path, "http://127.0.0.1:9"), "--json").code == 100


def test_control_characters_of_a_model_reach_no_terminal(tmp_path: Path, cli: Runner):
    with Gamer(lambda *_: "\x1b[2J\x9b31m evil").server() as server:
        done = cli("games", "propose", write(tmp_path, server.url))
    assert done.code == 100
    assert "\x1b" not in done.out + done.err
    assert json.dumps(rows(tmp_path, "SELECT text FROM game_proposals")[0]["text"]) == json.dumps(
        "\x1b[2J\x9b31m evil"
    )
