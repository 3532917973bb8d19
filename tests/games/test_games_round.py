"""A round of games at a server: what it stores, what a kill, a cap, a hostile model and a wrong file leave."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import ConfigurationError
from convergence_core.games.game import PlayKey
from convergence_core.games.play import play
from convergence_core.games.registry import solved_games
from convergence_core.games.round_records import GamesReport
from tasks.games.configured_games import made_game
from tasks.games.games_report import latest_round
from tasks.games.own_games import OwnGame
from tasks.games.round_rows import plays_of_run
from tasks.inputs.loader import load
from tasks.store.tables.parquet_store import ParquetStore
from tests.games.game_worlds import KUHN, NIM, Gamer, legal, play_round, write_games
from tests.support.children import ROOT
from tests.support.stepped_runs import STORE
from tests.support.writing_runs import rows

SERIAL: dict[str, Any] = {"society__games__n_at_once": 1}
OWN_GAME = '''
from convergence_core.games.game import Scores
from convergence_core.ports import Ask


class Parity:
    """Says whether a number is odd."""

    id = "parity"
    version = 1
    roles = ("sayer",)
    cost = {"sayer": 1}
    feeds = "players"
    grounded = True

    def protocol(self, rng):
        number = int(rng.integers(100))
        yield Ask(role="sayer", text=f"Is {number} odd?\\nReply with one of: odd or even.", options=("odd", "even"))
        return {"number": number}

    def score(self, turns, facts):
        right = "odd" if facts["number"] % 2 else "even"
        return Scores(by_role={"sayer": float(turns[0].reply.strip() == right)})
'''


def stored(folder: Path) -> list[dict[str, Any]]:
    """Return all plays but for what differs from run to run."""
    found = rows(folder, "SELECT * FROM game_plays ORDER BY game, position")
    return [{k: v for k, v in dict(row).items() if k != "run_id"} for row in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Gamer, GamesReport]:
    """A round that nothing disturbed, with one play at a time."""
    folder, gamer = tmp_path_factory.mktemp("whole"), Gamer()
    with gamer.server() as server:
        report = play_round(write_games(folder, server.url, KUHN | NIM, **SERIAL))
    return folder, gamer, report


def test_a_round_is_stored_whole_and_paid_from_the_ledger(whole):
    folder, gamer, report = whole
    store = ParquetStore(folder / STORE)
    assert {one.coin.game: one.coin.n_plays for one in report.games} == {
        "kuhn-poker": 10,
        "nim": 10,
    }
    plays = plays_of_run(store, latest_round(store).run_id)
    assert report.n_plays == len(plays) == 20
    assert report.n_calls == len(gamer.asked) == sum(one.n_calls for one in plays)
    paid = rows(
        folder, "SELECT count(*) n, sum(cost_usd) usd FROM attempts WHERE purpose = 'game'"
    )
    assert paid[0]["n"] == len(gamer.asked)
    assert sum(one.cost_usd or 0.0 for one in plays) == pytest.approx(paid[0]["usd"])
    assert report.cost_usd == pytest.approx(paid[0]["usd"]), "no held-out case was evaluated"
    for one in plays:  # enough to score it again
        game = next(game for game in solved_games() if game.id == one.game)
        assert dict(game.score(one.turns, one.facts).by_role) == one.scores.by_role
    coins = rows(folder, "SELECT game, probability, p_keep FROM game_coins ORDER BY game")
    assert [(row["probability"], row["p_keep"]) for row in coins] == [(None, None)] * 2


@pytest.mark.slow
def test_a_round_that_is_killed_pays_nothing_twice_and_keeps_its_plan(whole, tmp_path):
    folder, undisturbed, _ = whole
    gamer = Gamer()
    with gamer.server() as server:
        config = write_games(tmp_path, server.url, KUHN | NIM, **SERIAL)
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.games.game_worlds", str(config)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        gamer.before_answer = lambda n: os.kill(child.pid, signal.SIGKILL) if n == 9 else None
        assert child.wait(timeout=60) == -signal.SIGKILL
        assert len(gamer.asked) == 9
        assert rows(tmp_path, "SELECT * FROM game_plays") == []
        report = play_round(config)
    again = Counter(gamer.asked) - Counter(undisturbed.asked)
    assert sum(again.values()) <= 1, "the reply that was under way may be asked for again"
    assert not Counter(undisturbed.asked) - Counter(gamer.asked)
    assert stored(tmp_path) == stored(folder)
    assert len(ParquetStore(tmp_path / STORE).runs()) == 1
    coins = "SELECT * EXCLUDE (run_id) FROM game_coins ORDER BY game"
    assert rows(tmp_path, coins) == rows(folder, coins)
    assert report.round_number == 0


def test_the_share_of_the_budget_is_never_overshot(tmp_path):
    with Gamer().server() as server:
        report = play_round(write_games(
            tmp_path, server.url, KUHN, society__games__plays=200,
            society__games__max_tokens=16, budget__max_usd=0.02, society__games__max_share_usd=0.05,
        ))  # fmt: skip
    assert report.cost_usd is not None
    assert 0.0 < report.cost_usd <= 0.02 * 0.05
    assert report.limit is not None
    assert "society.games.max_share_usd" in report.limit
    plays = stored(tmp_path)
    assert {row["status"] for row in plays} >= {"played"}
    assert all(not row["scores"] for row in plays if row["status"] == "lost")
    assert len(plays) < 200


SECRET = "sk-live-0123456789abcdefghijklmnop"  # noqa: S105 - made up


HOSTILE = ("", "\x00\ud800", "pass or bet, who knows", "x" * 30_000, f"key {SECRET}")


def test_hostile_replies_lose_and_leak_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GAMES_KEY", SECRET)
    gamer = Gamer(lambda _, number: HOSTILE[number % len(HOSTILE)])
    with gamer.server() as server:
        report = play_round(write_games(
            tmp_path, server.url, KUHN, society__games__plays=10, llm__api_key_env="GAMES_KEY",
        ))  # fmt: skip
    (game,) = report.games
    assert game.n_played == 10
    assert game.reasons == {"`first` made no legal move": 10}
    assert next(one.mean for one in game.scores if one.role == "first") == -2.0
    for path in (tmp_path / STORE).rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in json.dumps([row["turns_json"] for row in stored(tmp_path)])


def test_a_game_of_ones_own_is_played(tmp_path):
    (tmp_path / "parity.py").write_text(OWN_GAME, encoding="utf-8")
    with Gamer().server() as server:
        config = write_games(tmp_path, server.url, {"parity": {"file": "parity.py:Parity"}})
        report = play_round(config)
    (game,) = report.games
    assert (game.n_played, game.scores[0].role, game.scores[0].player) == (20, "sayer", "scribe")
    own = made_game(
        "parity", load(config).configuration.society.games.games["parity"], load(config)
    )
    assert isinstance(own, OwnGame)

    class Same:
        def answer(self, ask, rng):
            return legal(f"You play\n{ask.text}", 0)

    key = PlayKey(run_seed=1, round_number=0, index=0)
    with closing(own):
        assert len(play(own, {"sayer": Same()}, key).turns) == 1


BROKEN = {
    "def x(:": "SyntaxError",
    OWN_GAME.replace("version = 1", "version = 0"): "`version` must be 1 or more",
    OWN_GAME.replace(
        "turns[0].reply.strip() == right", "int(turns[0].reply) > 0"
    ): "it raises ValueError",
    OWN_GAME.replace(
        "rng.integers(100)", '__import__("random").random() * 1e9'
    ): "sample only from `rng`",
    OWN_GAME.replace('id = "parity"', 'id = "evenness"'): "must be the game's own `id`",
    OWN_GAME.replace(
        "class Parity:", "def Parity():\n    raise OSError('no')\n\nclass Other:"
    ): "OSError: no",
}


@pytest.mark.parametrize(("source", "why"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_file_that_is_no_game_is_refused_before_anything_is_asked(tmp_path, source, why):
    (tmp_path / "parity.py").write_text(source, encoding="utf-8")
    gamer = Gamer()
    with gamer.server() as server:
        config = write_games(tmp_path, server.url, {"parity": {"file": "parity.py:Parity"}})
        with pytest.raises(ConfigurationError, match=r"society\.games\.games\.parity") as caught:
            play_round(config)
    assert why in str(caught.value)
    assert gamer.asked == []
    assert not (tmp_path / STORE).exists()


def test_a_game_that_raises_in_play_is_void_and_the_round_goes_on(tmp_path):
    late = OWN_GAME.replace(
        'right = "odd"', 'assert turns[0].reply != "surprise"\n        right = "odd"'
    )
    (tmp_path / "parity.py").write_text(late, encoding="utf-8")
    with Gamer(lambda *_: "surprise").server() as server:
        report = play_round(write_games(
            tmp_path, server.url, {"parity": {"file": "parity.py:Parity"}} | NIM,
            society__games__plays=8,
        ))  # fmt: skip
    parity = next(one for one in report.games if one.coin.game == "parity")
    assert (parity.n_void, parity.n_played, parity.scores) == (4, 0, ())
    assert parity.reasons == {"the game raised AssertionError:": 4}
    assert report.n_plays == 8
