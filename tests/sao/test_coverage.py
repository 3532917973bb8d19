"""Coverage: what each measure sees, when it alarms, and what an alarm does."""

from dataclasses import replace

import numpy as np
import pytest

from convergence_core.config import parse_mapping
from convergence_core.coverage.alarms import (
    MOST_TEMPERATURE,
    Alarms,
    bigrams_for,
    why_alarm,
)
from convergence_core.coverage.configurations import configuration_coverage
from convergence_core.coverage.measures import (
    MOST_BIGRAMS,
    WINDOW,
    Coverage,
    duplicate_share,
    hashed_counts,
    held_out_coverage,
    last_bigrams,
    measure,
    vendi,
    zlib_ratio,
)
from convergence_core.records import Params
from convergence_core.sao.learning import RoundLessons, after_round
from convergence_core.sao.rounds import Rounds
from convergence_core.sao.state import SaoState
from convergence_core.space import Space
from convergence_core.trust.audit import audit
from tests.support.trigrams import N_PER_ROUND, Trigrams, sentences, split

FULL = Coverage(
    n_texts=WINDOW, vendi=100.0, distinct_2=0.7, n_bigrams=8000, zlib_ratio=0.4,
    duplicate_share=0.02, held_out=0.5,
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
    assert bigrams_for(None) == MOST_BIGRAMS
    assert bigrams_for(FULL) == 8000


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
    space = Space.from_config(configured.search_space, {})
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
    quiet = Alarms().after(replace(FULL, n_texts=10))
    assert quiet.reference is None
    state = quiet.after(FULL)
    assert state.reference == FULL
    assert state.gives_rows
    assert state.temperature(0.9) == 0.9
    alarmed = state.after(BAD)
    assert not alarmed.gives_rows
    assert alarmed.anchor_share == 0.3
    assert alarmed.temperature(0.9) == pytest.approx(1.1)
    assert alarmed.temperature(1.1) == MOST_TEMPERATURE
    assert alarmed.temperature(1.4) == 1.4
    assert alarmed.moved != state.moved
    once = alarmed.after(FULL)
    assert not once.gives_rows
    assert not once.after(BAD).after(FULL).gives_rows
    assert once.after(BAD).n_alarms == 1
    again = once.after(FULL)
    assert again.gives_rows
    assert again.anchor_share == 0.0


def test_the_third_alarm_stays_off_across_a_restart_until_a_person_acts():
    state = Alarms().after(FULL)
    for _ in range(3):
        state = state.after(BAD)
        for _ in range(2):
            state = state.after(FULL)
    assert state.n_alarms == 3
    restarted = Alarms.from_json(state.to_json())
    assert restarted == state
    for _ in range(5):
        restarted = restarted.after(FULL)
    assert restarted.is_off
    assert not restarted.gives_rows
    released = restarted.released(9)
    assert not released.is_off
    assert released.n_released == 3
    assert released.after(FULL).after(FULL).gives_rows
    assert Alarms.from_json(Alarms().to_json()) == Alarms()


def collapse(temperature: float, n_rounds: int, seed: int) -> list[str | None]:
    """Return what each round of a model refit on its own samples alarms about."""
    rng = np.random.default_rng(seed)
    texts, held_out = split(rng)
    written = texts[:N_PER_ROUND]
    reference = measure(written, held_out)
    found = []
    for _ in range(n_rounds):
        written = Trigrams(written).write(N_PER_ROUND, temperature, rng)
        found.append(why_alarm(measure(written, held_out), reference))
    return found


@pytest.mark.statistical
def test_a_collapsing_model_alarms_by_round_2_when_cold_and_by_round_3_when_not():
    cold, warm = collapse(0.7, 2, seed=1), collapse(1.0, 3, seed=1)
    assert any(cold), cold
    assert any(warm), warm
    assert "distinct-2" in str(warm[2])  # at T = 1 the Vendi score hardly moves


@pytest.mark.statistical
def test_fresh_real_text_never_alarms_in_five_rounds():
    texts, held_out = split(np.random.default_rng(1))
    n = (len(texts)) // 6
    assert len(sentences()) > 6_000
    reference = measure(texts[:n], held_out)
    for k in range(1, 6):
        found = measure(texts[k * n : (k + 1) * n], held_out, most_bigrams=bigrams_for(reference))
        assert why_alarm(found, reference) is None, (k, found)


@pytest.mark.statistical
def test_a_collapse_stops_the_rounds_by_round_2():
    state, n_rounds = Alarms(), 0
    rng = np.random.default_rng(2)
    texts, held_out = split(rng)
    written = texts[:N_PER_ROUND]
    state = state.after(measure(written, held_out))
    while state.gives_rows:
        written = Trigrams(written).write(N_PER_ROUND, 0.7, rng)
        state = state.after(measure(written, held_out))
        n_rounds += 1
    assert n_rounds <= 2
    assert state.why is not None


def test_after_two_clean_rounds_rows_come_again():
    state = SaoState(rounds=Rounds(limit=9), alarms=Alarms(reference=FULL))
    found = audit([], np.random.default_rng(0))

    def after(coverage: Coverage) -> SaoState:
        lessons = RoundLessons(
            found=found, coverage=coverage, agreement_with_frozen=None, standing=None
        )
        return after_round(state, lessons, [])

    state = after(BAD)
    assert not state.alarms.gives_rows
    state = after(FULL)
    assert not state.alarms.gives_rows
    state = after(FULL)
    assert state.alarms.gives_rows
    assert state.rounds.why_ended is None, "an alarm that is over ends no rounds"
