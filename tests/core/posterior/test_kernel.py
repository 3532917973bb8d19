"""The covariance over a mixed space: a covariance, of the stated form, with the stated gradient."""

import math

import numpy as np
import pytest

from convergence_core.posterior.kernel import Kernel
from convergence_core.space.arrays import Encoding, Points
from tests.core.posterior.dense_process import by_hand
from tests.support.random_spaces import points, random_space


def placed(seed: int, n: int) -> tuple[Encoding, Points]:
    space = random_space(seed)
    encoding = Encoding.of(space)
    return encoding, encoding.encode(points(space, n, np.random.default_rng(seed)))


def drawn(kernel: Kernel, seed: int, spread: float = 1.5) -> np.ndarray:
    """Log hyper-parameters some prior sds away from the medians."""
    lots = np.random.default_rng(seed).standard_normal(len(kernel.prior_mean))
    return np.asarray(kernel.prior_mean + spread * lots * kernel.prior_sd, np.float64)


def correlations(kernel: Kernel, log_params: np.ndarray, a: Points, b: Points) -> list[np.ndarray]:
    distances, scale = kernel.distances(a, b), np.exp(log_params)
    r = [distance / scale[d] for d, distance in enumerate(distances.numbers)]
    weights = scale[kernel.n_numbers :]
    of_choices = [np.exp(-w * x) for w, x in zip(weights, distances.choices, strict=False)]
    return [*((1.0 + x + x * x / 3.0) * np.exp(-x) for x in r), *of_choices]


@pytest.mark.parametrize("seed", range(12))
def test_the_covariance_is_that_of_the_formula(seed):
    encoding, places = placed(seed, 9)
    other = placed(seed, 14)[1].take(np.arange(2, 8))
    kernel = Kernel.of(encoding, has_nugget=True)
    log_params = drawn(kernel, seed)
    for b in (places, other):
        expected = by_hand(encoding, places, b, log_params)
        found = kernel.between(log_params, places, b)
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-300)
        parts = correlations(kernel, log_params, places, b)
        whole = kernel.smooth_variance(log_params) * np.prod(parts, axis=0)
        assert found == pytest.approx(whole, rel=1e-10, abs=1e-300)
    assert kernel.smooth_variance(log_params) == pytest.approx(
        by_hand(encoding, places, places, log_params)[0, 0]
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_covariance_is_positive_semi_definite(seed):
    encoding, places = placed(seed, 60)
    kernel = Kernel.of(encoding, has_nugget=True)
    log_params = drawn(kernel, seed, spread=2.5)
    total = kernel.between(log_params, places, places)
    for matrix in (*correlations(kernel, log_params, places, places), total):
        assert np.array_equal(matrix, matrix.T)
        values = np.linalg.eigvalsh(matrix)
        assert values[0] > -1e-9 * values[-1]


@pytest.mark.parametrize("seed", range(12))
def test_the_gradient_is_that_of_finite_differences(seed):
    encoding, places = placed(seed, 10)
    kernel = Kernel.of(encoding, has_nugget=True)
    log_params = drawn(kernel, seed, spread=1.0)
    distances = kernel.distances(places, places)
    lots = np.random.default_rng(seed).standard_normal((len(places), len(places)))
    outer = lots + lots.T

    def value(params: np.ndarray) -> float:
        total = kernel.covariance(params, distances)
        return float((outer * (total + math.exp(params[-1]) * np.eye(len(places)))).sum())

    below = np.tril_indices(len(places), -1)
    pairs = distances.of_pairs(below)
    weighted = 2.0 * outer[below] * kernel.covariance(log_params, pairs)
    found = kernel.gradient(log_params, pairs, weighted, float(np.trace(outer)))
    step = 1e-5
    for k in range(len(log_params)):
        ahead, behind = log_params.copy(), log_params.copy()
        ahead[k] += step
        behind[k] -= step
        expected = (value(ahead) - value(behind)) / (2 * step)
        assert found[k] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    for d in range(kernel.n_dims):
        ahead = log_params.copy()
        ahead[d] += step
        there = np.log(correlations(kernel, ahead, places, places)[d])
        moved = there - np.log(correlations(kernel, log_params, places, places)[d])
        slope = kernel.log_slope(log_params, distances, d)
        assert slope == pytest.approx(moved / step, rel=1e-3, abs=1e-3)
