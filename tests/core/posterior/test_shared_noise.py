"""Luck that similar candidates share: estimated, put into the errors, and worth knowing."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.optimizer.ablations import AblatableModel, EqualCases
from convergence_core.evidence.archive import Archive, Member
from convergence_core.posterior.case_effects import CaseEffects
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.kernel import Distances, Kernel
from convergence_core.posterior.shared_noise import (
    SHARE_PRIOR,
    SharedNoise,
    _Pairs,
    _Problem,
    without_noise,
)
from convergence_core.posterior.space_model import SpaceModel
from convergence_core.posterior.warped_posterior import WarpedPosterior
from convergence_core.records import Candidate
from convergence_core.space import Choice, Float, Space
from tests.core.posterior.archives import archive

EXAM = Path(__file__).parents[3] / "benchmarks/optimizer/data/jhu/comprehensive_100.npz"
N_KINDS, N_CASES, SD = 6, 40, 0.2
CASES = tuple(f"c{j:02d}" for j in range(N_CASES))
KINDS = tuple(f"m{k}" for k in range(N_KINDS))
SPACE = Space(
    parameters={
        "model": Choice(kind="categorical", choices=KINDS),
        "temperature": Float(min=0.0, max=1.0),
    }
)


class World:
    """Candidates of six kinds; those of a kind share a part of their luck with each case."""

    def __init__(self, seed: int, *, share: float, n_each: int = 8, n_asked: int = 10) -> None:
        rng = np.random.default_rng(seed)
        self.kind = np.repeat(np.arange(N_KINDS), n_each)
        n = len(self.kind)
        level = rng.normal(0.5, 0.05, N_KINDS)[self.kind]
        b = rng.normal(0, 0.1, N_CASES)
        g = SD * np.sqrt(share) * rng.standard_normal((N_KINDS, N_CASES))[self.kind]
        e = SD * np.sqrt(1 - share) * rng.standard_normal((n, N_CASES))
        self.truth = (level[:, None] + b + g).mean(axis=1)
        """Mean over these cases; what e adds is asked anew in every cell."""
        members = {}
        asked = sorted(rng.choice(N_CASES, n_asked, replace=False))
        for i in range(n):
            params = {"model": KINDS[self.kind[i]], "temperature": float(rng.uniform())}
            candidate = SPACE.candidate(params)
            members[candidate.candidate_id] = Member(
                candidate=candidate,
                generation=0,
                rewards={(CASES[j], 0): float(level[i] + b[j] + g[i, j] + e[i, j]) for j in asked},
            )
        self.archive = Archive(members)

    @property
    def candidates(self) -> list[Candidate]:
        return [member.candidate for member in self.archive]

    def effects(self) -> tuple[CaseEffects, Kernel, Distances]:
        model = SpaceModel(space=SPACE)
        evidence = Evidence.gather(self.archive, case_ids=CASES)
        places = model.encoding.encode([c.params for c in self.candidates])
        kernel = Kernel.of(model.encoding, own_effect=True)
        return CaseEffects.estimate(evidence), kernel, kernel.distances(places, places)


def problem_of(effects: CaseEffects, kernel: Kernel, distances: Distances) -> _Problem:
    pairs = _Pairs.of(effects, distances)
    assert pairs is not None
    n, (mean, sd) = kernel.n_dims, SHARE_PRIOR
    means, sds = np.append(kernel.prior_mean[:n], mean), np.append(kernel.prior_sd[:n], sd)
    return _Problem(kernel, pairs, means, sds)


def found_in(world: World) -> SharedNoise:
    found = SharedNoise.estimate(*world.effects())
    assert found is not None
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_the_share_and_the_kinds_are_found(share):
    worlds = [World(seed, share=share, n_asked=30) for seed in range(10)]
    found = [found_in(world) for world in worlds]
    # Deviation of one estimate: below .1; four standard errors of ten.
    assert np.mean([one.share for one in found]) == pytest.approx(share, abs=4 * 0.1 / np.sqrt(10))
    same = worlds[0].kind[:, None] == worlds[0].kind
    alike = np.mean([one.similarity for one in found], axis=0)
    assert alike[same].mean() > 0.8
    assert alike[~same].mean() < 0.3


@pytest.mark.statistical
@pytest.mark.parametrize("n_asked", [10, 30])
def test_where_nothing_is_shared_nothing_is_found(n_asked):
    worlds = [World(seed, share=0.0, n_asked=n_asked) for seed in range(20)]
    found = sum(SharedNoise.estimate(*world.effects()) is not None for world in worlds)
    assert stats.binomtest(found, 20, 0.05, alternative="greater").pvalue > 1e-3, found


@pytest.mark.statistical
def test_what_is_shared_is_shown_by_ten_cases_each():
    worlds = [World(seed, share=0.5) for seed in range(20)]
    found = sum(SharedNoise.estimate(*world.effects()) is not None for world in worlds)
    assert stats.binomtest(found, 20, 0.95, alternative="less").pvalue > 1e-3, found


def test_the_gain_is_the_rise_of_the_likelihood_over_none():
    effects, kernel, distances = World(1, share=0.5).effects()
    problem = problem_of(effects, kernel, distances)
    shared = problem.mean
    none = np.append(shared[:-1], -40.0)

    def likelihood(params: np.ndarray) -> float:
        pull = (params - problem.mean) / problem.sd
        return 0.5 * float(pull @ pull) - problem.value_and_gradient(params)[0]

    rise = likelihood(shared) - likelihood(none)
    assert problem.gain(shared) == pytest.approx(rise, rel=1e-6)


def test_too_few_candidates_tell_nothing():
    world = World(0, share=0.5, n_each=1)
    assert SharedNoise.estimate(*world.effects()) is None
    effects, kernel, distances = World(0, share=0.5).effects()
    assert SharedNoise.estimate(replace(effects, residuals=None), kernel, distances) is None


def test_the_gradient_is_that_of_finite_differences():
    effects, kernel, distances = World(1, share=0.5).effects()
    problem = problem_of(effects, kernel, distances)
    rng = np.random.default_rng(2)
    for _ in range(3):
        x = problem.mean + 0.5 * rng.standard_normal(kernel.n_dims + 1)
        _, gradient = problem.value_and_gradient(x)
        for d in range(len(x)):
            step = 1e-5 * np.eye(len(x))[d]
            rise = (
                problem.value_and_gradient(x + step)[0] - problem.value_and_gradient(x - step)[0]
            )
            assert gradient[d] == pytest.approx(rise / 2e-5, rel=1e-5, abs=1e-6)


def test_errors_are_those_of_the_full_covariance_over_cells():
    """Means over cells seen less those over all cases, with every cell's covariance written out."""
    world = World(3, share=0.5, n_each=2)
    effects, _, _ = world.effects()
    effects = replace(effects, errors=effects.errors.copy())
    n = len(world.kind)
    alike = np.where(world.kind[:, None] == world.kind, 0.9, 0.2)
    np.fill_diagonal(alike, 1.0)
    applied = SharedNoise(share=0.4, similarity=alike).applied(effects)
    rest = effects.residuals
    assert rest is not None
    asked = rest.seen / rest.seen.sum(axis=1, keepdims=True)  # share of each cell in its mean
    of_g = asked - 1.0 / N_CASES
    sd = np.sqrt(effects.noise)
    by_hand = np.zeros((n, n))
    for i in range(n):
        for k in range(n):
            g = 0.4 * sd[i] * sd[k] * alike[i, k]
            e = 0.6 * effects.noise[i] * (i == k)
            by_hand[i, k] = sum(g * of_g[i, j] * of_g[k, j] for j in range(N_CASES))
            by_hand[i, k] += sum(e * asked[i, j] * asked[k, j] for j in range(N_CASES))
    of_cases = effects.errors - np.diag(rest.own)
    assert applied.errors == pytest.approx(of_cases + by_hand, abs=1e-12)
    assert np.linalg.eigvalsh(applied.errors).min() > -1e-12


def test_shared_luck_is_no_error_where_all_cases_were_asked():
    effects, _, _ = World(4, share=0.5, n_asked=N_CASES).effects()
    alike = np.ones((len(effects.mean), len(effects.mean)))
    applied = SharedNoise(share=0.7, similarity=alike).applied(effects)
    assert applied.errors == pytest.approx(0.3 * np.diag(effects.noise / N_CASES), abs=1e-9)


def told(world: World, *, interaction: bool) -> WarpedPosterior:
    model = AblatableModel(space=SPACE, bounds=None, interaction=interaction)
    return model.fit(world.archive, case_ids=CASES).posterior(world.candidates)


@pytest.mark.statistical
def test_a_kind_that_was_asked_few_cases_is_known_badly():
    """The ablation: twelve of a kind on ten questions look like 120 answers, and are ten."""

    def coverage(*, interaction: bool) -> float:
        inside = []
        for seed in range(20):
            world = World(seed, share=0.9, n_each=12)
            # What all share moves nobody's place.
            drawn = told(world, interaction=interaction).draws(np.random.default_rng(seed), 400)
            drawn -= drawn.mean(axis=1, keepdims=True)
            low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
            apart = world.truth - world.truth.mean()
            inside.append(float(((low <= apart) & (apart <= high)).mean()))
        return float(np.mean(inside))

    assert coverage(interaction=True) > 0.7
    assert coverage(interaction=False) < 0.6


@pytest.mark.statistical
def test_knowing_what_a_kind_shares_brings_beliefs_nearer_to_the_truth():
    """The ablation, of errors: a paired one-sided test over 60 worlds at 1 %."""
    gain = []
    for seed in range(60):
        world = World(seed, share=0.9, n_each=12, n_asked=12)
        wrong = []
        for interaction in (True, False):
            mean = told(world, interaction=interaction).mean
            gap = (mean - mean.mean()) - (world.truth - world.truth.mean())
            wrong.append(float(np.mean(gap**2)))
        gain.append(wrong[1] - wrong[0])
    assert stats.ttest_1samp(gain, 0.0, alternative="greater").pvalue < 0.01, np.mean(gain)


def test_answers_of_one_model_go_along_over_temperatures_on_the_recorded_exam():
    """What made it worth modelling; decision 21 names the numbers."""
    with np.load(EXAM) as file:
        score, model, technique = (file[name] for name in ("score", "model", "technique"))
    score = score.astype(float)
    rest = score - score.mean(axis=1, keepdims=True) - score.mean(axis=0) + score.mean()
    found = np.corrcoef(rest)
    row, column = np.tril_indices(len(found), -1)
    same_model = model[row] == model[column]
    same_kind = same_model & (technique[row] == technique[column])
    assert found[row, column][same_kind].mean() == pytest.approx(0.59, abs=0.005)
    assert found[row, column][~same_model].mean() == pytest.approx(-0.07, abs=0.005)


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
    found = without_noise(effects, None).errors
    expected = [s2 / n * (1 - n / n_cases) for s2, n in zip(effects.noise, n_asked, strict=True)]
    assert np.diag(found) == pytest.approx(expected, abs=1e-12)
    assert np.abs(found - np.diag(np.diag(found))).max() < 1e-12
    assert found[2, 2] == pytest.approx(0.0, abs=1e-12)
    assert np.diag(effects.errors) == pytest.approx(effects.noise / np.array(n_asked))


def test_without_noise_a_kind_still_shares_what_it_shares():
    rng = np.random.default_rng(1)
    rewards = {f"m{i}": {f"c{j}": float(rng.random()) for j in range(6)} for i in range(3)}
    evidence = Evidence.gather(archive(rewards), case_ids=[f"c{j}" for j in range(12)])
    effects = EqualCases.estimate(evidence)
    alike = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]])
    found = without_noise(effects, SharedNoise(share=0.5, similarity=alike)).errors
    assert found[0, 1] == pytest.approx(0.4 * math.sqrt(found[0, 0] * found[1, 1]))
    assert found[0, 2] == pytest.approx(0.0, abs=1e-15)
