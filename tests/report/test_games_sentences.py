"""Sentences of language games: an effect is told as measured only where a measured round had the game."""

import pytest

from convergence_core.games.meta_critic import GameEffect
from convergence_core.games.round_records import CoinRecord, GameSummary
from tasks.report.games_section import game_sentence


def summary(effect: GameEffect | None) -> GameSummary:
    coin = CoinRecord(
        game="judge", version=1, feeds="trust", grounded=True, p_keep=0.5, probability=0.5, n_plays=0
    )  # fmt: skip
    return GameSummary(
        coin=coin, n_played=0, n_void=0, n_lost=0, scores=(), reasons={}, cost_usd=0.0, effect=effect
    )  # fmt: skip


@pytest.mark.parametrize(
    ("n_included", "told", "untold"),
    [
        (
            0,
            "none of 1 measured round had it, so nothing was measured of its effect yet",
            "changed",
        ),
        (1, "a round with it changed the reward on held-out cases by", "nothing was measured"),
    ],
)
def test_an_effect_that_no_round_had_is_not_told_as_one(n_included: int, told: str, untold: str):
    effect = GameEffect(game="judge", mean=0.0, sd=0.05, n_included=n_included, n_rounds=1)
    sentence = game_sentence(summary(effect), 1)
    assert told in sentence
    assert untold not in sentence
    assert "0.50." in sentence


def test_before_any_round_was_measured_nothing_is_known():
    assert "P(keep) is 0.50, because no round" in game_sentence(summary(None), 0)
