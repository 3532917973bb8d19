"""Of whom it is said that thoughts helped: not of a sentence that is right about all and about none."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from convergence_core.rlp.bins import N_BINS, normalized
from convergence_core.rlp.gain import (
    LEVEL,
    EProcess,
    e_value,
    information_gain,
    resolutions,
    shows_help,
)
from convergence_core.rlp.learner import RlpState, RlpUpdate, learn
from convergence_core.rlp.outcomes import CandidateOutcomes
from convergence_core.rlp.replay import Replay
from tests.rlp.thoughts import a_commitment, a_thought, binned_normal, helps

CRASHES = 0.35
N_SEEDS, N_GENERATIONS, N_CANDIDATES = 200, 16, 6
HABIT = normalized([CRASHES, 0, 0, 0, 0, 0.05, 0.15, 0.25, 0.15, 0.05])
"""How often each reward comes over all settings."""
SHAPE = binned_normal(0.46, 0.35)
"""The baseline: mean and deviation are right, and a normal prediction has no room for crashes."""
KNOWING = {b: normalized(0.6 * np.eye(N_BINS)[b] + 0.4 * HABIT) for b in range(N_BINS)}

Forecast = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""Outcomes of a generation → what a thought forecasts of each candidate, (m, N_BINS)."""


def same(observed: np.ndarray, _: np.random.Generator) -> np.ndarray:
    """A third of the settings crash, and the others earn about .7."""
    return np.tile(HABIT, (len(observed), 1))


def good(observed: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return np.array([KNOWING[int(b)] for b in observed])


def dealt(observed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Forecasts of the right shape, dealt to candidates by chance."""
    return good(rng.permutation(observed), rng)


def guessed(observed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Half of the candidates are called better; outcomes come in such halves too, see ``halves``."""
    high = binned_normal(0.7, 0.15), normalized(0.9 * np.eye(N_BINS)[0] + 0.1 / N_BINS)
    first, second = high if rng.random() < 0.5 else high[::-1]
    n = len(observed) // 2
    return np.array([first] * n + [second] * (len(observed) - n))


def rewards(rng: np.random.Generator) -> np.ndarray:
    """Bins of candidates that crash or not, each for itself."""
    return rng.choice(N_BINS, N_CANDIDATES, p=HABIT)


def halves(rng: np.random.Generator) -> np.ndarray:
    """Bins of two kinds of candidates, of which one crashes as a whole."""
    kinds = np.array([0, 7])[rng.permutation(2)]
    return np.repeat(kinds, N_CANDIDATES // 2)


def course(
    forecast: Forecast, seed: int, world: Callable[[np.random.Generator], np.ndarray] = rewards
) -> tuple[float, EProcess, EProcess]:
    """Return mean gain, evidence against the baseline and of resolution over a run's generations."""
    rng = np.random.default_rng(seed)
    gained, resolved = [], []
    for _ in range(N_GENERATIONS):
        observed = world(rng)
        told = forecast(observed, rng)
        gained.append([information_gain(p, SHAPE, b) for p, b in zip(told, observed, strict=True)])
        resolved.append(resolutions(told, observed.tolist()))
    return (
        float(np.mean(gained)),
        EProcess.of(e_value(found) for found in gained),
        EProcess.of(e_value([*found]) for found in resolved),
    )


def is_credited(found: tuple[float, EProcess, EProcess]) -> bool:
    mean, evidence, resolution = found
    return shows_help(mean, evidence.top_e_value, resolution.top_e_value)


def learned(forecast: Forecast, n_generations: int) -> tuple[RlpState, list[RlpUpdate]]:
    """Return the state after as many generations as in ``course``, and the lesson of each."""
    rng = np.random.default_rng(0)
    state, replay, lessons = RlpState.first(("s",)), Replay(), []
    names = [f"c{i}" for i in range(N_CANDIDATES)]
    for generation in range(n_generations):
        observed = rewards(rng)
        commitment = a_commitment(
            dict(zip(names, forecast(observed, rng), strict=True)),
            dict.fromkeys(names, SHAPE),
            thought=a_thought(f"t{generation}", generation=generation, log_old=float(np.log(0.5))),
        )
        outcomes = CandidateOutcomes(observed=dict(zip(names, map(int, observed), strict=True)))
        state, lesson, replay = learn(
            state, commitment, outcomes, next_features=np.ones(7), rng=np.random.default_rng(1),
            replay=replay,
        )  # fmt: skip
        lessons.append(lesson)
    return state, lessons


def is_surely_more(n_hits: int, n: int, rate: float) -> bool:
    return binomtest(n_hits, n, rate, "greater").pvalue < 1e-3


@pytest.mark.statistical
def test_a_sentence_that_repairs_the_baselines_shape_is_not_said_to_help():
    found = [course(same, seed) for seed in range(N_SEEDS)]
    # It beats the baseline for sure, which is not enough.
    beats = sum(gain > 0 and e.top_e_value >= 1 / LEVEL for gain, e, _ in found)
    assert is_surely_more(beats, N_SEEDS, 0.8), beats
    credited = sum(is_credited(one) for one in found)
    # At a rate of 1 in 20 as few as none of 200 has a chance of 4e-5.
    assert credited == 0, credited


@pytest.mark.statistical
def test_a_thinker_that_tells_candidates_apart_is_said_to_help():
    credited = sum(is_credited(course(good, seed)) for seed in range(N_SEEDS))
    assert is_surely_more(credited, N_SEEDS, 0.8), credited


@pytest.mark.statistical
@pytest.mark.parametrize(("forecast", "world"), [(dealt, rewards), (guessed, halves)])
def test_forecasts_dealt_by_chance_show_resolution_at_most_once_in_twenty(
    forecast: Forecast, world: Callable[[np.random.Generator], np.ndarray]
):
    found = [course(forecast, seed, world)[2] for seed in range(N_SEEDS)]
    passed = sum(one.top_e_value >= 1 / LEVEL for one in found)
    assert not is_surely_more(passed, N_SEEDS, LEVEL), (passed, N_SEEDS)


def test_a_run_learns_of_both_kinds_of_evidence_and_keeps_them():
    state, lessons = learned(good, 3)
    for lesson in lessons:
        (name,) = lesson.e_values
        told = [row for row in lesson.rows if row.thought_id == name]
        forecasts = np.array([row.forecast for row in told])
        expected = resolutions(forecasts, [row.observed for row in told])
        assert [row.resolution for row in told] == pytest.approx([*expected])
        assert lesson.resolution_e_values[name] == pytest.approx(e_value([*expected]))
    assert state.resolution == EProcess.of(
        value for lesson in lessons for value in lesson.resolution_e_values.values()
    )
    assert state.evidence == EProcess.of(lesson.e_value for lesson in lessons)
    again = RlpState.from_json(state.to_json(), {})
    assert (again.evidence, again.resolution) == (state.evidence, state.resolution)
    assert learned(same, 3)[0].resolution.top_e_value == 1.0
    long, _ = learned(good, 16)
    assert helps(long)
    # What was saved before resolution was measured has no evidence of it, and claims nothing.
    old: Any = long.to_json()
    del old["resolution"]
    assert not helps(RlpState.from_json(old, {}))


def test_the_e_value_of_resolution_is_one_over_all_deals():
    rng = np.random.default_rng(1)
    for m in (1, 2, 4):
        forecasts, observed = rng.dirichlet(np.ones(N_BINS), m), rng.integers(N_BINS, size=m)
        found = [
            e_value([*resolutions(forecasts[list(deal)], observed.tolist())])
            for deal in permutations(range(m))
        ]
        assert np.mean(found) == pytest.approx(1.0, abs=1e-12)
    # One candidate, or one forecast for all, tells nothing apart.
    assert resolutions(HABIT[None], [3]) == pytest.approx([0.0])
    assert resolutions(np.tile(HABIT, (5, 1)), [0, 9, 7, 7, 0]) == pytest.approx(np.zeros(5))
    assert resolutions(np.eye(2), [0, 1]) == pytest.approx(
        [information_gain(np.array([1.0, 0.0]), np.array([0.5, 0.5]), 0)] * 2
    )


def test_help_is_claimed_only_on_both_kinds_of_evidence_and_with_a_gain():
    assert shows_help(0.1, 20.0, 20.0)
    assert not shows_help(0.1, 1e9, 19.9)
    assert not shows_help(0.1, 19.9, 1e9)
    assert not shows_help(0.0, 1e9, 1e9)
    assert not shows_help(None, 1e9, 1e9)


def test_evidence_multiplies_over_generations_and_keeps_its_highest():
    found = EProcess.of([4.0, None, 3.0, 0.25])
    assert found.e_value == pytest.approx(3.0)
    assert found.top_e_value == pytest.approx(12.0)
    assert EProcess.of([0.5]).top_e_value == 1.0
    assert EProcess.of([]) == EProcess()
