"""Earlier runs: believed as far as they agree, never about how good candidates are."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from convergence_core.evidence import Archive, Member
from convergence_core.posterior import SpaceModel
from convergence_core.posterior.gaussian_process import JITTER
from convergence_core.posterior.prior_runs import LEVEL_VARIANCE, _log_likelihoods, with_prior_runs
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.posterior.warped_posterior import WarpedPosterior
from convergence_core.records import Candidate, Params
from convergence_core.search.evolution import Breeder
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import Advice, AskRequest, Sampler
from convergence_core.search.samplers import EvolutionSampler, RandomSampler, ThompsonSampler
from convergence_core.search.warm_start import N_WINNERS, WarmStart, warm_start
from convergence_core.space import Choice, Float, Space
from convergence_core.space.arrays import Points
from tests.support.mixed_problem import mixed_space, mixed_value
from tests.support.random_spaces import points

SPACE = mixed_space()
MODEL = SpaceModel(space=SPACE)
N_CASES = 20
Value = Callable[[Params], float]


def replaced(params: Params) -> float:
    """A target that has nothing to do with ``mixed_value``."""
    value = {"mini": 0.9, "base": 0.55, "large": 0.5, "turbo": 0.6}[str(params["model"])]
    value += {"plain": 0.05, "cot": -0.1, "fewshot": -0.05, "role": 0.0, "json": 0.1}[
        str(params["prompt"])
    ]
    value -= 0.3 * (float(params["temperature"]) - 1.3) ** 2
    value -= 0.3 * (float(params["top_p"]) - 0.3) ** 2
    return min(1.0, max(0.0, value - 0.1 * bool(params["rag"])))


def night(
    n: int, *, value: Value = mixed_value, seed: int = 0, shift: float = 0.0, n_cells: int = 5
) -> Archive:
    """So many random candidates, each asked the same number of cases."""
    rng = np.random.default_rng([seed, 1])
    b = 0.1 * rng.standard_normal(N_CASES)
    members = {}
    for point in points(SPACE, n, rng):
        candidate = SPACE.candidate(point)
        cases = sorted(int(j) for j in rng.permutation(N_CASES)[:n_cells])
        rewards = {
            (f"c{j:02d}", 0): shift + 0.6 * value(point) + b[j] + 0.05 * rng.standard_normal()
            for j in cases
        }
        members[candidate.candidate_id] = Member(
            candidate=candidate, generation=0, rewards=rewards
        )
    return Archive(members)


def past(*archives: Archive) -> WarmStart:
    return warm_start(MODEL, [(f"run-{i}", archive) for i, archive in enumerate(archives)])


def fit(archive: Archive, *earlier: Archive) -> FittedSpaceModel:
    return replace(MODEL, earlier=past(*earlier).runs).fit(archive)


def agreement(archive: Archive, *earlier: Archive) -> tuple[float, ...]:
    learned = fit(archive, *earlier).learned
    assert learned is not None
    assert learned.agreement is not None
    return learned.agreement


def unseen(n: int, seed: int = 99) -> list[Candidate]:
    return [SPACE.candidate(point) for point in points(SPACE, n, np.random.default_rng(seed))]


# -- what is learned of the past -----------------------------------------------------------------


def test_same_target_is_believed_and_another_ignored():
    same = [agreement(night(20, seed=s), night(60, seed=50 + s))[0] for s in range(6)]
    other = [
        agreement(night(20, seed=s), night(60, value=replaced, seed=50 + s))[0] for s in range(6)
    ]
    assert min(same) > 0.5, same
    assert max(other) == 0.0, other


def test_each_run_has_a_discount_of_its_own():
    found = agreement(night(40), night(60, value=replaced, seed=8), night(60, seed=9))
    assert found[0] == 0.0
    assert found[1] > 0.5


def test_same_target_makes_unasked_candidates_known_better():
    some = unseen(100)
    truth = np.array([mixed_value(one.params) for one in some])
    gains = []
    for seed in range(6):
        now = night(15, seed=seed)
        errors = [
            1.0 - stats.spearmanr(fitted.posterior(some).mean, truth).statistic
            for fitted in (fit(now), fit(now, night(60, seed=50 + seed)))
        ]
        gains.append(errors[0] - errors[1])
    assert min(gains) > 0, gains


def test_with_a_past_that_is_ignored_every_draw_is_that_of_a_cold_run():
    now, some = night(20), unseen(50)
    other = night(60, value=lambda params: 1.0 - mixed_value(params), seed=7)
    assert agreement(now, other) == (0.0,)
    cold, warm = fit(now), fit(now, other)
    draws = [
        fitted.posterior([*some, *(m.candidate for m in now)]).draws(np.random.default_rng(3), 20)
        for fitted in (cold, warm)
    ]
    assert np.array_equal(draws[0], draws[1])
    assert cold.log_params is not None
    assert warm.log_params is not None
    assert cold.log_params.tolist() == warm.log_params.tolist()


def test_how_good_candidates_were_in_an_earlier_run_does_not_move_this_runs_claims():
    now = night(20)
    candidates = [member.candidate for member in now]
    low, high = (
        fit(now, night(60, seed=9, shift=shift)).posterior(candidates).mean
        for shift in (-0.15, 0.15)
    )
    # .3 in all earlier rewards.
    assert np.abs(high - low).max() < 0.03


def test_posterior_is_that_of_two_correlated_surfaces_by_hand():
    now, then = night(20), past(night(40, seed=9)).runs[0]
    cold = fit(now).learned
    assert cold is not None
    process, warp = cold.process, cold.warp
    slope = warp.slope(cold.effects.mean)
    targets, errors = warp.forward(cold.effects.mean), slope[:, None] * cold.effects.errors * slope
    warm, found = with_prior_runs(process, targets, errors, warp, [then])
    rho = found[0]
    assert rho > 0.3
    some = MODEL.encoding.encode([one.params for one in unseen(10)])

    def kernel(a: Points, b: Points) -> np.ndarray:
        return process.kernel.between(warm.log_params[:-1], a, b)

    own, v = np.exp(warm.log_params[-2]) + JITTER, np.exp(warm.log_params[-1])
    here, there = process.points, then.points
    n, m = len(here), len(there)
    measured = np.empty((n + m, n + m))
    measured[:n, :n] = kernel(here, here) + v * errors + own * np.eye(n)
    measured[:n, n:] = rho * kernel(here, there)
    measured[n:, :n] = measured[:n, n:].T
    slope = warp.slope(then.mean)
    measured[n:, n:] = kernel(there, there) + slope[:, None] * then.errors * slope
    measured[n:, n:] += own * np.eye(m) + LEVEL_VARIANCE
    across = np.hstack([kernel(some, here), rho * kernel(some, there)])
    mean = across @ np.linalg.solve(measured, np.append(targets, warp.forward(then.mean)))
    covariance = kernel(some, some) - across @ np.linalg.solve(measured, across.T)
    rows = np.full(10, -1, dtype=np.intp)
    got_mean, got_covariance = warm.joint(some, rows)
    assert got_mean == pytest.approx(mean, abs=1e-6)
    assert got_covariance == pytest.approx(covariance, abs=1e-6)


def test_likelihood_of_a_correlation_is_that_of_the_joint_normal_distribution():
    now, then = night(12), past(night(15, seed=9)).runs[0]
    cold = fit(now).learned
    assert cold is not None
    process, warp = cold.process, cold.warp
    slope = warp.slope(cold.effects.mean)
    targets, errors = warp.forward(cold.effects.mean), slope[:, None] * cold.effects.errors * slope
    slope = warp.slope(then.mean)
    there, noise = warp.forward(then.mean), slope[:, None] * then.errors * slope
    log_params = process.log_params.copy()
    log_params[-3:] = np.log([0.7, 0.11, 1.9])  # no two alike, so that none stands for another
    own, v = np.exp(log_params[-2]) + JITTER, np.exp(log_params[-1])

    def kernel(a: Points, b: Points) -> np.ndarray:
        return process.kernel.between(log_params[:-1], a, b)

    n, m = len(targets), len(there)
    here = kernel(process.points, process.points) + v * errors + own * np.eye(n)
    earlier = kernel(then.points, then.points) + noise + own * np.eye(m) + LEVEL_VARIANCE
    across = kernel(process.points, then.points)
    expected = []
    for rho in (0.0, 0.4, 0.8):
        joint = np.block([[here, rho * across], [rho * across.T, earlier]])
        both = stats.multivariate_normal(cov=joint).logpdf(np.append(targets, there))
        expected.append(both - stats.multivariate_normal(cov=earlier).logpdf(there))
    got = _log_likelihoods(
        process,
        log_params,
        (targets, errors),
        (then.points, there, noise),
        np.array([0.0, 0.4, 0.8]),
    )
    assert got - n / 2 * np.log(2 * np.pi) == pytest.approx(np.array(expected), abs=1e-6)


@pytest.mark.parametrize("n_runs", [1, 3])
def test_however_much_was_asked_earlier_a_discount_of_its_variance_is_left(n_runs: int):
    now = night(15)
    earlier = [night(33, seed=20 + i, n_cells=20) for i in range(n_runs)]
    fitted = fit(now, *earlier)
    assert fitted.learned is not None
    process, found = fitted.learned.process, fitted.learned.agreement
    assert found is not None
    rho = max(found)
    assert rho > 0.5
    known = next(iter(earlier[0])).candidate
    beliefs = fitted.posterior([known])
    assert isinstance(beliefs, WarpedPosterior)
    alone = fit(now).posterior([known])
    smooth = process.smooth_variance
    # What this run's own candidates leave, of which the past takes all but a share.
    assert beliefs.marginals[1][0] ** 2 > 0.5 * (1 - rho**2) * min(
        smooth, float(alone.marginals[1][0] ** 2)
    )


def test_only_candidates_of_this_run_are_handed_over():
    now, then = night(10), night(60, seed=9)
    sampler = ThompsonSampler(name="mab_evolution", space=SPACE, surrogate=MODEL)
    state = replace(sampler.start(), archive=now)
    found = recommend(
        state, rng=np.random.default_rng(0), surrogate=replace(MODEL, earlier=past(then).runs)
    )
    assert found is not None
    assert {ranked.candidate_id for ranked in found.ranking} == set(now.members)


def test_earlier_runs_give_way_oldest_first_to_what_the_run_asked_itself():
    earlier = past(night(40, seed=8), night(40, seed=9)).runs
    model = replace(MODEL, max_rows=120, earlier=earlier)
    n_used = []
    for n in (40, 41, 80, 81):
        learned = model.fit(night(n)).learned
        assert learned is not None
        n_used.append(0 if learned.agreement is None else len(learned.agreement))
        assert len(learned.process.points) <= 120
    assert n_used == [2, 1, 1, 0]


# -- what is taken over --------------------------------------------------------------------------


def narrow_space(**changes: object) -> Space:
    return Space(parameters={**SPACE.parameters, **changes})  # type: ignore[dict-item]


def test_candidates_outside_of_todays_space_are_dropped_and_counted():
    then = night(60)
    half = SpaceModel(space=narrow_space(temperature=Float(min=0.0, max=0.75)))
    start = warm_start(half, [("run", then)])
    n_inside = sum(float(m.candidate.params["temperature"]) <= 0.75 for m in then)
    assert (start.n_candidates, start.n_dropped) == (n_inside, 60 - n_inside)
    assert all(float(point["temperature"]) <= 0.75 for point in start.winners)
    assert len(start.runs[0].mean) == n_inside


@pytest.mark.parametrize(
    "space",
    [
        narrow_space(style=Choice(kind="categorical", choices=("a", "b"))),
        Space(parameters={n: p for n, p in SPACE.parameters.items() if n != "top_p"}),
    ],
    ids=["added", "removed"],
)
def test_a_parameter_more_or_less_leaves_nothing_of_the_past(space: Space):
    start = warm_start(SpaceModel(space=space), [("run", night(20))])
    assert start == WarmStart(n_runs=1, n_dropped=20)


def test_rewards_of_cases_held_out_today_are_not_learned_from():
    then = night(30)
    shown = Archive(
        {
            name: replace(
                member, rewards={c: r for c, r in member.rewards.items() if c[0] >= "c10"}
            )
            for name, member in then.members.items()
        }
    )
    hidden = frozenset(f"c{j:02d}" for j in range(10))
    a = warm_start(MODEL, [("run", then)], held_out=hidden)
    b = warm_start(MODEL, [("run", shown)])
    assert np.array_equal(a.runs[0].mean, b.runs[0].mean)
    assert a.winners == b.winners
    assert a.n_candidates == b.n_candidates


def test_winners_are_those_of_the_highest_posterior_means_of_each_run():
    a, b = night(30, seed=1), night(30, seed=2)
    start = past(a, b)
    assert len(start.winners) == 2 * N_WINNERS
    for i, archive in enumerate((a, b)):
        members = [member.candidate for member in archive]
        mean = MODEL.fit(archive).posterior(members).mean
        assert start.winners[i] == members[int(np.argmax(mean))].params


def test_a_few_candidates_teach_nothing_but_are_asked_again():
    start = past(night(3))
    assert start.runs == ()
    assert len(start.winners) == 3


@pytest.mark.parametrize("name", ["random", "evolution", "thompson"])
def test_every_sampler_asks_winners_in_its_first_generation(name: str):
    winners = past(night(30)).winners
    samplers: dict[str, Sampler] = {
        "random": RandomSampler(space=SPACE),
        "evolution": EvolutionSampler(space=SPACE, breeder=Breeder(space=SPACE), surrogate=MODEL),
        "thompson": ThompsonSampler(name="thompson", space=SPACE, surrogate=MODEL),
    }
    sampler = samplers[name]
    outside = {**winners[0], "temperature": 9.0}
    plan = sampler.ask(
        sampler.start(),
        np.random.default_rng(0),
        AskRequest(
            generation=0,
            n_generations=5,
            n_candidates=12,
            n_cells=60,
            case_ids=tuple(f"c{j:02d}" for j in range(N_CASES)),
            advice=Advice(winners=(outside, *winners)),
        ),
    )
    elites = [a.candidate.params for a in plan.assignments if a.candidate.origin == "elite"]
    assert elites == list(winners)
    assert all(cell in plan.exogenous for a in plan.assignments for cell in a.cells)


# -- what it is worth ----------------------------------------------------------------------------
