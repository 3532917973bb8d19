"""Forecasts as quantiles, their gain, and how often chance looks like skill."""

import math
from collections.abc import Callable
from itertools import pairwise, permutations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binomtest

from convergence_core.rlp.gain import (
    FLOOR,
    LEVEL,
    NARROWEST,
    EProcess,
    baseline_density,
    e_value,
    forecast_density,
    information_gain,
    interval_of,
    resolutions,
    shows_help,
)
from convergence_core.rlp.quantiles import Quantiles
from tests.rlp.thoughts import normal

N_SEEDS, N_GENERATIONS, N_CANDIDATES = 200, 16, 6
BASE = Quantiles(0.3, 0.55, 0.7)


# -- quantiles


@pytest.mark.parametrize(
    "q", [normal(0.5, 0.1), Quantiles(0.2, 0.6, 0.7), Quantiles(0.5, 0.5, 0.9)]
)
def test_a_density_has_its_quantiles_mean_and_variance(q: Quantiles):
    def moment(f: Callable[[float], float], low: float = -2.0, high: float = 3.0) -> float:
        ends = sorted({low, high, *(x for x in (q.low, q.median, q.high) if low < x < high)})
        parts = pairwise(ends)
        return float(sum(quad(lambda y: f(y) * q.density(y), a, b)[0] for a, b in parts))

    assert moment(lambda _: 1.0) == pytest.approx(1.0, abs=1e-6)
    below = [moment(lambda _: 1.0, high=end) for end in (q.low, q.median, q.high)]
    expected = [0.1 if q.low < q.median else 0.5, 0.5, 0.9]
    assert below == pytest.approx(expected, abs=1e-3)
    mean = moment(lambda y: y)
    assert q.mean == pytest.approx(mean, abs=1e-5)
    assert q.variance == pytest.approx(moment(lambda y: (y - mean) ** 2), abs=1e-5)


def test_three_numbers_are_a_forecast_and_nothing_else_is():
    assert Quantiles.of([0.9, 0.2, 1.4]) == Quantiles(0.2, 0.9, 1.0)
    assert Quantiles.of([0, 0.5, 1]) == Quantiles(0.0, 0.5, 1.0)
    for wrong in (
        [0.1, 0.2],
        [0.1, 0.2, 0.3, 0.4],
        [0.1, "x", 0.3],
        [True, 0.1, 0.2],
        [0, 1, math.inf],
    ):
        with pytest.raises(ValueError, match="three numbers"):
            Quantiles.of(wrong)


# -- gain


def test_the_gain_is_bounded_and_keeps_the_mean_of_its_exponential_at_1():
    for forecast in (BASE, normal(0.9, 0.001), normal(0.4, 0.3), Quantiles(0.0, 0.0, 0.0)):
        grid = (np.arange(40_000) + 0.5) / 40_000
        base = np.array([baseline_density(BASE, y) for y in grid])
        gains = [
            information_gain(forecast_density(forecast, BASE, y), b)
            for y, b in zip(grid, base, strict=True)
        ]
        inside = np.mean([forecast_density(forecast, BASE, y) for y in grid])
        # What a forecast gives to scores beyond [0, 1] is lost to it.
        assert np.mean(base * np.exp(gains)) == pytest.approx(
            0.98 * inside + 0.02 * base.mean(), abs=1e-6
        )
        assert min(gains) >= FLOOR - 1e-12
    assert information_gain(0.4, 0.4) == 0.0
    assert information_gain(0.0, 0.5) == pytest.approx(FLOOR)


def test_no_bet_on_a_point_is_narrower_than_a_tenth_of_the_posterior():
    point, sd = Quantiles(0.55, 0.55, 0.55), math.sqrt(BASE.variance)
    peak = 1 / (NARROWEST * sd * math.sqrt(2 * math.pi))
    assert forecast_density(point, BASE, 0.55) == pytest.approx(peak)
    assert forecast_density(normal(0.5, 0.2), BASE, 0.5) == pytest.approx(
        normal(0.5, 0.2).density(0.5)
    )


@pytest.mark.statistical
def test_sounding_more_or_less_sure_than_one_is_earns_less():
    rng = np.random.default_rng(3)
    mean, y = rng.uniform(0.3, 0.7, 4000), rng.standard_normal(4000)
    outcomes = mean + 0.05 * y

    def earned(sd: float) -> float:
        posterior = normal(0.5, 0.15)
        return float(np.mean([
            information_gain(forecast_density(normal(m, sd), posterior, o), baseline_density(posterior, o))
            for m, o in zip(mean, outcomes, strict=True)
        ]))  # fmt: skip

    honest = earned(0.05)
    assert honest > 0.5
    for sd in (0.02, 0.03, 0.1, 0.2):
        assert earned(sd) < honest, sd


def test_a_mean_has_an_error_from_two_on():
    assert interval_of([1.0]) is None
    assert interval_of([0.0, 1.0]) == pytest.approx((0.5, 0.5))


# -- evidence


@pytest.mark.statistical
def test_products_within_a_generation_would_raise_false_alarms_and_means_do_not():
    """One uniform drives all four outcomes; the thought knows nothing and bets anyway."""
    rng = np.random.default_rng(5)
    high = 1.0 / (1.0 + math.exp(-0.8))
    alarms = {"mean": 0, "product": 0}
    n_runs, n_generations = 4000, 30
    for _ in range(n_runs):
        log_e = {"mean": 0.0, "product": 0.0}
        is_alarm = {"mean": False, "product": False}
        for hit in rng.random(n_generations) < 0.5:
            gains = [information_gain(high if hit else 1.0 - high, 0.5)] * 4
            log_e["mean"] += math.log(e_value(gains))
            log_e["product"] += sum(gains)
            for form, value in log_e.items():
                is_alarm[form] |= value >= math.log(20.0)
        for form, alarm in is_alarm.items():
            alarms[form] += alarm
    assert alarms["mean"] / n_runs <= 0.05, alarms
    assert alarms["product"] / n_runs > 0.2, alarms


Forecast = Callable[[np.ndarray, np.random.Generator], list[Quantiles]]
"""Scores of a generation → what a thought forecasts of each candidate."""
POSTERIOR = normal(0.45, 0.3)
"""Mean and deviation are right, but scores are either near .1 or near .7: the shape is wrong."""


def scores(rng: np.random.Generator) -> np.ndarray:
    high = rng.random(N_CANDIDATES) < 0.6
    return np.asarray(np.where(high, 0.7, 0.1) + 0.05 * rng.standard_normal(N_CANDIDATES))


def same(observed: np.ndarray, _: np.random.Generator) -> list[Quantiles]:
    """Most settings earn about .7, says a sentence that is the same of all."""
    return [Quantiles(0.1, 0.66, 0.74)] * len(observed)


def good(observed: np.ndarray, rng: np.random.Generator) -> list[Quantiles]:
    return [normal(y + 0.05 * rng.standard_normal(), 0.08) for y in observed]


def permuted(observed: np.ndarray, rng: np.random.Generator) -> list[Quantiles]:
    """Forecasts of the right shape, dealt to candidates by chance."""
    return good(rng.permutation(observed), rng)


def overconfident(observed: np.ndarray, rng: np.random.Generator) -> list[Quantiles]:
    return [normal(rng.choice([0.1, 0.7]), 0.01) for _ in observed]


def course(forecast: Forecast, seed: int) -> tuple[float, EProcess, EProcess]:
    """Return mean gain, evidence against the posterior and of resolution over a run's generations."""
    rng = np.random.default_rng(seed)
    gained, resolved = [], []
    for _ in range(N_GENERATIONS):
        observed = scores(rng)
        told = forecast(observed, rng)
        densities = np.array([[forecast_density(q, POSTERIOR, y) for y in observed] for q in told])
        gained.append([
            information_gain(p, baseline_density(POSTERIOR, y))
            for p, y in zip(np.diag(densities), observed, strict=True)
        ])  # fmt: skip
        resolved.append([*resolutions(densities)])
    return (
        float(np.mean(gained)),
        EProcess.of(e_value(gains) for gains in gained),
        EProcess.of(e_value(gains) for gains in resolved),
    )


def credited(forecast: Forecast) -> int:
    """Return in how many runs help is claimed."""
    runs = (course(forecast, seed) for seed in range(N_SEEDS))
    return sum(shows_help(mean, e.top_e_value, r.top_e_value) for mean, e, r in runs)


def is_surely_more(n_hits: int, n: int, rate: float) -> bool:
    return binomtest(n_hits, n, rate, "greater").pvalue < 1e-3


@pytest.mark.statistical
def test_a_sentence_that_repairs_the_posteriors_shape_is_not_said_to_help():
    runs = [course(same, seed) for seed in range(N_SEEDS)]
    # It beats the posterior for sure, which is not enough.
    beats = sum(gain > 0 and e.top_e_value >= 1 / LEVEL for gain, e, _ in runs)
    assert is_surely_more(beats, N_SEEDS, 0.8), beats
    assert credited(same) == 0


@pytest.mark.statistical
def test_a_thinker_that_tells_candidates_apart_is_said_to_help():
    assert is_surely_more(credited(good), N_SEEDS, 0.8)


@pytest.mark.statistical
@pytest.mark.parametrize("forecast", [permuted, overconfident])
@pytest.mark.slow
def test_forecasts_dealt_by_chance_show_resolution_at_most_once_in_twenty(forecast: Forecast):
    passed = sum(course(forecast, seed)[2].top_e_value >= 1 / LEVEL for seed in range(N_SEEDS))
    assert not is_surely_more(passed, N_SEEDS, LEVEL), passed
    assert not is_surely_more(credited(forecast), N_SEEDS, LEVEL)


def test_the_e_value_of_resolution_is_one_over_all_deals():
    rng = np.random.default_rng(1)
    for m in (1, 2, 4):
        densities = rng.random((m, m))
        found = [e_value([*resolutions(densities[list(deal)])]) for deal in permutations(range(m))]
        assert np.mean(found) == pytest.approx(1.0, abs=1e-12)
    assert resolutions(np.tile(rng.random(3), (3, 1))) == pytest.approx(np.zeros(3), abs=1e-12)


def test_an_e_process_keeps_its_highest():
    process = EProcess.of([2.0, None, 3.0, 0.5])
    assert (process.e_value, process.top_e_value) == pytest.approx((3.0, 6.0))
