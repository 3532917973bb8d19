"""Sentences of language games: an effect is reported only where a search used a case of the game."""

import pytest

from convergence_core.games.meta_critic import GameEffect
from convergence_core.games.round_records import CoinRecord, GamesReport, GameSummary
from tasks.report.games_section import game_sentence, games_blocks, verdict_of_game
from tasks.report.markdown import markdown_of


def summary(effect: GameEffect | None, feeds="hard_cases", off: str | None = None) -> GameSummary:
    coin = CoinRecord(
        game="sums", version=1, feeds=feeds, grounded=True, n_plays=8, off_reason=off
    )
    return GameSummary(
        coin=coin, n_played=0, n_void=0, n_lost=0, scores=(), reasons={}, cost_usd=0.0, effect=effect
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mean", "off", "word"),
    [
        (0.1, None, "kept"),
        (0.0, None, "faded"),
        (0.04, None, "undecided"),
        (-0.1, "why", "dropped"),
    ],
)
def test_a_measured_game_is_reported_with_what_was_used(mean: float, off: str | None, word: str):
    effect = GameEffect(mean=mean, sd=0.02, n_cases=3, n_trials=90)
    game = summary(effect, off=off)
    sentence = game_sentence(game)
    assert verdict_of_game(game) == word
    assert "3 cases that searches used, 90 paired trials" in sentence
    assert f"{word.capitalize()}: the next search uses each of its approved cases" in sentence
    assert ("sums is off: why." in sentence) == (off is not None)


def test_before_a_search_used_a_case_nothing_is_known():
    game = summary(None)
    assert game_sentence(game) == ("sums was given 8 plays. No search has used a case of it yet.")
    assert game_sentence(summary(None, "players")) == "sums was given 8 plays."

    def shown(each: GameSummary) -> str:
        return markdown_of(games_blocks(GamesReport(
            system="s", label="l", round_number=0, games=(each,), n_plays=0, n_calls=0,
            cost_usd=0.0, is_offline=False, limit=None,
        )))  # fmt: skip

    assert "without approval nothing can be learned" in shown(game)
    assert "without approval" not in shown(summary(None, "players"))
