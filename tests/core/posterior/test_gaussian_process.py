"""The Gaussian process against a dense one, and its gradient against finite differences."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from convergence_core.posterior.gaussian_process import (
    BLOCK,
    FREE_NOISE,
    JITTER,
    MEASURED_NOISE,
    N_SAMPLE,
    GaussianProcess,
    NoisePrior,
    Repeats,
    _Problem,
    cholesky_factor,
)
from convergence_core.posterior.kernel import Kernel
from convergence_core.space import Choice, Float, Space
from convergence_core.space.arrays import Encoding, Points
from tests.core.posterior.dense_process import by_hand, condition
from tests.support.random_spaces import points, random_space


class Problem:
    """Measurements of some candidates of a random space, with errors that move together."""

    def __init__(self, seed: int, n: int = 14, n_more: int = 6) -> None:
        rng = np.random.default_rng(seed)
        space = random_space(seed)
        self.encoding = Encoding.of(space)
        places = self.encoding.encode(points(space, n + n_more, rng))
        n = min(n, len(places) - 2)
        self.places, self.unseen = (
            places.take(np.arange(n)),
            places.take(np.arange(n, len(places))),
        )
        self.targets = rng.standard_normal(n)
        root = rng.standard_normal((n, 3)) * 0.4
        self.errors = root @ root.T + np.diag(rng.uniform(0.05, 0.5, n))
        self.kernel = Kernel.of(self.encoding, has_nugget=bool(seed % 2))
        lots = rng.standard_normal(len(self.kernel.prior_mean))
        kernel_params = self.kernel.prior_mean + 0.7 * lots * self.kernel.prior_sd
        self.log_params = np.append(kernel_params, 0.2 * rng.standard_normal())

    def fit(self, *, n_steps: int = 0, noise: NoisePrior = MEASURED_NOISE) -> GaussianProcess:
        return GaussianProcess.fit(
            self.kernel,
            self.places,
            self.targets,
            self.errors,
            noise=noise,
            start=self.log_params,
            n_steps=n_steps,
        )

    def minus_log_posterior(self, log_params: np.ndarray, noise: NoisePrior) -> float:
        """Density of the measurements times that of the hyper-parameters, by scipy."""
        n = len(self.places)
        own = math.exp(log_params[-2])
        total = by_hand(self.encoding, self.places, self.places, log_params[:-1])
        total += (own + JITTER) * np.eye(n) + math.exp(log_params[-1]) * self.errors
        prior = stats.norm(
            np.append(self.kernel.prior_mean, math.log(noise.median)),
            np.append(self.kernel.prior_sd, noise.log_sd),
        )
        density = stats.multivariate_normal(np.zeros(n), total).logpdf(self.targets)
        return -float(density + prior.logpdf(log_params).sum())

    def objective(self, noise: NoisePrior) -> _Problem:
        distances = self.kernel.distances(self.places, self.places)
        return _Problem.of(self.kernel, distances, self.targets, self.errors, noise)


@pytest.mark.parametrize("noise", [MEASURED_NOISE, FREE_NOISE])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_minimized_is_minus_the_log_posterior_and_its_gradient(seed, noise):
    problem = Problem(seed)
    objective = problem.objective(noise)
    value, slope = objective.value_and_gradient(problem.log_params)
    other, _ = objective.value_and_gradient(problem.log_params + 0.1)
    assert other - value == pytest.approx(
        problem.minus_log_posterior(problem.log_params + 0.1, noise)
        - problem.minus_log_posterior(problem.log_params, noise),
        rel=1e-8,
        abs=1e-8,
    )
    step = 1e-5
    for k in range(len(problem.log_params)):
        ahead, behind = problem.log_params.copy(), problem.log_params.copy()
        ahead[k] += step
        behind[k] -= step
        high, _ = objective.value_and_gradient(ahead)
        low, _ = objective.value_and_gradient(behind)
        assert slope[k] == pytest.approx((high - low) / (2 * step), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(("square", "dof"), [(0.0, 3), (1.7, 1), (0.2, 12)])
def test_repeats_add_the_likelihood_of_their_squares(square, dof):
    problem = Problem(3)
    plain = problem.objective(FREE_NOISE)
    with_repeats = replace(plain, repeats=Repeats(square=square, dof=dof))

    def added(log_v: float) -> tuple[float, float]:
        log_params = np.append(problem.log_params[:-1], log_v)
        (high, slope), (low, before) = (
            objective.value_and_gradient(log_params) for objective in (with_repeats, plain)
        )
        assert np.array_equal(slope[:-1], before[:-1])
        return high - low, float(slope[-1] - before[-1])

    def density(log_v: float) -> float:
        """Of the sum of squares, by scipy; of none, its limit."""
        if square:
            return log_v - float(stats.chi2.logpdf(square / math.exp(log_v), dof))
        return float(0.5 * dof * log_v)

    for log_v in (-3.0, -1.0, 0.5):
        assert added(log_v)[0] - added(-2.0)[0] == pytest.approx(density(log_v) - density(-2.0))
        numeric = (added(log_v + 1e-5)[0] - added(log_v - 1e-5)[0]) / 2e-5
        assert added(log_v)[1] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, 2 * BLOCK + 7])
def test_marginals_of_many_candidates_are_those_of_each(size):
    problem = Problem(4)
    process = problem.fit()
    rng = np.random.default_rng(0)
    places = problem.encoding.encode(points(problem.encoding.space, size, rng))
    rows = np.full(len(places), -1)
    mean, variance = process.marginals(places, rows)
    some = np.array([0, len(places) // 2, len(places) - 1])
    alone = process.marginals(places.take(some), rows[some])
    assert mean[some] == pytest.approx(alone[0], abs=1e-12)
    assert variance[some] == pytest.approx(alone[1], abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_predictions_are_those_of_a_dense_process(seed):
    problem = Problem(seed)
    process = problem.fit()
    n, n_unseen = len(problem.places), len(problem.unseen)
    asked = problem.unseen.join(problem.places.take(np.array([4, 0, 2])))
    rows = np.append(np.full(n_unseen, -1), [4, 0, 2])
    mean, covariance = condition(
        problem.encoding,
        problem.places,
        problem.targets,
        math.exp(process.log_params[-1]) * problem.errors + JITTER * np.eye(n),
        log_params=process.log_params[:-1],
        asked=asked,
        rows=rows,
    )
    found, spread = process.joint(asked, rows)
    assert found == pytest.approx(mean, rel=1e-8, abs=1e-8)
    assert spread == pytest.approx(covariance, rel=1e-8, abs=1e-8)
    alone, variance = process.marginals(asked, rows)
    assert alone == pytest.approx(mean, rel=1e-8, abs=1e-8)
    assert variance == pytest.approx(np.diag(covariance), rel=1e-8, abs=1e-8)
    assert process.noise == math.exp(process.log_params[-1])
    assert process.nugget_variance == math.exp(process.log_params[-2])


@pytest.mark.parametrize("noise", [MEASURED_NOISE, FREE_NOISE])
def test_steps_of_the_optimizer_raise_the_posterior_within_bounds(noise):
    problem = Problem(5, n=30)
    prior = problem.objective(noise)
    values = [
        problem.minus_log_posterior(problem.fit(n_steps=n, noise=noise).log_params, noise)
        for n in (0, 2, 40)
    ]
    assert values[0] > values[1] > values[2]
    found = problem.fit(n_steps=200, noise=noise).log_params
    assert (found >= prior.low).all()
    assert (found <= prior.high).all()
    inside = (found > prior.low + 1e-6) & (found < prior.high - 1e-6)
    _, slope = problem.objective(noise).value_and_gradient(found)
    assert np.abs(slope[inside]).max() < 0.05


def test_a_start_outside_the_bounds_is_forgotten_and_none_is_the_medians():
    problem = Problem(3)
    prior = problem.objective(MEASURED_NOISE)
    problem.log_params = prior.mean + 0.1
    problem.log_params[-1] = 1e3
    assert np.array_equal(problem.fit().log_params, [*prior.mean[:-1] + 0.1, prior.mean[-1]])
    begun = GaussianProcess.fit(
        problem.kernel,
        problem.places,
        problem.targets,
        problem.errors,
        noise=MEASURED_NOISE,
        n_steps=0,
    )
    assert np.array_equal(begun.log_params, prior.mean)


def smooth(n: int, noise: float, seed: int) -> tuple[GaussianProcess, Encoding]:
    """A wave along one dimension; the other one does nothing."""
    rng = np.random.default_rng(seed)
    space = Space(parameters={"x": Float(min=0, max=1), "idle": Float(min=0, max=1)})
    encoding = Encoding.of(space)
    numbers = rng.random((n, 2))
    places = Points(numbers, np.zeros((n, 0), dtype=np.intp))
    targets = np.sin(6 * numbers[:, 0]) + noise * rng.standard_normal(n)
    process = GaussianProcess.fit(
        Kernel.of(encoding, has_nugget=False),
        places,
        (targets - targets.mean()) / targets.std(),
        np.eye(n),
        noise=FREE_NOISE,
        n_steps=60,
    )
    return process, encoding


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_of_many_measurements_leads_to_the_optimum_of_all(seed):
    problem = Problem(seed, n=2 * N_SAMPLE)
    assert len(problem.targets) >= 2 * N_SAMPLE
    truth = replace(problem.fit(), log_params=problem.log_params)
    problem.targets = truth.factor @ problem.targets
    arguments = (problem.kernel, problem.places, problem.targets, problem.errors)
    from_sample = GaussianProcess.fit(*arguments, noise=FREE_NOISE, n_steps=25)
    objective = problem.objective(FREE_NOISE)
    from_medians = GaussianProcess.fit(
        *arguments, noise=FREE_NOISE, start=objective.mean, n_steps=200
    )
    reached, _ = objective.value_and_gradient(from_sample.log_params)
    least, _ = objective.value_and_gradient(from_medians.log_params)
    assert reached < least + 0.1


def test_it_learns_which_dimension_matters_and_how_noisy_rewards_are():
    quiet, _ = smooth(60, 0.05, 0)
    loud, _ = smooth(60, 0.7, 0)
    assert quiet.log_params[1] > quiet.log_params[0] + 1.0  # the idle one is longer
    assert quiet.noise < 0.02
    assert 0.2 < loud.noise < 0.8  # .49 / (.49 + .5)
    x = np.linspace(0.05, 0.95, 40)
    asked = Points(np.stack([x, np.full(40, 0.5)], axis=1), np.zeros((40, 0), dtype=np.intp))
    mean, _ = quiet.marginals(asked, np.full(40, -1))
    assert np.corrcoef(mean, np.sin(6 * x))[0, 1] > 0.99


def test_candidates_at_one_place_do_not_break_it():
    """Texts of the same words lie at one place; nothing but rounding is between the rows."""
    space = Space(parameters={"c": Choice(kind="categorical", choices=("a", "b"))})
    encoding = Encoding.of(space)
    n = 80
    places = Points(np.zeros((n, 0)), np.zeros((n, 1), dtype=np.intp))
    process = GaussianProcess.fit(
        Kernel.of(encoding, has_nugget=False),
        places,
        np.linspace(-1, 1, n),
        np.zeros((n, n)),
        noise=MEASURED_NOISE,
    )
    mean, variance = process.marginals(places, np.arange(n))
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()


def test_a_matrix_that_rounding_left_indefinite_is_factored_with_jitter():
    values = np.array([-3e-8, 0.0, 1e-3, 1.0, 2.0])
    vectors = stats.ortho_group.rvs(5, random_state=0)
    matrix = (vectors * values) @ vectors.T
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(matrix)
    factor = cholesky_factor(matrix)
    assert factor @ factor.T == pytest.approx(matrix, abs=1e-6)
    exact = np.diag([1.0, 2.0])
    assert np.array_equal(cholesky_factor(exact), np.linalg.cholesky(exact))


@pytest.mark.parametrize("broken", [-1.0, np.nan])
def test_a_matrix_that_no_jitter_mends_is_refused(broken):
    with pytest.raises(np.linalg.LinAlgError):
        cholesky_factor(np.diag([1.0, broken]))


@pytest.mark.parametrize("seed", range(4))
def test_doubt_about_hyper_parameters_adds_to_variances_as_finite_differences_say(seed):
    problem = Problem(seed)
    process = problem.fit()
    places = problem.unseen.join(problem.places.take(np.array([0])))
    rows = np.append(np.full(len(problem.unseen), -1), 0)
    inverse = np.linalg.inv(process.factor @ process.factor.T)

    def at(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        params = process.log_params + step
        prior = _Problem.of(
            problem.kernel,
            problem.kernel.distances(problem.places, problem.places),
            problem.targets,
            problem.errors,
            MEASURED_NOISE,
        )
        covariance = prior.covariance(params)
        moved = GaussianProcess.conditioned(
            problem.kernel, problem.places, problem.targets, covariance, params
        )
        return moved.marginals(places, rows)[0], covariance

    steps = 1e-4 * np.eye(len(process.log_params))
    pairs = [(at(step), at(-step)) for step in steps]
    jacobian = np.array([(up[0] - down[0]) / 2e-4 for up, down in pairs])
    slopes = [inverse @ (up[1] - down[1]) / 2e-4 for up, down in pairs]
    information = [[0.5 * float(np.trace(a @ b)) for b in slopes] for a in slopes]
    sd = np.append(problem.kernel.prior_sd, MEASURED_NOISE.log_sd)
    precision = np.array(information) + np.diag(sd**-2)
    doubt = (jacobian * np.linalg.solve(precision, jacobian)).sum(axis=0)
    expected = process.marginals(places, rows)[1] + doubt + process.level_variance(places, rows)
    np.testing.assert_allclose(process.total_variance(places, rows), expected, rtol=1e-3)
    assert (doubt > 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_doubt_about_the_mean_is_that_of_a_constant_of_any_size(seed):
    problem = Problem(seed)
    process = problem.fit()
    places = problem.unseen.join(problem.places.take(np.array([0])))
    rows = np.append(np.full(len(problem.unseen), -1), 0)
    cross = process.kernel.between(process.log_params[:-1], places, problem.places)
    cross[-1, 0] += process.nugget_variance
    vague = 1e5  # variance of a constant that all share
    covariance = process.factor @ process.factor.T
    without = np.einsum("ij,ij->i", cross, np.linalg.solve(covariance, cross.T).T)
    explained = np.linalg.solve(covariance + vague, (cross + vague).T).T
    within = np.einsum("ij,ij->i", cross + vague, explained)
    added = vague - within + without
    np.testing.assert_allclose(process.level_variance(places, rows), added, rtol=0.01, atol=1e-5)
