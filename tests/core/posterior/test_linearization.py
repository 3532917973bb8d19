"""Evidence read where the posterior lies: against closed forms, and what it is worth."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.optimizer.ablations import AblatableModel, EqualCases
from convergence_core.posterior.case_effects import EDGE, CaseEffects
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.warp import WarpedEvidence
from convergence_core.space import Choice, Space
from tests.core.posterior.archives import archive, surrogate, two_way

N_CASES = 20


def coins(p: np.ndarray, seed: int, n_each: np.ndarray) -> dict[str, dict[str, float]]:
    """Candidates that answer so many cases, each right by its own chance."""
    rng = np.random.default_rng(seed)
    return {
        f"m{i:03d}": {f"c{j:02d}": float(rng.random() < p[i]) for j in range(n_each[i])}
        for i in range(len(p))
    }


def measured(seed: int = 0) -> CaseEffects:
    evidence = Evidence.gather(two_way(np.random.default_rng(seed), n_members=12, n_cases=15)[0])
    found = CaseEffects.estimate(evidence)
    assert found.is_measured
    return found


def test_the_first_reading_is_the_measurements_along_their_own_tangents():
    found = measured()
    read = WarpedEvidence.of(found, (0.0, 1.0))
    slope = read.warp.slope(found.mean)
    assert read.targets == pytest.approx(read.warp.forward(found.mean))
    assert read.errors == pytest.approx(slope[:, None] * found.errors * slope)


def test_a_later_reading_follows_the_tangent_at_what_is_believed():
    found = measured()
    # Far below the knee of the warp, where its slope is another one.
    believed = found.mean - np.linspace(0.0, 0.6, len(found.mean))
    read = WarpedEvidence.of(found, (0.0, 1.0), believed)
    step = 1e-6
    slope = (read.warp.forward(believed + step) - read.warp.forward(believed - step)) / (2 * step)
    assert read.targets == pytest.approx(
        read.warp.forward(believed) + slope * (found.mean - believed), rel=1e-5
    )
    assert read.errors == pytest.approx(slope[:, None] * found.errors * slope, rel=1e-5)
    assert np.ptp(slope) > 0.1 * slope.max()


def test_binomial_noise_is_that_of_what_is_believed():
    p = np.linspace(0.05, 0.95, 10)
    n = np.full(10, N_CASES)
    evidence = Evidence.gather(archive(coins(p, 3, n)))
    believed = np.linspace(0.6, 0.7, 10)
    own = EqualCases.estimate(evidence)
    assert own.is_binomial
    found = own.reweighted(evidence, believed)
    assert found.noise / found.noise[0] == pytest.approx(
        believed * (1 - believed) / (believed[0] * (1 - believed[0]))
    )
    assert own.noise.min() < 0.5 * own.noise.max()
    certain = own.reweighted(evidence, np.ones(10))
    assert np.ptp(certain.noise) == 0.0
    assert certain.noise[0] >= EDGE * 0.25


def test_constant_noise_owes_nothing_to_what_is_believed():
    found = measured()
    assert not found.is_binomial
    evidence = Evidence.gather(two_way(np.random.default_rng(0), n_members=12, n_cases=15)[0])
    assert found.reweighted(evidence, np.full(12, 0.5)) is found


def test_readings_come_to_rest():
    evidence = archive(coins(np.linspace(0.3, 0.8, 30), 5, np.full(30, 12)))

    def mean(n_readings: int) -> np.ndarray:
        model = AblatableModel(
            space=Space(
                parameters={"x": Choice(kind="categorical", choices=tuple(evidence.members))}
            ),
            n_readings=n_readings,
        )
        return model.fit(evidence).posterior([m.candidate for m in evidence]).mean

    first, third, fourth = mean(1), mean(3), mean(4)
    assert np.abs(fourth - third).max() < 0.2 * np.abs(third - first).max()


@pytest.mark.statistical
def test_whoever_was_lucky_is_believed_less():
    """The ablation: what is claimed of the one chosen is nearer to its truth; paired, at 1 %."""
    gain, left = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = np.clip(rng.normal(0.65, 0.1, 60), 0.02, 0.98)
        evidence = archive(coins(p, seed, rng.integers(5, 16, 60)))
        over = []
        for n_readings in (1, 3):
            model = AblatableModel(space=surrogate(evidence).space, n_readings=n_readings)
            told = model.fit(evidence).posterior([m.candidate for m in evidence])
            chosen = int(np.argmax(told.mean))
            over.append(float(told.mean[chosen]) - p[chosen])
        gain.append(over[0] - over[1])
        left.append(over[1])
    assert stats.ttest_1samp(gain, 0.0, alternative="greater").pvalue < 0.01, np.mean(gain)
    # Not by believing too little: what is claimed is still no less than the truth.
    assert stats.ttest_1samp(left, 0.0, alternative="less").pvalue > 0.05, np.mean(left)
