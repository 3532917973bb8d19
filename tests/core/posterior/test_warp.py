"""Warped rewards: a monotone function with an inverse, and beliefs told in rewards."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from convergence_core.posterior.gaussian_process import (
    MEASURED_NOISE,
    GaussianProcess,
    matrix_root,
)
from convergence_core.posterior.kernel import Kernel
from convergence_core.posterior.warped_posterior import KNEE, Warp, WarpedPosterior
from convergence_core.space import Float, Space
from convergence_core.space.arrays import Encoding, Points
from tests.core.posterior.dense_process import by_hand

EXAMPLES = settings(max_examples=80)
REWARDS = st.lists(
    st.integers(-1000, 2000).map(lambda n: n / 1000) | st.sampled_from([0.0, 0.5, 1.0]),
    min_size=1,
    max_size=30,
)
CRASHES = np.append(np.linspace(0.6, 0.9, 18), [0.0, 0.0])


@EXAMPLES
@given(REWARDS)
def test_the_warp_is_monotone_and_has_an_inverse(rewards):
    warp = Warp.learn(np.array(rewards))
    # Within what 50 units of logarithm reach; see ``backward``.
    x = warp.center + warp.spread * np.concatenate([-np.geomspace(1e6, 1e-3), np.linspace(0, 9)])
    z = warp.forward(x)
    assert (np.diff(z) > 0).all()
    assert warp.backward(z) == pytest.approx(x, rel=1e-8, abs=1e-8 * warp.spread)


@EXAMPLES
@given(REWARDS)
def test_learned_rewards_have_mean_0_and_sd_1_unless_all_are_equal(rewards):
    y = np.array(rewards)
    z = Warp.learn(y).forward(y)
    assert np.isfinite(z).all()
    assert z.mean() == pytest.approx(0.0, abs=1e-9)
    assert z.std() == pytest.approx(float(np.ptp(y) > 0), rel=1e-9, abs=1e-9)


@EXAMPLES
@given(REWARDS, st.floats(-40, 6))
def test_the_slope_is_that_of_finite_differences(rewards, units):
    warp = Warp.learn(np.array(rewards))
    x, step = warp.center + units * warp.spread, 1e-5 * warp.spread
    if abs(units - KNEE) < 1e-3:
        return
    ahead, behind = warp.forward(np.array([x + step, x - step]))
    expected = (ahead - behind) / (2 * step)
    assert warp.slope(np.array([x]))[0] == pytest.approx(expected, rel=1e-4)
    assert warp.slope(np.array([warp.center]))[0] == pytest.approx(1 / warp.scale)


def test_above_the_knee_rewards_keep_their_scale_and_far_below_it_is_logarithmic():
    warp = Warp.learn(CRASHES)
    a, b, c = warp.forward(np.array([0.7, 0.8, 0.9]))
    assert b - a == pytest.approx(c - b)
    assert b - a == pytest.approx(0.1 / warp.scale)
    far, farther, farthest = warp.forward(np.array([-1e3, -1e4, -1e5]))
    assert farther - far == pytest.approx(farthest - farther, rel=1e-2)


@pytest.mark.parametrize("crash", [-10.0, -1e3, -1e6])
def test_a_crash_far_below_hardly_moves_the_others(crash):
    good = np.linspace(0.6, 0.9, 30)
    all_of_them = np.append(good, crash)
    with_crash = Warp.learn(all_of_them)
    straight = (all_of_them - all_of_them.mean()) / all_of_them.std()
    spread = np.ptp(with_crash.forward(good))
    assert np.ptp(straight[:-1]) < 0.2
    assert spread > 0.2 * np.ptp(Warp.learn(good).forward(good))
    assert with_crash.spread == pytest.approx(Warp.learn(good).spread, rel=0.1)


# -- rewards that tell no scale ------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0, -1e6, 0.1 + 0.2])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_equal_rewards_are_taken_for_the_guess(value, n):
    warp = Warp.learn(np.full(n, value), guess=0.25)
    assert warp.scale == 0.25
    assert warp.forward(np.array([value, value + 0.25])) == pytest.approx([0.0, 1.0], abs=1e-6)


@pytest.mark.parametrize(
    "rewards",
    [
        [*[0.8] * 36, *[0.1] * 4],
        [*[1.0] * 20, *[0.0] * 19],
        [*[0.8 + 1e-15] * 15, *[0.8] * 15, 0.1, 0.2],
        [*[1.0] * 9, 0.0],
        [0.0, 1.0, 1.0],
    ],
    ids=["few crashes", "halves", "rounding", "one crash", "three"],
)
def test_where_the_better_half_is_one_plateau_the_others_are_not_compressed_away(rewards):
    y = np.array(rewards)
    warp = Warp.learn(y, guess=0.25)
    assert 0.3 * y.std() < warp.scale < 3 * y.std()
    assert np.abs(warp.forward(y)).max() < 5.0
    assert (warp.slope(y) < 3 / y.std()).all()


# -- beliefs -------------------------------------------------------------------------------------


def beliefs(bounds: tuple[float, float] | None = (0.0, 1.0), **parts: Any) -> WarpedPosterior:
    """Of twelve candidates along a line, every other one seen, and one of them a crash."""
    space = Space(parameters={"x": Float(min=0, max=1)})
    encoding = Encoding.of(space)
    x = np.linspace(0, 1, 12)
    seen = np.arange(0, 12, 2)
    y = 0.5 + 0.3 * np.sin(5 * x[seen])
    y[2] = 0.0
    warp = Warp.learn(y)
    places = Points(x[:, None], np.zeros((12, 0), dtype=np.intp))
    process = GaussianProcess.fit(
        Kernel.of(encoding, has_nugget=True),
        places.take(seen),
        warp.forward(y),
        0.05 * np.eye(len(seen)),
        noise=MEASURED_NOISE,
        n_steps=5,
    )
    rows = np.full(12, -1, dtype=np.intp)
    rows[seen] = np.arange(len(seen))
    known: dict[str, Any] = {
        "ids": tuple(f"c{i}" for i in range(12)),
        "process": process,
        "warp": warp,
        "points": places,
        "rows": rows,
        "bounds": bounds,
    }
    return WarpedPosterior(**(known | parts))


@pytest.mark.parametrize("bounds", [(0.0, 1.0), None])
def test_means_and_sds_are_those_of_many_draws(bounds):
    told = beliefs(bounds)
    drawn = told.draws(np.random.default_rng(0), 40_000)
    assert told.mean == pytest.approx(drawn.mean(axis=0), abs=0.01)
    assert told.sd == pytest.approx(drawn.std(axis=0), rel=0.05, abs=0.005)
    if bounds is not None:
        assert drawn.min() >= bounds[0]
        assert drawn.max() <= bounds[1]


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_intervals_hold_their_share_of_draws(level):
    told = beliefs(bounds=None)
    low, high = told.interval(level)
    drawn = told.draws(np.random.default_rng(1), 20_000)
    inside = ((drawn >= low) & (drawn <= high)).mean(axis=0)
    assert inside == pytest.approx(np.full(12, level), abs=5 * math.sqrt(0.25 / 20_000))
    assert (beliefs().interval(0.99)[0] >= 0.0).all()
    assert (beliefs().interval(0.99)[1] <= 1.0).all()


def test_warped_draws_have_the_covariance_of_the_process():
    told = beliefs()
    assert told.process is not None
    assert told.points is not None
    mean, covariance = told.process.joint(told.points, told.rows)
    n = 40_000
    drawn = told.warped_draws(np.random.default_rng(2), n)
    sd = np.sqrt(np.diag(covariance))
    assert drawn.mean(axis=0) == pytest.approx(mean, abs=5 * sd.max() / math.sqrt(n))
    found = np.cov(drawn.T)
    assert found == pytest.approx(covariance, abs=6 * sd.max() ** 2 / math.sqrt(n))
    alone, alone_sd = told.marginals
    assert alone == pytest.approx(mean)
    assert alone_sd == pytest.approx(sd, rel=1e-6)


def test_the_probability_of_being_within_delta_of_the_best():
    told = beliefs()
    share = [
        told.probability_within(np.random.default_rng(4), 4000, index=i, delta=0.0)
        for i in range(12)
    ]
    assert sum(share) == pytest.approx(1.0, abs=0.05)  # ties at a bound count for each
    best = int(np.argmax(share))
    wide = told.probability_within(np.random.default_rng(4), 4000, index=best, delta=0.1)
    assert wide > share[best]
    assert told.probability_within(np.random.default_rng(4), 50, index=4, delta=2.0) == 1.0
    crash = told.probability_within(np.random.default_rng(4), 4000, index=4, delta=0.05)
    assert crash < 0.05


@pytest.mark.parametrize(
    ("bounds", "middle"), [((0.0, 1.0), 0.5), ((-2.0, 4.0), 1.0), (None, 0.0)]
)
def test_before_any_reward_all_are_the_same_independent_guess(bounds, middle):
    told = WarpedPosterior.of_nothing(("a", "b", "c"), bounds)
    low, high = bounds or (-1.0, 1.0)
    assert told.mean == pytest.approx(np.full(3, told.mean[0]))
    assert told.mean[0] == pytest.approx(middle, abs=0.05 * (high - low))
    assert 0.1 * (high - low) < told.sd[0] < 0.5 * (high - low)
    drawn = told.draws(np.random.default_rng(0), 4000)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 0.08
    shares = [
        told.probability_within(np.random.default_rng(0), 4000, index=i, delta=0.0)
        for i in range(3)
    ]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.05)
    assert told.marginals[1].tolist() == [1.0, 1.0, 1.0]


def test_the_probability_of_a_higher_mean_is_the_share_of_draws():
    told = beliefs(bounds=None)
    drawn = told.warped_draws(np.random.default_rng(5), 20_000)
    for index in (0, 4, 7):
        above = told.probability_above(index)
        assert above[index] == 1.0
        share = (drawn > drawn[:, [index]]).mean(axis=0)
        others = np.arange(12) != index
        assert above[others] == pytest.approx(share[others], abs=0.02)
    nothing = WarpedPosterior.of_nothing(("a", "b", "c"), None)
    assert nothing.probability_above(1).tolist() == [0.5, 1.0, 0.5]


def test_a_covariance_that_rounding_left_indefinite_has_a_root():
    vectors = stats.ortho_group.rvs(4, random_state=0)
    matrix = (vectors * np.array([-1e-4, 0.1, 1.0, 2.0])) @ vectors.T
    root = matrix_root(matrix)
    assert root @ root.T == pytest.approx(matrix, abs=2e-4)
    assert matrix_root(np.zeros((0, 0))).shape == (0, 0)


@pytest.mark.statistical
def test_intervals_cover_the_truth_as_often_as_they_say():
    """Truths drawn from the process itself; seen and unseen candidates, through the warp."""
    space = Space(parameters={"x": Float(min=0, max=1), "y": Float(min=0, max=1)})
    encoding = Encoding.of(space)
    kernel = Kernel.of(encoding, has_nugget=True)
    log_params = np.append(kernel.prior_mean, 0.0)
    n, n_seen, inside = 24, 14, []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        places = Points(rng.random((n, 2)), np.zeros((n, 0), dtype=np.intp))
        seen = np.arange(n) < n_seen
        covariance = by_hand(encoding, places, places, log_params[:-1])
        covariance += math.exp(kernel.prior_mean[-1]) * np.diag(seen)  # the unseen's are left out
        truth = np.linalg.cholesky(covariance + 1e-9 * np.eye(n)) @ rng.standard_normal(n)
        root = 0.3 * rng.standard_normal((n_seen, n_seen)) / math.sqrt(n_seen)
        errors = root @ root.T + 0.02 * np.eye(n_seen)
        measured = truth[:n_seen] + np.linalg.cholesky(errors) @ rng.standard_normal(n_seen)
        process = GaussianProcess.fit(
            kernel,
            places.take(np.flatnonzero(seen)),
            measured,
            errors,
            noise=MEASURED_NOISE,
            start=log_params,
            n_steps=0,
        )
        warp = Warp(center=0.5, spread=0.1, mean=0.0, sd=1.2)
        told = WarpedPosterior(
            ids=tuple(str(i) for i in range(n)),
            process=process,
            warp=warp,
            points=places,
            rows=np.where(seen, np.arange(n), -1),
            bounds=None,
        )
        low, high = told.interval(0.9)
        rewards = warp.backward(truth)
        hit = (rewards >= low) & (rewards <= high)
        inside.append([hit[:n_seen].mean(), hit[n_seen:].mean()])
    share = np.mean(inside, axis=0)
    standard_error = np.std(inside, axis=0) / math.sqrt(len(inside))
    assert (np.abs(share - 0.9) < 4 * standard_error).all(), (share, standard_error)
