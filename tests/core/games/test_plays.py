"""Plays are seeded, hashed, and hold a game to its declaration."""

import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from convergence_core.games.contract import FixedPlayer, LegalPlayer
from convergence_core.games.game import Feed, Game, PlayKey, Scores
from convergence_core.games.play import GameRuleError, OpenPlay, play, seed_of
from convergence_core.games.registry import count_plays, solved_games
from convergence_core.ports import Ask, Player

KEY = PlayKey(run_seed=7, round_number=2, index=3)


def hashes(game: Game) -> list[str]:
    players = dict.fromkeys(game.roles, LegalPlayer())
    keys = [PlayKey(run_seed=7, round_number=2, index=i) for i in range(10)]
    return [play(game, players, key).sha256 for key in keys]


def test_another_process_plays_the_same():
    code = (
        "from tests.core.games.test_plays import hashes, solved_games;"
        "print([hashes(game) for game in solved_games()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONHASHSEED": "12", "PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    found = [hashes(game) for game in solved_games()]
    assert done.stdout.strip() == str(found)
    assert all(len(set(plays)) > 5 for plays in found)


def test_every_part_of_the_key_moves_the_seed():
    game, other, *_ = solved_games()
    seeds = {
        seed_of(game, KEY),
        seed_of(other, KEY),
        seed_of(type(game)(game.tree, version=2), KEY),
        seed_of(game, PlayKey(run_seed=8, round_number=2, index=3)),
        seed_of(game, PlayKey(run_seed=7, round_number=3, index=3)),
        seed_of(game, PlayKey(run_seed=7, round_number=2, index=4)),
    }
    assert len(seeds) == 6


@dataclass
class Echo:
    """Asks one role a number of times and scores the length of what it said."""

    n_asks: int = 1
    id: str = "echo"
    version: int = 1
    roles: tuple[str, ...] = ("speaker",)
    cost: dict[str, int] = field(default_factory=lambda: {"speaker": 1})
    feeds: Feed = "players"
    grounded: bool = True
    asked: str = "speaker"
    value: float | None = None

    def protocol(self, rng):
        for _ in range(self.n_asks):
            yield Ask(role=self.asked, text="Say something.")
        return {}

    def score(self, turns, facts):
        value = sum(len(t.reply) for t in turns) if self.value is None else self.value
        return Scores(by_role={"speaker": value})


def test_games_and_players_are_told_by_their_shape():
    assert isinstance(Echo(), Game)
    assert isinstance(FixedPlayer(""), Player)
    assert not isinstance(object(), Game)


@pytest.mark.parametrize(
    ("game", "says"),
    [
        (Echo(n_asks=2), "may ask `speaker` 1 times"),
        (Echo(asked="nobody"), "may ask `nobody` 0 times"),
        (Echo(value=float("nan")), "finite scores"),
    ],
)
def test_a_game_is_held_to_its_declaration(game, says):
    with pytest.raises(GameRuleError, match=says):
        play(game, {"speaker": FixedPlayer("a")}, KEY)


def test_an_open_play_waits_for_replies_and_is_scored_once_it_has_ended():
    going = OpenPlay(Echo(), KEY)
    assert going.ask is not None
    assert going.ask.role == "speaker"
    going.reply("abc")
    assert going.transcript().scores.by_role == {"speaker": 3}


def test_a_void_play_has_a_reason_and_no_score():
    assert Scores(by_role={}, reason="no measurement").is_void
    assert not Scores(by_role={"speaker": 0.0}).is_void


def shares(
    *games: Game, n: int = 1_000, p: float = 0.5, price: float = 0.001, **own: float
) -> dict[str, int]:
    names = [game.id for game in games]
    prices = {name: own.get(name, price) for name in names}
    return count_plays(games, n, p_keep=dict.fromkeys(names, p), price_usd=prices)


def test_plays_follow_what_a_game_is_worth_per_dollar():
    assert shares(Echo(id="a"), Echo(id="b"), b=0.003) == {"a": 750, "b": 250}
    found = count_plays(
        [Echo(id="a"), Echo(id="b")], 100, p_keep={"a": 0.9, "b": 0.1}, price_usd={"a": 0, "b": 0}
    )
    assert found == {"a": 90, "b": 10}


def test_games_without_a_ground_get_half_at_most():
    firm, loose, more = Echo(id="a"), Echo(id="b", grounded=False), Echo(id="c", grounded=False)
    assert shares(firm, loose, more) == {"a": 500, "b": 250, "c": 250}
    assert shares(firm, loose, b=0.003) == {"a": 750, "b": 250}
    assert shares(loose) == {"b": 500}
    assert shares(firm) == {"a": 1_000}
    assert shares(n=5) == {}
