"""Pass and fail by ability and easiness, against the tangent's equations in full and drawn answers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.special import expit, logit

from convergence_core.posterior.case_effects import CaseEffects
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.item_response import EDGE, PROBIT, ItemResponse
from convergence_core.posterior.random_effects import RandomEffectsFit


def evidence(
    answers: np.ndarray, count: np.ndarray, *, weight: np.ndarray | None = None
) -> Evidence:
    """Evidence of means over repeats and their numbers, (M, N)."""
    n_members, n_cases = answers.shape
    shares = np.ones(n_cases) if weight is None else weight
    return Evidence(
        ids=tuple(f"m{i:03d}" for i in range(n_members)),
        case_ids=tuple(f"c{j:03d}" for j in range(n_cases)),
        mean=answers * (count > 0),
        count=count.astype(float),
        case_weight=shares / shares.sum(),
        binary=True,
        repeat_sum=float((count * answers * (1 - answers)).sum()),
        repeat_dof=int(np.maximum(count - 1, 0).sum()),
        repeat_squares=(count * answers * (1 - answers)).sum(axis=1),
    )


def drawn(
    seed: int,
    *,
    n_members: int = 40,
    n_cases: int = 60,
    n_asked: int = 20,
    case_sd: float = 2.0,
    repeats: int = 1,
) -> tuple[Evidence, np.ndarray]:
    """Answers of the model, and true chances, (M, N)."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(1.0, 0.7, n_members), rng.normal(0, case_sd, n_cases)
    p = expit(a[:, None] + b)
    count = np.zeros((n_members, n_cases))
    for i in range(n_members):
        count[i, rng.choice(n_cases, n_asked, replace=False)] = repeats
    return evidence(rng.binomial(repeats, p) / repeats, count), p


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n_members", "n_cases"), [(12, 30), (40, 15)])
def test_means_and_errors_are_those_of_the_tangents_in_full(n_members, n_cases, weighted):
    """Every cell's equation written out, and all derivatives by finite differences."""
    found, _ = drawn(1, n_members=n_members, n_cases=n_cases, n_asked=12, repeats=2)
    if weighted:
        weight = np.linspace(1.0, 3.0, n_cases)
        found = replace(found, case_weight=weight / weight.sum())
    items = ItemResponse.estimate(found)
    assert items is not None
    cells = found.count * found.case_weight  # rows sum to Kish's number
    kish = cells.sum(axis=1) ** 2 / (cells**2 / np.maximum(found.count, 1)).sum(axis=1)
    cells = cells * (kish / cells.sum(axis=1))[:, None]
    flat = 1 / np.sqrt(1 + PROBIT * items.easiness_variance)

    def chances(x: np.ndarray) -> np.ndarray:
        return np.asarray(expit(flat * (x[:n_members, None] + x[n_members:])))

    at = np.concatenate([items.ability, items.easiness])
    steps = 1e-6 * np.eye(len(at))
    moves = np.array([(chances(at + s) - chances(at - s)) / 2e-6 for s in steps])
    jacobian = (moves @ found.case_weight).T
    row, column = np.nonzero(found.count)
    p, of_cell = chances(at)[row, column], moves[:, row, column]
    precision = cells[row, column] / np.maximum(p * (1 - p), EDGE)
    # What is left of an answer where its noise is raised to the edge: it is no more precise.
    normal = (of_cell * precision) @ of_cell.T
    normal[n_members:, n_members:] += np.eye(n_cases) / items.variance
    measured = items.measure(found)
    by_hand = jacobian @ np.linalg.inv(normal) @ jacobian.T
    assert measured.errors == pytest.approx(by_hand, rel=0.02, abs=1e-4)
    # Abilities given the cases: scores over information.
    score = of_cell[:n_members] @ (precision * (found.mean[row, column] - p))
    by_hand = chances(at) @ found.case_weight
    by_hand += np.diag(jacobian) * score / np.diag(normal)[:n_members]
    assert measured.mean == pytest.approx(by_hand, abs=2e-3)


@pytest.mark.parametrize(("n_members", "n_cases"), [(12, 30), (40, 15)])
def test_the_likelihood_is_laplaces(n_members, n_cases):
    """b integrated out by its curvature, abilities free; by the smaller of two matrices."""
    rng = np.random.default_rng(0)
    precision = rng.uniform(0, 0.3, (n_members, n_cases)) * (
        rng.random((n_members, n_cases)) < 0.6
    )
    response = rng.normal(0, 2, precision.shape)
    solved = RandomEffectsFit.solve(response, precision, 2.0)
    of_b = np.diag(precision.sum(axis=0)) - precision.T @ (
        precision / precision.sum(axis=1, keepdims=True)
    )
    expected = np.linalg.slogdet(np.eye(n_cases) + 2.0 * of_b)[1]
    assert solved.log_det == pytest.approx(expected, rel=1e-9)
    assert RandomEffectsFit.solve(response, precision, 0.0).log_det == 0.0


def test_the_likelihood_of_no_differences_is_that_of_coins():
    """Eleven answers of one chance: the integral over its log-odds."""
    found = evidence(np.array([[1.0, 0.5, 1.0, 1.0]]), np.array([[4.0, 2.0, 3.0, 2.0]]))
    items = ItemResponse(
        ability=np.array([logit(10 / 11)]),
        easiness=np.zeros(4),
        easiness_variance=np.zeros(4),
        variance=0.0,
        case_weight=found.case_weight,
    )
    grid = np.linspace(-10, 30, 40_001)
    by_grid = float(np.log(np.trapezoid(expit(grid) ** 10 * expit(-grid), grid)))
    got = items._log_likelihood(found, found.count) + 0.5 * np.log(2 * np.pi)
    assert got == pytest.approx(by_grid, abs=0.2)


def test_where_answers_are_read_changes_what_they_say_of_nobody_else():
    """Beliefs far above what answers say move a measurement little, and cases not at all."""
    found, _ = drawn(2)
    items = ItemResponse.estimate(found)
    assert items is not None
    plain = items.measure(found)
    believed = items.relinearized(np.minimum(plain.mean + 0.2, 0.99))
    assert np.array_equal(believed.easiness, items.easiness)
    assert believed.variance == items.variance
    assert np.median(np.abs(believed.measure(found).mean - plain.mean)) < 0.05
    one = replace(items, ability=np.where(np.arange(40) == 3, believed.ability, items.ability))
    assert np.delete(one.measure(found).mean, 3) == pytest.approx(np.delete(plain.mean, 3))


@pytest.mark.statistical
@pytest.mark.parametrize("case_sd", [1.0, 2.5])
def test_means_are_right_and_their_intervals_hold(case_sd):
    """Over 40 worlds: that 90 % intervals cover less than .87 or more than .95 is refused at .1 %."""
    inside, bias = [], []
    for seed in range(40):
        found, p = drawn(seed, case_sd=case_sd)
        items = ItemResponse.estimate(found)
        assert items is not None
        measured = items.measure(found)
        apart = measured.mean - p.mean(axis=1)
        bias.append(apart.mean())
        inside.append(np.mean(np.abs(apart) <= 1.645 * np.sqrt(np.diag(measured.errors))))
    assert stats.ttest_1samp(inside, 0.87, alternative="greater").pvalue < 1e-3, np.mean(inside)
    assert stats.ttest_1samp(inside, 0.95, alternative="less").pvalue < 1e-3, np.mean(inside)
    assert abs(np.mean(bias)) < 0.01


@pytest.mark.statistical
@pytest.mark.parametrize(("n_cases", "n_shown"), [(500, 100), (200, 60), (60, 60)])
def test_able_candidates_are_not_read_too_high_where_cases_were_hardly_asked(n_cases, n_shown):
    """At the mean of ease an able candidate has more than its mean chance (Jensen): 30 worlds."""
    bias = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        p = expit(rng.normal(1.5, 0.7, 40)[:, None] + rng.normal(0, 2.0, n_cases))
        count = np.zeros(p.shape)
        for i in range(40):
            count[i, rng.choice(n_shown, 20, replace=False)] = 1
        found = evidence((rng.random(p.shape) < p).astype(float), count)
        items = ItemResponse.estimate(found)
        assert items is not None
        bias.append((items.measure(found).mean - p.mean(axis=1)).mean())
    error = np.std(bias, ddof=1) / 30**0.5
    assert abs(np.mean(bias)) < 0.005 + 3 * error
    assert error < 0.007


@pytest.mark.statistical
@pytest.mark.parametrize("case_sd", [1.0, 1.5, 2.5])
def test_how_much_cases_differ_is_found(case_sd):
    """Quasi-likelihood draws great differences to 0 (Breslow & Lin 1995), by a fifth at most here."""
    sds = []
    for seed in range(20):
        items = ItemResponse.estimate(drawn(seed, case_sd=case_sd, n_asked=30)[0])
        assert items is not None
        sds.append(items.variance**0.5)
    assert 0.8 * case_sd < np.mean(sds) < 1.1 * case_sd


@pytest.mark.statistical
def test_cases_that_do_not_differ_are_plain_coins():
    """Also where groups of one kind share their chunk, which looks like easy and hard cases."""
    n_found = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = np.repeat(expit(rng.normal(0.5, 0.7, 16)), 5)
        count = np.zeros((80, 80))
        for i in range(80):
            count[i, 5 * (i // 5) : 5 * (i // 5) + 5] = 1
        answers = (rng.random((80, 80)) < p[:, None]).astype(float)
        n_found += ItemResponse.estimate(evidence(answers, count)) is not None
        n_found += ItemResponse.estimate(drawn(seed, case_sd=0.0)[0]) is not None
    assert stats.binomtest(n_found, 120, 0.02, alternative="greater").pvalue > 1e-3, n_found


def test_only_pass_and_fail_of_several_cases_are_read_so():
    found, _ = drawn(3)
    assert ItemResponse.estimate(replace(found, binary=False)) is None
    single = evidence(np.ones((5, 1)), np.ones((5, 1)))
    assert ItemResponse.estimate(single) is None
    assert CaseEffects.estimate(found).items is not None
    assert CaseEffects.linear(found).items is None


def test_the_margin_is_of_the_likelihood_without_differences():
    """Answers as likely under both are not enough, however many there are."""
    found, p = drawn(4, case_sd=0.3, n_asked=60, n_members=80)
    items = ItemResponse.estimate(found)
    assert items is not None
    rng = np.random.default_rng(0)
    few = evidence(
        (rng.random(p.shape) < p).astype(float), found.count * (np.arange(80) < 2)[:, None]
    )
    few = replace(few, mean=few.mean[:2], count=few.count[:2], ids=few.ids[:2])
    assert ItemResponse.estimate(few) is None


def with_more(found: Evidence, row: int, cases: np.ndarray, answer: float) -> Evidence:
    """The evidence with further answers of one candidate."""
    mean, count = found.mean.copy(), found.count.copy()
    mean[row, cases], count[row, cases] = answer, 1.0
    return replace(found, mean=mean, count=count)


def test_an_answer_that_all_give_tells_nothing_of_an_ability():
    """Ten more right answers where all are right: a linear model would change its mind."""
    rng = np.random.default_rng(5)
    easy = np.arange(60) < 30
    p = expit(rng.normal(0.0, 0.7, 200)[:, None] + np.where(easy, 8.0, 0.0))
    count = np.zeros(p.shape)
    for i in range(200):
        count[i, rng.choice(30, 8, replace=False)] = 1
        count[i, 30 + rng.choice(30, 10, replace=False)] = 1
    found = evidence((rng.random(p.shape) < p).astype(float), count)
    some = np.flatnonzero((found.count[0] == 0) & easy)[:10]
    more = with_more(found, 0, some, 1.0)
    moved, narrowed = [], []
    for estimate in (CaseEffects.estimate, CaseEffects.linear):
        before, after = estimate(found), estimate(more)
        moved.append(after.mean[0] - before.mean[0])
        narrowed.append(after.errors[0, 0] / before.errors[0, 0])
    assert abs(moved[0]) < 0.3 * abs(moved[1]), moved
    assert narrowed[0] > 0.9, narrowed
    assert narrowed[1] < 0.75, narrowed


def test_information_is_greatest_where_half_are_right():
    items = ItemResponse(
        ability=np.zeros(3),
        easiness=np.array([-3.0, 0.0, 0.0, 1.0, 3.0]),
        easiness_variance=np.zeros(5),
        variance=1.0,
        case_weight=np.array([0.2, 0.2, 0.1, 0.3, 0.2]),
    )
    level = float(items.expected(np.array([0.4]))[0] @ items.case_weight)
    p = expit(0.4 + items.easiness)
    assert items.information(level) == pytest.approx(items.case_weight * p * (1 - p), abs=1e-6)


@pytest.mark.statistical
def test_answers_that_tell_bring_leaders_nearer_to_the_truth_than_others_do():
    """Ten more answers of each of the best ten: those that tell most, or any; over 30 worlds, at .1 %.

    Sixty cases that most answer, ten that hardly anybody does, thirty in between.
    """
    gain = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        b = np.repeat([4.0, -4.0, 0.0], [60, 10, 30]) + rng.normal(0, 1.0, 100)
        p = expit(rng.normal(0.5, 0.5, 40)[:, None] + b)
        answers = (rng.random(p.shape) < p).astype(float)
        count = np.zeros(p.shape)
        for i in range(40):
            count[i, rng.choice(100, 15, replace=False)] = 1
        items = ItemResponse.estimate(evidence(answers, count))
        assert items is not None
        leaders = np.argsort(-p.mean(axis=1))[:10]
        telling = items.information(float(p[leaders].mean()))
        apart = []
        for order in (np.argsort(-telling), rng.permutation(100)):
            more = count.copy()
            for i in leaders:
                more[i, [j for j in order if not count[i, j]][:10]] = 1
            after = ItemResponse.estimate(evidence(answers, more))
            assert after is not None
            error = (after.measure(evidence(answers, more)).mean - p.mean(axis=1))[leaders]
            apart.append(np.std(error))  # what all share moves nobody's place
        gain.append(apart[1] - apart[0])
    assert stats.ttest_1samp(gain, 0.0, alternative="greater").pvalue < 1e-3, np.mean(gain)


@pytest.mark.parametrize("mean", [0.0, 0.01, 0.3, 0.9, 1.0])
def test_abilities_are_those_of_the_mean_rewards(mean):
    items = ItemResponse.estimate(drawn(6)[0])
    assert items is not None
    back = items.expected(items.ability_of(np.full(3, mean))) @ items.case_weight
    assert back == pytest.approx(np.clip(mean, 0.002, 0.998), abs=1e-4)


def test_a_case_that_nobody_was_asked_counts_as_any_case_and_widens_errors():
    """Of b ~ N(0, 4) nothing is known: the chance is its mean over b, nearer to a half."""
    found, _ = drawn(7, n_members=200, n_cases=30)
    count = found.count.copy()
    count[:, 3] = 0
    less = replace(found, count=count, mean=found.mean * (count > 0))
    items = ItemResponse.estimate(less)
    assert items is not None
    assert items.easiness[3] == pytest.approx(0.0, abs=1e-12)
    assert items.easiness_variance[3] == pytest.approx(items.variance, rel=0.02)
    b = np.random.default_rng(0).normal(0, items.variance**0.5, 200_000)
    for ability in (-1.0, 0.5, 2.0):
        expected = items.expected(np.array([ability]))[0, 3]
        assert expected == pytest.approx(expit(ability + b).mean(), abs=0.015)
    of_three = replace(items, case_weight=np.eye(30)[3]).measure(less).errors
    assert np.diag(of_three).min() > 4 * np.diag(items.measure(less).errors).max()


def test_answers_alone_say_what_the_tangent_says():
    found, _ = drawn(8)
    items = ItemResponse.estimate(found)
    assert items is not None
    rows = np.array([2, 5])
    count = np.zeros((2, 60))
    count[:, 10:25] = 2
    p = items.expected(items.ability[rows])
    mean, variance = items.alone(rows, count, count * p)
    assert mean == pytest.approx(p @ found.case_weight)
    # A step of the ability moves the mean by slope, and is told by what it moves these answers.
    step = 1e-4
    moves = (items.expected(items.ability[rows] + step) - p) / step
    slope = moves @ found.case_weight
    better, _ = items.alone(rows, count, count * (p + 0.005 * moves))
    assert better - mean == pytest.approx(0.005 * slope, rel=0.05)
    information = (count * moves**2 / np.maximum(p * (1 - p), EDGE)).sum(axis=1)
    assert variance == pytest.approx(slope**2 / information, rel=0.05)
    worst, _ = items.alone(rows, count, 0.0 * count)
    assert (worst >= 0).all()


def test_the_noise_is_that_of_an_answer_where_cases_are_asked_as_they_tell():
    """Ease known: n answers shared out by what they tell leave an nth of it."""
    found, _ = drawn(9)
    items = ItemResponse.estimate(found)
    assert items is not None
    items = replace(items, easiness_variance=np.zeros(60), variance=1e-9)
    p = items.expected(items.ability)
    share = np.maximum(p * (1 - p), EDGE)
    n = 1e5
    count = n * share / share.sum(axis=1, keepdims=True)
    asked = items.measure(evidence(p, count))
    assert asked.residuals.own == pytest.approx(asked.noise / n, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_was_asked_the_estimates_are_finite_and_the_errors_a_covariance(data):
    n_members, n_cases = data.draw(st.integers(2, 12)), data.draw(st.integers(2, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    count = rng.integers(0, 3, (n_members, n_cases)).astype(float)
    count[count.sum(axis=1) == 0, 0] = 1
    level = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=n_cases, max_size=n_cases))
    )
    answers = rng.binomial(np.maximum(count, 1).astype(int), level) / np.maximum(count, 1)
    found = evidence(answers, count)
    items = ItemResponse.estimate(found)
    if items is None:
        return
    for one in (items, items.relinearized(rng.uniform(-0.5, 1.5, n_members))):
        measured = one.measure(found)
        for part in (measured.mean, measured.errors, measured.noise, measured.residuals.loading):
            assert np.isfinite(part).all()
        assert np.array_equal(measured.errors, measured.errors.T)
        assert np.linalg.eigvalsh(measured.errors).min() > -1e-10
        assert (measured.noise > 0).all()
