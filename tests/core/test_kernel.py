"""The covariance over a mixed space: a covariance, of the stated form, with the stated gradient."""

import math

import numpy as np
import pytest

from convergence_core.posterior.kernel import (
    MANY_VALUES,
    Distances,
    Layout,
    component,
    covariance,
    gradient,
    log_slope,
    product,
    smooth_variance,
)
from convergence_core.space import Choice, Float, Space
from convergence_core.space.encoding import Encoding, Points
from tests.support.dense_process import by_hand
from tests.support.random_spaces import points, random_space


def placed(seed: int, n: int) -> tuple[Encoding, Points]:
    space = random_space(seed)
    encoding = Encoding.of(space)
    return encoding, encoding.encode(points(space, n, np.random.default_rng(seed)))


def drawn(layout: Layout, seed: int, spread: float = 1.5) -> np.ndarray:
    """Log hyper-parameters some prior sds away from the medians."""
    lots = np.random.default_rng(seed).standard_normal(layout.size)
    return np.asarray(layout.prior_mean + spread * lots * layout.prior_sd, np.float64)


@pytest.mark.parametrize("seed", range(12))
def test_the_covariance_is_that_of_the_formula(seed):
    encoding, places = placed(seed, 9)
    other = placed(seed, 14)[1].take(np.arange(2, 8))
    layout = Layout.of(encoding, own_effect=True, additive=True)
    log_params = drawn(layout, seed)
    for b in (places, other):
        distances = Distances.between(places, b, encoding.distances)
        expected = by_hand(encoding, places, b, log_params, additive=layout.additive)
        found = covariance(layout, log_params, distances)
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-300)
        parts = [component(layout, log_params, distances, d) for d in range(layout.n_dims)]
        whole = product(layout, log_params, distances)
        assert whole == pytest.approx(np.prod(parts, axis=0), rel=1e-10, abs=1e-300)
    assert smooth_variance(layout, log_params) == pytest.approx(
        by_hand(encoding, places, places, log_params, additive=layout.additive)[0, 0]
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_covariance_is_positive_semi_definite(seed):
    encoding, places = placed(seed, 60)
    layout = Layout.of(encoding, own_effect=True, additive=True)
    log_params = drawn(layout, seed, spread=2.5)
    distances = Distances.between(places, places, encoding.distances)
    parts = [component(layout, log_params, distances, d) for d in range(layout.n_dims)]
    total = covariance(layout, log_params, distances)
    for matrix in (*parts, total):
        assert np.array_equal(matrix, matrix.T)
        values = np.linalg.eigvalsh(matrix)
        assert values[0] > -1e-9 * values[-1]


@pytest.mark.parametrize("n_values", [2, MANY_VALUES, MANY_VALUES + 1, 100])
@pytest.mark.parametrize("alone", [True, False])
def test_where_a_choice_has_many_values_every_dimension_has_a_term_of_its_own(n_values, alone):
    parameters = {"template": Choice(kind="categorical", choices=tuple(range(n_values)))}
    if not alone:
        space = Space(parameters={**parameters, "x": Float(min=0, max=1)})
    else:
        space = Space(parameters=parameters)
    encoding = Encoding.of(space)
    layout = Layout.of(encoding, own_effect=True, additive=True)
    is_additive = n_values > MANY_VALUES and not alone
    assert layout.additive == ((0, 1) if is_additive else ())
    assert layout.size == layout.n_dims + 2 + len(layout.additive)
    plain = Layout.of(encoding, own_effect=True)
    assert plain.additive == ()
    assert plain.size == layout.n_dims + 2
    assert plain.prior_mean[-1] == layout.prior_mean[-1]
    assert plain.prior_sd[plain.product] == layout.prior_sd[layout.product]


@pytest.mark.parametrize("seed", range(12))
def test_the_gradient_is_that_of_finite_differences(seed):
    encoding, places = placed(seed, 10)
    layout = Layout.of(encoding, own_effect=True, additive=True)
    log_params = drawn(layout, seed, spread=1.0)
    distances = Distances.between(places, places, encoding.distances)
    lots = np.random.default_rng(seed).standard_normal((len(places), len(places)))
    outer = lots + lots.T

    def value(params: np.ndarray) -> float:
        total = covariance(layout, params, distances)
        return float((outer * (total + math.exp(params[-1]) * np.eye(len(places)))).sum())

    found = gradient(layout, log_params, distances, outer)
    step = 1e-5
    for k in range(layout.size):
        ahead, behind = log_params.copy(), log_params.copy()
        ahead[k] += step
        behind[k] -= step
        expected = (value(ahead) - value(behind)) / (2 * step)
        assert found[k] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    for d in range(layout.n_dims):
        ahead = log_params.copy()
        ahead[d] += step
        there = np.log(component(layout, ahead, distances, d))
        moved = there - np.log(component(layout, log_params, distances, d))
        slope = log_slope(layout, log_params, distances, d)
        assert slope == pytest.approx(moved / step, rel=1e-3, abs=1e-3)
