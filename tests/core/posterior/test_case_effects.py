"""Candidates freed of the luck of their cases, against the mixed model in full."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from benchmarks.optimizer.ablations import EqualCases
from convergence_core.posterior.case_effects import CaseEffects
from convergence_core.posterior.evidence import Evidence
from tests.core.posterior.archives import archive, two_way

Cells = list[tuple[int, int, float]]


def gathered(
    cells: Cells, *, n_cases: int, case_weights: Mapping[str, float] | None = None
) -> Evidence:
    """Evidence of (candidate, case, reward); a pair named again is a repeat."""
    rewards: dict[str, dict[tuple[str, int], float]] = {}
    for i, j, reward in cells:
        of_candidate = rewards.setdefault(f"m{i:03d}", {})
        repeat = sum(case == f"c{j:03d}" for case, _ in of_candidate)
        of_candidate[f"c{j:03d}", repeat] = reward
    cases = [f"c{j:03d}" for j in range(n_cases)]
    return Evidence.gather(archive(rewards), case_ids=cases, case_weights=case_weights)


def drawn(
    seed: int,
    *,
    n_members: int = 12,
    n_cases: int = 10,
    share: float = 0.6,
    repeats: int = 1,
    case_sd: float = 0.2,
    noise_sd: float | np.ndarray = 0.1,
) -> tuple[Cells, np.ndarray, np.ndarray]:
    """Cells, candidates' effects and cases' effects of the two-way model."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.5, 0.1, n_members), rng.normal(0, case_sd, n_cases)
    noise = np.broadcast_to(noise_sd, (n_members,))
    n_seen = max(2, round(share * n_cases))
    cells = [
        (i, int(j), float(a[i] + b[j] + noise[i] * rng.standard_normal()))
        for i in range(n_members)
        for j in rng.choice(n_cases, n_seen, replace=False)
        for _ in range(int(rng.integers(1, repeats + 1)))
    ]
    return cells, a, b


def by_hand(
    cells: Cells, *, case_variance: float, noise: np.ndarray, weight: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, their covariance, and cases' effects, by the full covariance over cells."""
    row, column, y = (np.array(part) for part in zip(*cells, strict=True))
    n_cases, n_members = len(weight), len(noise)
    x = (row[:, None] == np.arange(n_members)).astype(float)
    z = (column[:, None] == np.arange(n_cases)).astype(float)
    full = case_variance * z @ z.T + np.diag(noise[row])
    precision = np.linalg.solve(full, x)
    of_a = np.linalg.inv(x.T @ precision)
    a = of_a @ (precision.T @ y)
    b = case_variance * z.T @ np.linalg.solve(full, y - x @ a)
    # The best linear prediction's errors, jointly of a and b.
    both = np.hstack([x, z])
    joint = both.T @ (both / noise[row][:, None])
    joint[n_members:, n_members:] += np.eye(n_cases) / case_variance
    covariance = np.linalg.inv(joint)
    to_theta = np.hstack([np.eye(n_members), np.tile(weight, (n_members, 1))])
    return a + np.asarray(weight) @ b, to_theta @ covariance @ to_theta.T, b


@pytest.mark.parametrize("with_repeats", [False, True])
@pytest.mark.parametrize(("n_members", "n_cases"), [(12, 10), (5, 30), (30, 6)])
@pytest.mark.parametrize("seed", range(4))
def test_estimates_are_those_of_the_mixed_model_in_full(seed, n_members, n_cases, with_repeats):
    cells, _, _ = drawn(
        seed, n_members=n_members, n_cases=n_cases, repeats=3 if with_repeats else 1
    )
    found = CaseEffects.estimate(gathered(cells, n_cases=n_cases))
    assert found.is_measured
    mean, errors, effect = by_hand(
        cells,
        case_variance=found.case_variance,
        noise=found.noise,
        weight=np.full(n_cases, 1 / n_cases).tolist(),
    )
    assert found.mean == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert found.errors == pytest.approx(errors, rel=1e-6, abs=1e-9)
    assert found.case_effect == pytest.approx(effect, rel=1e-6, abs=1e-6)
    assert np.array_equal(found.errors, found.errors.T)


def test_estimates_with_binomial_noise_are_those_of_the_mixed_model_too():
    evidence, _ = two_way(
        np.random.default_rng(0), n_members=20, n_cases=30, sd_member=0.25, share=0.5, binary=True
    )
    found = CaseEffects.estimate(Evidence.gather(evidence))
    assert np.ptp(found.noise) > 0
    cells = [
        (int(member.candidate.candidate_id[1:]), int(case[1:]), reward)
        for member in evidence
        for (case, _), reward in member.rewards.items()
    ]
    mean, errors, _ = by_hand(
        cells, case_variance=found.case_variance, noise=found.noise, weight=[1 / 30] * 30
    )
    assert found.mean == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert found.errors == pytest.approx(errors, rel=1e-6, abs=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("n_members", "n_cases", "share", "case_sd", "noise_sd"),
    [(12, 40, 0.3, 0.15, 0.15), (40, 20, 0.2, 0.15, 0.15), (15, 40, 0.3, 0.5, 0.05)],
)
def test_variances_are_found_where_candidates_share_few_cases(
    n_members, n_cases, share, case_sd, noise_sd
):
    of_case, of_noise = [], []
    for seed in range(25):
        cells, _, _ = drawn(
            seed,
            n_members=n_members,
            n_cases=n_cases,
            share=share,
            case_sd=case_sd,
            noise_sd=noise_sd,
        )
        found = CaseEffects.estimate(gathered(cells, n_cases=n_cases))
        of_case.append(found.case_variance / case_sd**2)
        of_noise.append(float(found.noise.mean()) / noise_sd**2)
    # Four standard errors of the mean of 25 estimates, whose relative sds are below .4 and .2.
    assert np.mean(of_case) == pytest.approx(1.0, abs=4 * 0.4 / 5)
    assert np.mean(of_noise) == pytest.approx(1.0, abs=4 * 0.2 / 5)


@pytest.mark.statistical
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_intervals_of_means_over_these_cases_hold(share, weighted):
    inside, n_cases = [], 40
    for seed in range(40):
        cells, a, b = drawn(
            seed, n_members=15, n_cases=n_cases, share=share, case_sd=0.15, noise_sd=0.15
        )
        # The noise of a cell is not of its case, so the truth holds none of it.
        weight = np.where(b < 0, 3.0, 1.0) if weighted else np.ones(n_cases)
        evidence = gathered(
            cells,
            n_cases=n_cases,
            case_weights={f"c{j:03d}": float(w) for j, w in enumerate(weight)},
        )
        found = CaseEffects.estimate(evidence)
        z = (found.mean - a - b @ weight / weight.sum()) / np.sqrt(np.diag(found.errors))
        inside.append(float((np.abs(z) < stats.norm.ppf(0.95)).mean()))
    standard_error = float(np.std(inside)) / np.sqrt(len(inside))
    assert abs(np.mean(inside) - 0.9) < max(4 * standard_error, 0.02) + 0.02 * weighted


def test_without_cases_means_are_plain_and_their_errors_independent():
    cells, _, _ = drawn(0)
    evidence = gathered(cells, n_cases=10)
    found = EqualCases.estimate(evidence)
    plain = (evidence.mean * evidence.count).sum(axis=1) / evidence.count.sum(axis=1)
    assert found.mean == pytest.approx(plain)
    assert found.errors == pytest.approx(np.diag(found.noise / evidence.count.sum(axis=1)))
    assert found.case_variance == 0.0
    assert not found.case_effect.any()


# -- which noise ---------------------------------------------------------------------------------


def test_the_noise_is_binomial_where_rewards_are_coins_of_different_bias():
    chosen = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        p = rng.uniform(0.05, 0.95, 25)
        cells = [(i, j, float(rng.random() < p[i])) for i in range(25) for j in range(20)]
        found = CaseEffects.estimate(gathered(cells, n_cases=20))
        chosen += int(np.ptp(found.noise) > 0)
        if np.ptp(found.noise) > 0:
            assert np.corrcoef(found.noise, p * (1 - p))[0, 1] > 0.7
            assert found.noise.mean() == pytest.approx((p * (1 - p)).mean(), rel=0.3)
    assert stats.binomtest(chosen, 30, 0.95, alternative="less").pvalue > 1e-3


@pytest.mark.parametrize("n_failing", [0, 100])
def test_who_nearly_always_fails_takes_no_noise_from_those_that_do_not(n_failing):
    """Over all cases the variance of pass and fail is p (1 - p), however many always fail."""
    p = np.append(np.linspace(0.3, 0.7, 10), np.full(n_failing, 0.003))
    of_good = []
    for seed in range(10):
        hits = np.random.default_rng(seed).random((len(p), 20)) < p[:, None]
        cells = [(i, j, float(hits[i, j])) for i in range(len(p)) for j in range(20)]
        found = CaseEffects.estimate(gathered(cells, n_cases=20))
        assert np.ptp(found.noise) > 0
        of_good.append(found.noise[:10].mean() + found.case_variance)
    assert np.mean(of_good) == pytest.approx((p * (1 - p))[:10].mean(), rel=0.08)


@pytest.mark.parametrize(("low", "high"), [(0.05, 0.95), (0.3, 0.7)])
def test_the_noise_is_constant_where_it_is_gaussian(low, high):
    chosen = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        a = rng.uniform(low, high, 25)
        y = np.clip(a[:, None] + 0.02 * rng.standard_normal((25, 20)), 0, 1)
        cells = [(i, j, float(y[i, j])) for i in range(25) for j in range(20)]
        chosen += int(np.ptp(CaseEffects.estimate(gathered(cells, n_cases=20)).noise) == 0)
    assert stats.binomtest(chosen, 30, 0.95, alternative="less").pvalue > 1e-3


@pytest.mark.parametrize("shift", [-1.0, 0.8])
def test_rewards_outside_0_and_1_have_constant_noise(shift):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 25)
    cells = [(i, j, shift + float(rng.random() < p[i])) for i in range(25) for j in range(20)]
    assert np.ptp(CaseEffects.estimate(gathered(cells, n_cases=20)).noise) == 0


@pytest.mark.parametrize("is_coin", [True, False])
def test_repeats_of_a_cell_tell_the_noise_in_the_same_units_as_cases(is_coin):
    """Ten repeats of two cases, or one of twenty: the noise of a reward is the same."""
    rng = np.random.default_rng(1)
    p = rng.uniform(0.1, 0.9, 30)
    y = p[:, None] + 0.08 * rng.standard_normal((30, 20))
    if is_coin:
        y = (rng.random((30, 20)) < p[:, None]).astype(float)
    repeated = gathered([(i, j % 2, y[i, j]) for i in range(30) for j in range(20)], n_cases=2)
    apart = gathered([(i, j, y[i, j]) for i in range(30) for j in range(20)], n_cases=20)
    of_repeats, of_cases = CaseEffects.estimate(repeated), CaseEffects.estimate(apart)
    assert of_repeats.noise == pytest.approx(of_cases.noise, rel=0.15)
    assert (np.ptp(of_cases.noise) > 0) == is_coin


# -- weights -------------------------------------------------------------------------------------


def test_where_all_was_asked_the_mean_is_the_weighted_one():
    cells, _, _ = drawn(3, share=1.0)
    weight = np.linspace(1, 5, 10)
    evidence = gathered(
        cells, n_cases=10, case_weights={f"c{j:03d}": float(w) for j, w in enumerate(weight)}
    )
    found = CaseEffects.estimate(evidence)
    assert found.mean == pytest.approx(evidence.mean @ weight / weight.sum(), abs=1e-9)
    equal = CaseEffects.estimate(gathered(cells, n_cases=10))
    assert equal.mean == pytest.approx(evidence.mean.mean(axis=1), abs=1e-9)
    assert (np.diag(found.errors) > np.diag(equal.errors)).all()  # fewer effective cells


# -- what breaks others --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("n_members", "n_cases"), [(1, 1), (1, 20), (20, 1), (5, 8), (8, 5)])
def test_equal_rewards_do_not_break_it(n_members, n_cases, value):
    cells = [(i, j, value) for i in range(n_members) for j in range(n_cases)]
    found = CaseEffects.estimate(gathered(cells, n_cases=n_cases))
    assert found.mean == pytest.approx(np.full(n_members, value), abs=1e-9)
    assert np.isfinite(found.errors).all()
    assert (np.diag(found.errors) > 0).all()
    np.linalg.cholesky(found.errors + 1e-12 * np.eye(n_members))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_zeros_alone_or_ones_alone_prove_little(value):
    cells = [(i, j, value) for i in range(10) for j in range(3)]
    found = CaseEffects.estimate(gathered(cells, n_cases=3))
    assert found.is_measured
    sd = np.sqrt(np.diag(found.errors))
    assert (sd > 0.02).all()
    assert (sd < 0.2).all()


def test_a_single_case_has_no_measured_error():
    found = CaseEffects.estimate(gathered([(i, 0, 0.1 * i) for i in range(9)], n_cases=1))
    assert not found.is_measured
    assert found.mean == pytest.approx(0.1 * np.arange(9))
    assert np.array_equal(found.errors, np.eye(9))
    assert np.array_equal(found.noise, np.ones(9))


def test_cases_that_nobody_was_asked_widen_the_errors():
    cells, _, _ = drawn(5, share=1.0, n_cases=8)
    seen = CaseEffects.estimate(gathered(cells, n_cases=8))
    more = CaseEffects.estimate(gathered(cells, n_cases=16))
    assert more.case_effect[8:] == pytest.approx(np.zeros(8), abs=1e-9)
    assert (np.diag(more.errors) > np.diag(seen.errors)).all()


@settings(max_examples=60)
@given(st.data())
def test_whatever_was_asked_the_estimates_are_finite_and_the_errors_a_covariance(data):
    n_members, n_cases = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    pair = st.tuples(st.integers(0, n_members - 1), st.integers(0, n_cases - 1))
    reward = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)
    if data.draw(st.booleans()):
        reward = st.sampled_from([0.0, 1.0])
    asked = data.draw(st.lists(pair, min_size=1, max_size=80))
    cells = [(i, j, data.draw(reward)) for i, j in asked]
    evidence = gathered(cells, n_cases=n_cases)
    found = CaseEffects.estimate(evidence)
    assert np.isfinite(found.mean).all()
    assert (found.noise > 0).all()
    values = np.linalg.eigvalsh(found.errors)
    assert values[0] > -1e-9 * values[-1]
    assert (np.abs(found.mean - 0.5) < 1.5).all()


def test_without_noise_errors_are_those_of_samples_of_a_finite_population():
    """Mean of n of N draws without replacement: variance s² / n (1 - n / N) (Cochran 1977, eq. 2.8)."""
    rng = np.random.default_rng(0)
    n_cases, n_asked = 20, (4, 10, 20)
    rewards = {
        f"m{i}": {f"c{j:02d}": float(rng.normal(0.5, 0.1)) for j in range(n)}
        for i, n in enumerate(n_asked)
    }
    evidence = Evidence.gather(archive(rewards), case_ids=[f"c{j:02d}" for j in range(n_cases)])
    effects = EqualCases.estimate(evidence)
    found = effects.without_noise(evidence).errors
    expected = [s2 / n * (1 - n / n_cases) for s2, n in zip(effects.noise, n_asked, strict=True)]
    assert np.diag(found) == pytest.approx(expected, abs=1e-12)
    assert np.abs(found - np.diag(np.diag(found))).max() < 1e-12
    assert found[2, 2] == pytest.approx(0.0, abs=1e-12)
    assert np.diag(effects.errors) == pytest.approx(effects.noise / np.array(n_asked))


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_without_noise_rounding_leaves_no_variance_below_zero(seed):
    rng = np.random.default_rng(seed)
    rewards = {
        f"m{i}": {f"c{j:02d}": float(rng.normal(0.5, 0.1)) for j in range(20)} for i in range(6)
    }
    evidence = Evidence.gather(archive(rewards))
    assert np.diag(CaseEffects.estimate(evidence).without_noise(evidence).errors).min() >= 0.0
