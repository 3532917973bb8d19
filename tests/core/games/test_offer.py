"""Alarms switch off the games that a judge feeds, and no others."""

import pytest

from convergence_core.games.game import Game
from convergence_core.games.judge_games import DebateGame, JudgeGame
from convergence_core.games.meta_critic import GameEffect
from convergence_core.games.offer import unavailable_games
from convergence_core.games.registry import solved_games
from convergence_core.judges.trust import Audit, Trust
from tests.support.labelled_pairs import labelled_pair

PAIR = labelled_pair("1 + 1?", "2", "3", first_is_right=True)
GAMES: tuple[Game, ...] = (JudgeGame((PAIR,)), DebateGame((PAIR,)), *solved_games())
JUDGED = {"debate"}
BELIEVED = Trust().after(Audit(n_items=50, n_right=45, n_new=50))


def off(trust=BELIEVED, gains=()) -> dict[str, str]:
    return unavailable_games(GAMES, trust=trust, gains=gains)


def test_without_an_alarm_every_game_is_on():
    assert off() == {}


@pytest.mark.parametrize(
    ("n_right", "n_items", "why"),
    [
        (0, 0, "50 more items"),
        (40, 40, "10 more items"),
        (25, 50, "trust in the judge is 0.00"),
        (34, 50, "trust in the judge is 0.1"),
    ],
)
def test_a_judge_that_is_not_believed_feeds_no_game(n_right: int, n_items: int, why: str):
    trust = Trust().after(Audit(n_items=n_items, n_right=n_right, n_new=n_items))
    found = off(trust)
    assert found.keys() == JUDGED
    assert all(why in reason for reason in found.values()), found


def test_debates_are_paid_for_until_their_gain_is_surely_below_zero():
    harm = [-0.4 + 0.01 * (k % 5) for k in range(30)]
    assert off(gains=harm[:29]) == {}, "too few plays to say"
    assert off(gains=harm) == {
        "debate": "debates made the judge worse, so they are not paid for: mean gain -0.38 nats "
        "[-0.38, -0.38] (80 % t interval, 30 plays)"
    }
    assert off(gains=[0.0] * 40) == {}, "silent advocates change nothing"
    unsure = [-1.0 if k % 2 else 0.9 for k in range(40)]
    assert off(gains=unsure) == {}, "the upper bound is above 0"


def test_a_game_whose_cases_point_the_wrong_way_is_not_played():
    def of(game: str, mean: float) -> GameEffect:
        return GameEffect(mean=mean, sd=0.02, n_cases=4, n_trials=100)

    effects = {"nim": of("nim", -0.05), "kuhn-poker": of("kuhn-poker", -0.01)}
    found = unavailable_games(GAMES, trust=BELIEVED, effects=effects)
    assert found == {"nim": "settings that pass its cases score lower on yours"}
