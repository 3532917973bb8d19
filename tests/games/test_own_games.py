"""A game of one's own that hangs, ends its process, prints or reads keys: the round goes on."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from convergence_core.errors import ConfigurationError
from convergence_core.games.game import PlayKey
from convergence_core.games.play import OpenPlay
from tasks.games import configured_games
from tasks.games.own_games import OwnGame, OwnGameError, load_game
from tests.games.game_worlds import NIM, Gamer, play_round, write_games

SOURCE = '''
import os
import sys

import numpy as np

from convergence_core.games.game import Scores
from convergence_core.ports import Ask

{top}


class Echo:
    """Asks twice, and does what it is told."""

    id = "echo"
    version = 1
    roles = ("sayer",)
    cost = {{"sayer": 2}}
    feeds = "players"
    grounded = True

    def protocol(self, rng):
        number = int(rng.integers(1_000_000))
        for _ in range(2):
            reply = yield Ask(role="sayer", text=f"Number {{number}}")
            number += 1
            if reply == "hang":
                while True:
                    pass
            if reply == "exit":
                os._exit(3)
            if reply == "print":
                print("{{}}", flush=True)
                sys.stdin.read()
        return {{"number": number, "keys": [k for k in os.environ if "SECRET" in k]}}

    def score(self, turns, facts):
        while turns[-1].reply == "hang in score":
            pass
        return Scores(by_role={{"sayer": float(len(turns))}})
'''
KEY = PlayKey(run_seed=1, round_number=0, index=0)


def written(folder: Path, top: str = "") -> Path:
    (folder / "echo.py").write_text(SOURCE.format(top=top), encoding="utf-8")
    return folder


def children() -> set[str]:
    """Return the numbers of this process's processes."""
    found = [one.read_text() for one in Path("/proc/self/task").glob("*/children")]
    return {pid for one in found for pid in one.split()}


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory):
    """The game, whose steps may take as long as a busy machine needs."""
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(_made(tmp_path_factory.mktemp("echo"), patch)) as game,
    ):
        yield game


def _made(folder: Path, patch: pytest.MonkeyPatch) -> OwnGame:
    patch.setenv("A_SECRET", "sesame")
    return load_game("echo.py:Echo", written(folder), "key", step_s=60.0)


def finished(opened: OpenPlay, *replies: str):
    for reply in replies:
        opened.reply(reply)
    return opened.transcript()


def test_it_is_played_without_our_keys_and_what_it_prints_is_no_reply(echo: OwnGame):
    seen = finished(OpenPlay(echo, KEY), "print", "print")
    assert seen.scores.by_role == {"sayer": 2.0}
    assert seen.facts["keys"] == []
    assert (echo.id, echo.roles, echo.cost, echo.feeds) == (
        "echo",
        ("sayer",),
        {"sayer": 2},
        "players",
    )


def test_a_score_that_hangs_ends_its_process_and_the_next_play_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with closing(_made(tmp_path, monkeypatch)) as echo:
        turns = finished(OpenPlay(echo, KEY), "a", "b").turns
        hanging = [turns[0], replace(turns[1], reply="hang in score")]
        with pytest.raises(OwnGameError, match="ended: it gave nothing within 1 s"):
            replace(echo, step_s=1.0).score(hanging, {})
        assert echo.hangs == ["nothing within 1 s"]
        assert echo.score(turns, {}).by_role == {"sayer": 2.0}


@pytest.mark.parametrize("top", ["while True:\n    pass", "__import__('time').sleep(1e6)"])
def test_a_file_that_hangs_while_it_is_read_is_refused(tmp_path: Path, top: str):
    before = children()
    with pytest.raises(
        ConfigurationError, match=r"`key` must make a game .* nothing within 0.5 s"
    ):
        load_game("echo.py:Echo", written(tmp_path, top), "key", check_s=0.5)
    assert children() == before


@pytest.mark.slow
def test_a_play_that_hangs_is_void_and_the_round_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(configured_games, "load_game", partial(load_game, step_s=2.0))
    written(tmp_path)
    gamer = Gamer(lambda _, number: "hang" if number == 3 else "fine")
    with gamer.server() as server:
        config = write_games(tmp_path, server.url, {"echo": {"file": "echo.py:Echo"}} | NIM,
                             society__games__plays=8, optimization__seed=0)  # fmt: skip
        before = children()
        report = play_round(config)
    game = next(one for one in report.games if one.coin.game == "echo")
    assert game.reasons == {"the game was ended: it gave nothing within 2 s": 1}
    assert (game.n_void, game.n_played) == (1, game.coin.n_plays - 1)
    assert children() == before
