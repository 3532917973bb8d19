"""Coverage: what each measure sees, when it alarms, and what an alarm does."""

import asyncio
from dataclasses import asdict, replace

import numpy as np
import pytest

from convergence_core.config import parse_mapping
from convergence_core.judges.coverage.alarms import (
    MOST_TEMPERATURE,
    Alarms,
    Windows,
    why_alarm,
)
from convergence_core.judges.coverage.measures import (
    MOST_BIGRAMS,
    WINDOW,
    Coverage,
    configuration_coverage,
    duplicate_share,
    hashed_counts,
    held_out_coverage,
    last_bigrams,
    measure,
    vendi,
    zlib_ratio,
)
from convergence_core.judges.trust.audit import audit
from convergence_core.records import Params
from convergence_core.sao.rounds import Rounds
from convergence_core.sao.state import SaoState
from convergence_core.space.builder import build_space
from tests.sao.trigram_author import play

FULL = Coverage(
    n_texts=WINDOW, vendi=100.0, distinct_2=0.7, n_bigrams=8000, zlib_ratio=0.4,
    duplicate_share=0.02, held_out=0.5,
)  # fmt: skip
BAD = replace(FULL, vendi=50.0)


def seen(texts: Coverage, prompts: Coverage | None = None) -> Windows:
    return Windows(texts=texts, prompts=prompts or texts)


# -- measures


def test_the_vendi_score_counts_different_texts():
    assert vendi(["red fox", "blue whale", "green tea", "red fox"]) == pytest.approx(
        np.exp(1.5 * np.log(2)), rel=1e-6
    )
    assert vendi(["same words here"] * 9) == pytest.approx(1.0)
    assert vendi([]) == 0.0
    assert vendi(["", ""]) == 1.0


def test_counts_are_of_words_and_their_pairs():
    counts = hashed_counts(["a b a", ""])
    assert counts.sum(axis=1).tolist() == [5.0, 0.0]
    assert (counts[0] == 2).sum() >= 1


def test_bigrams_are_taken_from_the_end():
    assert last_bigrams(["a b c", "d e"], 2) == ["d e", "a b"]
    assert last_bigrams([], 5) == []
    found = measure(["x y z"] * 300)
    assert (found.n_texts, found.n_bigrams) == (WINDOW, 600)
    assert found.distinct_2 == pytest.approx(2 / 600)
    assert measure([]).distinct_2 == 1.0
    some = replace(FULL, n_bigrams=30)
    windows = Alarms(reference=FULL, prompts=some).windows(["x y z"] * 9_000, ["x y z"] * 300)
    assert (windows.texts.n_bigrams, windows.prompts.n_bigrams) == (8_000, 30)
    assert Alarms().windows(["x y z"] * 9_000, []).texts.n_bigrams == MOST_BIGRAMS


def test_repeated_texts_are_seen_and_compress():
    assert duplicate_share(["A b.", "a b", "c"]) == pytest.approx(1 / 3)
    assert duplicate_share([]) == 0.0
    assert zlib_ratio(["one and the same sentence again"] * 50) < 0.1
    assert zlib_ratio([]) == 1.0


def test_held_out_coverage_is_the_share_that_is_come_near_to():
    real = ["red fox runs far", "red fox runs home", "blue tea cools", "blue tea warms"]
    assert held_out_coverage(["red fox runs far", "red fox runs home"], real) == 0.5
    assert held_out_coverage(real, real) == 1.0
    assert held_out_coverage([], real) == 0.0
    assert held_out_coverage(real, real[:2]) is None


def test_configuration_coverage_is_the_occupied_share_of_the_grid():
    parameters = {
        "model": {"type": "categorical", "choices": ["a", "b"]},
        "temperature": {"type": "float", "min": 0.0, "max": 1.0},
        "top": {"type": "int", "min": 1, "max": 2, "when": {"model": "a"}},
    }
    configured = parse_mapping(
        {
            "api": {"name": "x", "function": "m:f"},
            "search_space": {"parameters": parameters},
            "evaluation": {
                "test_cases": {"path": "c.json"},
                "metrics": {"exact_match": {"weight": 1}},
            },
        }
    )
    space = build_space(configured.search_space, {})
    asked: list[Params] = [
        {"model": "b", "temperature": 0.1},
        {"model": "b", "temperature": 0.2},
        {"model": "a", "temperature": 1.0, "top": 2},
    ]
    assert configuration_coverage(space, asked) == pytest.approx(2 / (2 * 4 * 3))
    assert configuration_coverage(space, []) == 0.0


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


def test_rows_stop_at_an_alarm_and_come_again_after_two_clean_rounds():
    quiet = Alarms().after(seen(replace(FULL, n_texts=10)))
    assert quiet.reference is None
    state = quiet.after(seen(FULL))
    assert state.reference == FULL
    assert state.gives_rows
    assert state.temperature(0.9) == 0.9
    alarmed = state.after(seen(BAD))
    assert not alarmed.gives_rows
    assert alarmed.anchor_share == 0.3
    assert alarmed.temperature(0.9) == pytest.approx(1.1)
    assert alarmed.temperature(1.1) == MOST_TEMPERATURE
    assert alarmed.temperature(1.4) == 1.4
    assert alarmed.moved != state.moved
    once = alarmed.after(seen(FULL))
    assert not once.gives_rows
    assert not once.after(seen(BAD)).after(seen(FULL)).gives_rows
    assert once.after(seen(BAD)).n_alarms == 1
    again = once.after(seen(FULL))
    assert again.gives_rows
    assert again.anchor_share == 0.0


def test_the_third_alarm_stays_off_across_a_restart_until_a_person_acts():
    state = Alarms().after(seen(FULL))
    for _ in range(3):
        state = state.after(seen(BAD))
        for _ in range(2):
            state = state.after(seen(FULL))
    assert state.n_alarms == 3
    restarted = Alarms.from_json(asdict(state))
    assert restarted == state
    for _ in range(5):
        restarted = restarted.after(seen(FULL))
    assert restarted.is_off
    assert not restarted.gives_rows
    released = restarted.released(9)
    assert not released.is_off
    assert released.n_released == 3
    assert released.after(seen(FULL)).after(seen(FULL)).gives_rows
    assert Alarms.from_json(asdict(Alarms())) == Alarms()


def test_prompts_alone_are_compared_with_prompts_alone():
    # Prompts are poorer than answers: fewer, and less than 70 % as varied.
    poor = replace(FULL, n_texts=67, vendi=40.0, distinct_2=0.4, n_bigrams=900)
    state = Alarms().after(seen(FULL, poor))
    assert (state.reference, state.prompts) == (FULL, poor)
    assert state.after(seen(FULL, replace(poor, vendi=10.0))).gives_rows, (
        "rows are told by all texts"
    )
    alarmed = state.after(seen(BAD, poor))
    assert not alarmed.gives_rows
    assert alarmed.after(seen(BAD, poor)).after(seen(BAD, poor)).gives_rows
    narrow = seen(FULL, replace(poor, vendi=27.9))
    still = alarmed.after(seen(BAD, poor)).after(narrow)
    assert (still.n_clean, still.n_alarms) == (0, 1)
    assert still.why == "Vendi score 27.9, of 40.0 at first (prompts alone)"
    assert not still.after(seen(BAD, poor)).gives_rows
    assert Alarms.from_json(asdict(still)) == still


def test_as_many_prompts_are_looked_at_as_the_reference_had():
    def texts(n: int, word: str = "w") -> list[str]:
        return [f"{word}{k} {word}{k + 1} {word}{k + 2}" for k in range(n)]

    first = Alarms().windows(texts(210), texts(70))
    assert (first.texts.n_texts, first.prompts.n_texts) == (WINDOW, 70)
    assert Alarms().windows(texts(900), texts(300)).prompts.n_texts == WINDOW
    state = Alarms().after(first)
    again = state.windows(texts(210), [*texts(20, "x"), *texts(70)])
    assert again.prompts == first.prompts
    stopped = replace(state, is_stopped=True)
    # Those of a collapse count until as many others have been written.
    for n, n_clean in ((20, 0), (69, 1), (70, 1)):
        found = stopped.windows([], [*(["same words here"] * 70), *texts(n)])
        assert stopped.after(found).n_clean == n_clean, n


def test_a_state_without_a_reference_of_prompts_takes_one_when_all_is_well():
    state = Alarms().after(seen(FULL))
    old = asdict(state)
    del old["prompts"]
    loaded = Alarms.from_json(old)
    assert loaded == replace(state, prompts=None)
    poor = replace(FULL, vendi=40.0)
    assert loaded.after(seen(FULL, poor)).prompts == poor
    alarmed = loaded.after(seen(BAD, poor))
    assert alarmed.prompts is None
    # Nothing is there to compare with but the window of prompts and answers.
    assert not alarmed.after(seen(FULL, poor)).after(seen(FULL, poor)).gives_rows
    assert alarmed.after(seen(BAD, FULL)).after(seen(BAD, FULL)).gives_rows


def test_copies_in_the_very_first_window_are_an_alarm():
    copied = replace(FULL, duplicate_share=0.5)
    state = Alarms().after(seen(copied))
    assert (state.n_alarms, state.reference, state.prompts) == (1, copied, copied)


def stopped(temperature: float, n_rounds: int) -> str:
    """Return what stopped the rounds of a collapsing model, after which it writes no row."""

    async def found() -> str:
        async with play(temperature, n_rounds, seed=1) as sao:
            assert sao.alarms.is_stopped
            assert sao.rounds.n_done <= 1 + n_rounds  # the first wrote real text
            n_pairs = len(sao.pairs)
            with pytest.warns(UserWarning, match="no row was written"):
                probation = await sao.generate_synthetic_dataset(5)
            assert (probation.pairs, len(sao.pairs)) == ((), n_pairs)
            assert probation.stop_reason == sao.alarms.why
            return str(sao.alarms.why)

    return asyncio.run(found())


@pytest.mark.statistical
@pytest.mark.slow
def test_a_collapse_stops_the_rounds_by_round_2_when_it_is_cold():
    assert "at first" in stopped(0.7, 2)


@pytest.mark.slow
@pytest.mark.statistical
def test_a_collapse_stops_the_rounds_by_round_3_when_it_is_not():
    assert "distinct-2" in stopped(1.0, 3)  # at T = 1 the Vendi score hardly moves


@pytest.mark.slow
@pytest.mark.statistical
def test_fresh_real_text_never_alarms_in_five_rounds():
    async def found() -> tuple[int, int]:
        async with play(None, 5, seed=1) as sao:
            return sao.rounds.n_done, sao.alarms.n_alarms

    assert asyncio.run(found()) == (6, 0)


def test_after_two_clean_rounds_rows_come_again():
    state = SaoState(rounds=Rounds(limit=9), alarms=Alarms(reference=FULL))
    found = audit([], np.random.default_rng(0))

    def after(coverage: Coverage) -> SaoState:
        return state.after(
            [], audit=found, windows=seen(coverage), agreement_with_frozen=None, incumbent=None
        )

    state = after(BAD)
    assert not state.alarms.gives_rows
    state = after(FULL)
    assert not state.alarms.gives_rows
    state = after(FULL)
    assert state.alarms.gives_rows
    assert state.rounds.stop_reason is None, "an alarm that is over ends no rounds"
