"""The plan for a night of many plays: batches on runners, and what plays cost."""

import pytest

from benchmarks.games.night import Constants, PerPlay, needs_of, play_batch, price_of


def test_a_batch_of_plays_says_how_many_say_something():
    assert play_batch("kuhn-poker", 1, 5) == 5


def test_a_play_costs_what_its_tokens_cost():
    one = PerPlay(cpu_s=0.0, replies=2.0, characters_in=400.0, characters_out=80.0)
    constants = Constants(persona_characters=100.0, usd_per_token_in=1e-6, usd_per_token_out=5e-6)
    assert price_of(one, constants) == pytest.approx(150 * 1e-6 + 20 * 5e-6)
    told = needs_of({"a": 28_800}, {"a": one}, {"a": 0.001}, constants)
    assert told.startswith("28,800 plays, 57,600 replies, $29")
    assert told.endswith("in eight hours 2 replies a second")
