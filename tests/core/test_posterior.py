"""The posterior: closed forms, what is taken out, what is shrunk, and whether its intervals hold."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from convergence_core.archive import Archive
from convergence_core.posterior import (
    Beliefs,
    CaseModel,
    Evidence,
    Posterior,
    Variances,
    case_model,
)
from convergence_core.records import Evaluation, Trial
from tests.support.archives import archive, candidate, two_way

KNOWN = Variances(center=0.4, root=0.02, child=0.005, shift=-0.01, case=0.03, noise=0.05)
NO_CASES = replace(KNOWN, case=1e-12)


def believed(
    evidence: Archive, *more: str, variances: Variances | None = None, **fit: Any
) -> Beliefs:
    members = [member.candidate for member in evidence]
    model = CaseModel(variances=variances)
    return model.fit(evidence, **fit).posterior([*members, *(candidate(name) for name in more)])


# -- closed forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 40])
def test_without_case_effects_a_gaussian_is_the_conjugate_one(n):
    y = np.linspace(0.2, 0.7, n)
    beliefs = believed(archive({"a": {f"c{j}": y[j] for j in range(n)}}), variances=NO_CASES)
    precision = 1 / NO_CASES.root + n / NO_CASES.noise
    mean = (NO_CASES.center / NO_CASES.root + y.sum() / NO_CASES.noise) / precision
    exact = stats.norm(mean, precision**-0.5)
    assert beliefs.mean[0] == pytest.approx(mean)
    assert beliefs.sd[0] == pytest.approx(exact.std(), rel=1e-6)
    low, high = beliefs.interval(0.9)
    assert (low[0], high[0]) == pytest.approx(np.clip(exact.interval(0.9), 0, 1), rel=1e-5)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (2, 5), (30, 10)])
@pytest.mark.parametrize(("hits", "n"), [(0, 4), (3, 4), (17, 20)])
def test_without_case_effects_zeros_and_ones_give_the_conjugate_beta(alpha, beta, hits, n):
    prior = stats.beta(alpha, beta)
    known = Variances(
        center=prior.mean(),
        root=prior.var(),
        noise=prior.mean() - prior.var() - prior.mean() ** 2,  # E[p(1-p)]
        case=1e-12,
    )
    beliefs = believed(archive({"a": {f"c{j}": j < hits for j in range(n)}}), variances=known)
    exact = stats.beta(alpha + hits, beta + n - hits)
    assert beliefs.mean[0] == pytest.approx(exact.mean(), rel=1e-6)
    assert beliefs.sd[0] == pytest.approx(exact.std(), rel=1e-6)
    low, high = beliefs.interval(0.95)
    assert (low[0], high[0]) == pytest.approx(exact.interval(0.95), rel=1e-5)
    drawn = beliefs.draws(np.random.default_rng(0), 4000)[:, 0]
    assert stats.kstest(drawn, exact.cdf).pvalue > 1e-3


def test_the_joint_posterior_is_that_of_the_dense_two_way_model():
    rng = np.random.default_rng(3)
    n_members, n_cases = 5, 7
    seen = rng.random((n_members, n_cases)) < 0.6
    seen[:, 0] = True
    y = rng.uniform(0.1, 0.9, seen.shape)
    table = {
        f"m{i}": {f"c{j}": y[i, j] for j in range(n_cases) if seen[i, j]} for i in range(n_members)
    }
    cases = [f"c{j}" for j in range(n_cases)]
    beliefs = believed(archive(table), variances=KNOWN, case_ids=cases)
    # theta = A u with u = (a, b); y = X u + noise.
    i, j = np.nonzero(seen)
    x = np.zeros((len(i), n_members + n_cases))
    x[np.arange(len(i)), i] = x[np.arange(len(i)), n_members + j] = 1
    prior = np.diag([KNOWN.root] * n_members + [KNOWN.case] * n_cases)
    start = np.array([KNOWN.center] * n_members + [0.0] * n_cases)
    gain = prior @ x.T @ np.linalg.inv(x @ prior @ x.T + KNOWN.noise * np.eye(len(i)))
    mean = start + gain @ (y[i, j] - x @ start)
    covariance = prior - gain @ x @ prior
    share = np.hstack([np.eye(n_members), np.full((n_members, n_cases), 1 / n_cases)])
    assert beliefs.mean == pytest.approx(share @ mean)
    exact = share @ covariance @ share.T
    assert beliefs.variance == pytest.approx(np.diag(exact))
    drawn = beliefs.draws(rng, 60_000)
    assert np.cov(drawn.T) == pytest.approx(exact, abs=6e-4)


def test_of_many_cases_effects_are_solved_for_almost_as_well(monkeypatch):
    evidence, _ = two_way(np.random.default_rng(4), n_members=40, n_cases=60, share=0.3)
    exact = believed(evidence, variances=KNOWN)
    monkeypatch.setattr(case_model, "MAX_EXACT_CASES", 10)
    rough = believed(evidence, variances=KNOWN)
    assert rough.mean == pytest.approx(exact.mean, abs=2e-3)
    assert rough.sd == pytest.approx(exact.sd, rel=0.1)


# -- what is taken out, what is shrunk -----------------------------------------------------------


def test_candidates_that_met_different_cases_compare():
    """``good`` met the hard cases only: its raw mean is lower, its posterior mean higher."""
    easy, hard = [f"e{j}" for j in range(8)], [f"h{j}" for j in range(8)]
    table = {f"m{i}": {**dict.fromkeys(easy, 0.8), **dict.fromkeys(hard, 0.3)} for i in range(4)}
    table["good"] = dict.fromkeys(hard, 0.45)
    table["poor"] = dict.fromkeys(easy, 0.7)
    beliefs = believed(archive(table))
    mean = dict(zip(beliefs.ids, beliefs.mean, strict=True))
    assert mean["good"] > mean["m0"] > mean["poor"]


def test_little_evidence_is_shrunk_more():
    rng = np.random.default_rng(5)
    table = {f"m{i}": {f"c{j}": rng.normal(0.5, 0.1) for j in range(30)} for i in range(10)}
    table["lucky"] = {"c0": 0.95, "c1": 0.95}
    table["proven"] = {f"c{j}": 0.9 + 0.1 * (j % 2) for j in range(30)}
    beliefs = believed(archive(table))
    mean = dict(zip(beliefs.ids, beliefs.mean, strict=True))
    sd = dict(zip(beliefs.ids, beliefs.sd, strict=True))
    assert mean["lucky"] < mean["proven"]
    assert sd["lucky"] > sd["proven"]


def test_a_mean_follows_the_weights_of_cases():
    table = {f"m{i}": {f"c{j}": 0.2 + 0.6 * (j == 0) for j in range(20)} for i in range(3)}
    plain = believed(archive(table)).mean[0]
    heavy = believed(archive(table), case_weights={"c0": 19.0}).mean[0]
    assert plain == pytest.approx(0.23, abs=0.02)
    assert heavy == pytest.approx(0.5, abs=0.03)


def test_a_child_starts_where_its_parents_are():
    table = {"a": {f"c{j}": 0.8 for j in range(20)}, "b": {f"c{j}": 0.2 for j in range(20)}}
    evidence = archive(table)
    fitted = CaseModel(variances=KNOWN).fit(evidence)
    family = [candidate("of_a", ["a"]), candidate("of_both", ["a", "b"]), candidate("of_none")]
    beliefs = fitted.posterior([*(member.candidate for member in evidence), *family])
    a, b, of_a, of_both, of_none = beliefs.mean
    assert of_a == pytest.approx(a + KNOWN.shift)
    assert of_both == pytest.approx((a + b) / 2 + KNOWN.shift)
    assert of_none == pytest.approx(KNOWN.center, abs=0.1)
    assert beliefs.sd[2] > beliefs.sd[0]


def test_a_child_is_drawn_with_its_parents():
    evidence = archive({"a": {"c0": 0.6}, "b": {"c0": 0.5}})
    fitted = CaseModel(variances=KNOWN).fit(evidence)
    members = [candidate("a"), candidate("b"), candidate("x", ["a"]), candidate("y", ["a", "b"])]
    beliefs = fitted.posterior(members)
    drawn = beliefs.draws(np.random.default_rng(6), 40_000)
    assert drawn.mean(axis=0) == pytest.approx(beliefs.mean, abs=3e-3)
    assert drawn.std(axis=0) == pytest.approx(beliefs.sd, rel=0.02)
    correlation = np.corrcoef(drawn.T)
    assert correlation[0, 2] > 0.7
    assert correlation[0, 2] > correlation[0, 3] > correlation[0, 1]


def test_an_asked_child_leans_on_its_parents():
    table = {"a": {f"c{j}": 0.8 for j in range(20)}, "b": {f"c{j}": 0.2 for j in range(20)}}
    children = {"of_a": ["a"], "of_b": ["b"]}
    evidence = archive({**table, "of_a": {"c0": 0.5}, "of_b": {"c0": 0.5}}, children)
    mean = believed(evidence).mean
    assert mean[2] > mean[3]


def test_the_shift_of_children_is_learned_over_generations():
    """A shift that adds up over generations is estimated once, not once per generation."""
    rng = np.random.default_rng(7)
    table, parents = {}, {}
    for line in range(12):
        a = rng.normal(0.7, 0.03)
        for age in range(10):
            name = f"m{line}_{age}"
            mean = a - 0.03 * age
            table[name] = {f"c{j}": mean + rng.normal(0, 0.1) for j in range(6)}
            parents[name] = [f"m{line}_{age - 1}"] if age else []
    fitted = CaseModel().fit(archive(table, parents))
    assert fitted.variances.shift == pytest.approx(-0.03, abs=0.006)


def test_repeats_tell_lasting_noise_from_passing_noise():
    """Where repeats agree, a mean over all cases is known; where they do not, it is not."""
    rng = np.random.default_rng(8)

    def sd(repeat_noise: float) -> float:
        table = {}
        for i in range(6):
            own = rng.normal(0.5, 0.1, 20)
            table[f"m{i}"] = {
                (f"c{j}", repeat): own[j] + rng.normal(0, repeat_noise)
                for j in range(20)
                for repeat in range(2)
            }
        return float(believed(archive(table)).sd.mean())

    assert sd(0.005) < 0.25 * sd(0.2)


# -- properties ----------------------------------------------------------------------------------


def test_nothing_seen_leaves_the_guess():
    beliefs = believed(Archive(), "a", "b")
    assert isinstance(beliefs, Beliefs)
    assert beliefs.mean == pytest.approx([0.5, 0.5])
    assert (beliefs.sd > 0.05).all()
    assert beliefs.draws(np.random.default_rng(0), 3).shape == (3, 2)
    posterior: Posterior = beliefs
    assert posterior.ids == ("a", "b")


@pytest.mark.parametrize("reward", [0.0, 0.5, 1.0])
def test_equal_rewards_leave_room_for_doubt(reward):
    beliefs = believed(archive({f"m{i}": {"c0": reward, "c1": reward} for i in range(3)}), "new")
    low, high = beliefs.interval(0.95)
    assert np.isfinite(beliefs.mean).all()
    assert ((low >= 0) & (high <= 1) & (low < high)).all()
    assert beliefs.sd[-1] > 0.003


def test_order_of_trials_does_not_matter():
    evidence, _ = two_way(np.random.default_rng(9), n_members=12, n_cases=6, share=0.5)
    trials = [
        Trial(
            candidate=member.candidate,
            evaluations=tuple(
                Evaluation(
                    eval_id="",
                    cell=_cell(member.candidate.candidate_id, case),
                    generation=0,
                    status="ok",
                    reward=reward,
                )
                for (case, _), reward in member.rewards.items()
            ),
        )
        for member in evidence
    ]
    one, other = (believed(Archive().tell(order, 0)) for order in (trials, trials[::-1]))
    assert one.ids == other.ids
    assert np.array_equal(one.mean, other.mean)


def test_cases_outside_of_the_given_ones_do_not_count():
    evidence = archive({"a": {"c0": 0.2, "old": 1.0}, "b": {"old": 1.0}})
    table = Evidence.gather(evidence, case_ids=["c0", "c1"])
    assert table.ids == ("a",)
    assert table.mean.tolist() == [[0.2, 0.0]]
    assert believed(evidence, case_ids=["c0", "c1"]).ids == ("a", "b")


def test_zeros_and_ones_are_told_by_evidence():
    assert Evidence.gather(archive({"a": {"c0": 1, "c1": 0}})).binary
    assert not Evidence.gather(archive({"a": {"c0": 1, "c1": 0.5}})).binary


def test_probability_within_counts_draws():
    beliefs = believed(archive({"a": {"c0": 0.6, "c1": 0.7}, "b": {"c0": 0.5, "c1": 0.4}}))
    rng = np.random.default_rng(1)
    tight = beliefs.probability_within(rng, 2000, index=0, delta=0.0)
    assert 0.5 < tight < 1
    assert beliefs.probability_within(rng, 2000, index=0, delta=2.0) == 1
    both = tight + beliefs.probability_within(rng, 2000, index=1, delta=0.0)
    assert both == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("level", [0, 1, -0.5])
def test_levels_lie_between_zero_and_one(level):
    with pytest.raises(ValueError, match="level"):
        believed(archive({"a": {"c0": 1}})).interval(level)


@pytest.mark.statistical
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_intervals_hold_the_true_means_as_often_as_they_say(binary, share):
    hits = []
    for seed in range(12):
        rng = np.random.default_rng(100 + seed)
        evidence, truth = two_way(rng, n_members=40, n_cases=40, share=share, binary=binary)
        low, high = believed(evidence).interval(0.9)
        hits.append(float(((low <= truth) & (truth <= high)).mean()))
    # Candidates of one archive share case effects, so archives are the sample.
    assert 0.85 <= np.mean(hits) <= 0.96, np.round(hits, 2)


@pytest.mark.statistical
def test_posterior_means_are_nearer_to_the_truth_than_raw_means():
    errors = []
    for seed in range(8):
        rng = np.random.default_rng(200 + seed)
        evidence, truth = two_way(rng, n_members=60, n_cases=40, share=0.15)
        raw = np.array([np.mean(list(member.rewards.values())) for member in evidence])
        beliefs = believed(evidence)
        errors.append([np.square(e - truth).mean() ** 0.5 for e in (beliefs.mean, raw)])
    ours, plain = np.mean(errors, axis=0)
    assert ours < 0.75 * plain, (ours, plain)


def _cell(candidate_id: str, case_id: str):
    from convergence_core.records import Cell

    return Cell(candidate_id=candidate_id, case_id=case_id)
