"""Coverage: what each measure sees, when it alarms, and what an alarm does."""

import asyncio
from dataclasses import asdict, replace

import numpy as np
import pytest

from convergence_core.judges.coverage import (
    MOST_BIGRAMS,
    WINDOW,
    Alarms,
    Coverage,
    held_out_coverage,
    last_bigrams,
    measure,
    vendi,
    why_alarm,
)
from tests.sao.trigram_author import play

FULL = Coverage(
    n_texts=WINDOW, vendi=100.0, distinct_2=0.7, n_bigrams=8000, duplicate_share=0.02, held_out=0.5,
)  # fmt: skip
BAD = replace(FULL, vendi=50.0)


# -- measures


def test_the_vendi_score_counts_different_texts():
    assert vendi(["red fox", "blue whale", "green tea", "red fox"]) == pytest.approx(
        np.exp(1.5 * np.log(2)), rel=1e-6
    )
    assert vendi(["same words here"] * 9) == pytest.approx(1.0)
    assert vendi([]) == 0.0
    assert vendi(["", ""]) == 1.0


def test_bigrams_are_taken_from_the_end():
    assert last_bigrams(["a b c", "d e"], 2) == ["d e", "a b"]
    assert last_bigrams([], 5) == []
    found = measure(["x y z"] * 300)
    assert (found.n_texts, found.n_bigrams) == (WINDOW, 600)
    assert found.distinct_2 == pytest.approx(2 / 600)
    assert measure([]).distinct_2 == 1.0
    some = replace(FULL, n_bigrams=30)
    assert Alarms(reference=some).window(["x y z"] * 9_000).n_bigrams == 30
    assert Alarms().window(["x y z"] * 9_000).n_bigrams == MOST_BIGRAMS


def test_held_out_coverage_is_the_share_that_is_come_near_to():
    real = ["red fox runs far", "red fox runs home", "blue tea cools", "blue tea warms"]
    assert held_out_coverage(["red fox runs far", "red fox runs home"], real) == 0.5
    assert held_out_coverage(real, real) == 1.0
    assert held_out_coverage([], real) == 0.0
    assert held_out_coverage(real, real[:2]) is None


# -- alarms


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (replace(FULL, vendi=69.9), "Vendi score"),
        (replace(FULL, distinct_2=0.48), "distinct-2"),
        (replace(FULL, held_out=0.40), "held-out coverage"),
        (replace(FULL, duplicate_share=0.105), "duplicates"),
        (replace(FULL, vendi=70.1, distinct_2=0.5, held_out=0.41), None),
        (replace(BAD, n_texts=WINDOW - 1), None),
        (replace(FULL, held_out=None), None),
    ],
)
def test_each_measure_alarms_at_its_threshold(found, says):
    why = why_alarm(found, FULL)
    assert why is None if says is None else says in str(why)


def test_an_alarm_stops_the_rounds_until_a_person_has_looked():
    few = Alarms().after(replace(FULL, n_texts=10))
    assert few.reference is None
    state = few.after(FULL)
    assert (state.reference, state.is_stopped) == (FULL, False)
    alarmed = state.after(BAD)
    assert alarmed.is_stopped
    assert alarmed.moved != state.moved
    restarted = Alarms.from_json(asdict(alarmed))
    assert restarted == alarmed
    assert not restarted.released(9).is_stopped
    assert restarted.released(9).n_released == 1
    assert restarted.released(1).after(BAD).is_stopped


def stopped(temperature: float, n_rounds: int) -> str:
    """Return what stopped the rounds of a collapsing model, after which it writes no row."""

    async def found() -> str:
        async with play(temperature, n_rounds, seed=1) as sao:
            assert sao.alarms.is_stopped
            assert sao.rounds.n_done <= 1 + n_rounds  # the first wrote real text
            n_pairs = len(sao.pairs)
            with pytest.warns(UserWarning, match="no row was written"):
                stopped = await sao.generate_synthetic_dataset(5)
            assert (stopped.pairs, len(sao.pairs)) == ((), n_pairs)
            assert stopped.stop_reason == sao.alarms.why
            return str(sao.alarms.why)

    return asyncio.run(found())


@pytest.mark.statistical
@pytest.mark.slow
def test_a_collapse_stops_the_rounds_by_round_2_when_it_is_cold():
    assert "at first" in stopped(0.7, 2)
