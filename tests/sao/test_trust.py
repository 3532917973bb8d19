"""Trust: a bound that a coin does not pass, sums that catch a drift, slopes that catch a flatterer."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import (
    binomtest,
    chi2,
    kstest,
    linregress,
    spearmanr,
    t as student_t,
    truncnorm,
)

from convergence_core.judges.trust.audit import (
    LEAST_TRUST,
    Audit,
    Item,
    Trust,
    audit,
    calibration_error,
    length_bias,
)
from convergence_core.judges.trust.drift import GREATEST, N_FIRST, SLACK, Drift
from convergence_core.judges.trust.exploitation import (
    LIMIT,
    N_ROUNDS,
    Exploitation,
    IncumbentMeans,
    slope_t,
)
from convergence_core.records import canonical_json
from tests.sao.planted import Judge


def items(accuracy: float, n: int, rng: np.random.Generator) -> list[Item]:
    found = []
    for _ in range(n):
        truth, is_right = bool(rng.random() < 0.5), bool(rng.random() < accuracy)
        found.append(Item(q=0.8 if truth == is_right else 0.2, first_is_right=truth))
    return found


def enabled(accuracy: float, n: int, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    return Trust().after(audit(items(accuracy, n, rng), rng)).is_enabled


@pytest.mark.statistical
def test_a_coin_is_disabled_and_a_judge_of_eighty_percent_is_believed():
    coins = sum(enabled(0.5, 50, seed) for seed in range(100))
    judges = sum(enabled(0.8, 50, seed) for seed in range(100))
    assert coins <= 5
    assert judges >= 90


@pytest.mark.parametrize(("n_right", "trusts"), [(34, False), (35, True), (25, False)])
def test_thirty_five_of_fifty_is_where_trust_begins(n_right: int, trusts: bool):
    found = Trust(n_right=n_right, n_items=50, n_different=50)
    assert found.is_enabled == trusts
    assert (found.value >= LEAST_TRUST) == trusts
    assert (found.value == 0.0) == (n_right == 25)
    assert (Trust().value, Trust().is_enabled) == (0.0, False)


@pytest.mark.statistical
def test_ten_items_at_a_time_enable_no_coin_before_the_fiftieth():
    n, heard = 300, 0
    for seed in range(n):
        rng, state = np.random.default_rng(seed), Trust()
        for _ in range(4):
            state = state.after(audit(items(0.5, 10, rng), rng))
            assert not state.is_enabled
            assert state.value == 0.0
        state = state.after(audit(items(0.5, 10, rng), rng))
        assert state.n_missing == 0
        heard += state.is_enabled
    # The bound is one of 10 %: 3 % more than a coin is what trust asks for.
    assert binomtest(heard, n, 0.05, "greater").pvalue > 1e-3, heard
    rng = np.random.default_rng(0)
    lucky = Trust().after(audit(items(1.0, 10, rng), rng))
    assert (lucky.value, lucky.n_missing) == (0.0, 40)
    # Asked again, the same ten are no further evidence of how many there are.
    assert lucky.after(audit(items(1.0, 10, rng), rng, n_new=0)).n_missing == 40


def biased(length: float, n: int, rng: np.random.Generator, *, of_truth: float = 0.0) -> Audit:
    """Return the audit of a judge that length moves; right answers are longer by ``of_truth``."""
    judge, found = Judge(length=length, delta=0.3), []
    for _ in range(n):
        sign = 1 if rng.random() < 0.5 else -1
        d = sign * of_truth + float(rng.normal(0.0, 0.5))
        q = judge.judge(sign * 1.0 + float(rng.normal(0.0, 0.5)), d, rng).q
        found.append(Item(q=q, first_is_right=sign > 0, log_length_ratio=d))
    return audit(found, rng)


@pytest.mark.statistical
def test_a_length_bias_of_three_aborts_and_none_does_not():
    seeds = [np.random.default_rng(seed) for seed in range(60)]
    strong = [biased(3.0, 50, rng) for rng in seeds]
    aborted = sum(one.abort_reason is not None for one in strong)
    assert binomtest(aborted, 60, 0.9, "less").pvalue > 1e-3, aborted
    assert np.median([one.length for one in strong if one.length]) == pytest.approx(3.0, abs=0.6)
    for of_truth in (0.0, 0.7):
        # Where right answers are longer, it is truth that a fair judge likes.
        fair = sum(
            biased(0.0, 50, rng, of_truth=of_truth).abort_reason is not None for rng in seeds
        )
        assert binomtest(fair, 60, 0.02, "greater").pvalue > 1e-3, fair
    shorter = biased(-3.0, 50, seeds[0])
    assert shorter.abort_reason is not None
    assert "-" in shorter.abort_reason


def test_length_bias_is_the_slope_of_least_squares_and_unknown_where_truth_explains_length():
    rng = np.random.default_rng(3)
    s, d = np.where(rng.random(40) < 0.5, 1.0, -1.0), rng.normal(0.0, 0.4, 40)
    said = 1.2 * s + 0.7 * d + rng.normal(0.0, 0.5, 40)
    q = 1.0 / (1.0 + np.exp(-said))
    found = [
        Item(q=float(p), first_is_right=bool(one > 0), log_length_ratio=float(x))
        for p, one, x in zip(q, s, d, strict=True)
    ]
    x = np.stack([s, d], axis=1)
    expected, *_ = np.linalg.lstsq(x, said, rcond=None)
    errors = said - x @ expected
    inverse = np.linalg.inv(x.T @ x)
    covariance = inverse @ (x.T * errors**2) @ x @ inverse * 40 / 38
    assert length_bias(found) == pytest.approx((expected[1], np.sqrt(covariance[1, 1])))
    always = [Item(q=0.9, first_is_right=True, log_length_ratio=0.7)] * 20
    assert length_bias(always) == (None, None)
    assert length_bias(found[:2]) == (None, None)
    assert length_bias([]) == (None, None)
    certain = [
        Item(q=float(one > 0), first_is_right=bool(one > 0), log_length_ratio=x)
        for one, x in zip(s, d, strict=True)
    ]
    assert length_bias(certain)[0] == pytest.approx(0.0, abs=1e-9)


def test_older_audits_weigh_less_and_empty_ones_age_nothing():
    rng = np.random.default_rng(0)
    good, bad = audit(items(1.0, 10, rng), rng), audit(items(0.0, 10, rng), rng)
    state = Trust().after(good).after(bad)
    assert (state.n_right, state.n_items) == pytest.approx((8.0, 18.0))
    assert state.after(audit([], rng)) is state


def test_an_audit_reports_its_measures():
    rng = np.random.default_rng(1)
    said = [
        Item(q=0.9, first_is_right=True),
        Item(q=0.6, first_is_right=False),
        Item(q=0.2, first_is_right=False),
        Item(q=0.5, first_is_right=True),
    ]
    found = audit(said, rng)
    assert found.n_right == 2.5
    assert found.accuracy == 0.625
    assert found.log_score == pytest.approx(np.mean(np.log([0.9, 0.4, 0.8, 0.5])))
    assert found.calibration_error == pytest.approx((0.1 + 0.6 + 0.2 + 0.5) / 4)
    expected = spearmanr([0.9, 0.6, 0.2, 0.5], [1, 0, 0, 1]).statistic
    assert found.correlation == pytest.approx(expected)
    assert found.interval is not None
    assert found.interval[0] <= expected <= found.interval[1]
    nothing = audit([], rng)
    assert (nothing.accuracy, nothing.log_score, nothing.interval) == (None, None, None)
    constant = audit([Item(q=0.5, first_is_right=True)] * 3, rng)
    assert constant.correlation is None
    assert isinstance(constant, Audit)


def test_a_judge_that_knows_its_odds_is_calibrated():
    rng = np.random.default_rng(2)
    said = rng.random(20_000)
    truth = (rng.random(20_000) < said).astype(float)
    assert calibration_error(said, truth) < 0.02
    assert calibration_error(np.ones(4), np.zeros(4)) == 1.0


# -- drift


def first_alarm(state: Drift, shift: float, n: int, seed: int) -> int | None:
    """Return the round of the first alarm, from 1, when the level has moved; ``None``: none in n."""
    rng = np.random.default_rng(seed)
    for k, value in enumerate(rng.normal(0.6 + 0.1 * shift, 0.1, n), start=1):
        state = state.after(float(value), 0.0)
        if state.is_alarming:
            return k
    return None


def quiet(n: int, seed: int) -> Drift:
    """Return the state after quiet rounds, of a level and a deviation that nobody told it."""
    state = Drift()
    for value in np.random.default_rng([seed, 1]).normal(0.6, 0.1, n):
        state = state.after(float(value), 0.0)
    return state


def known() -> Drift:
    return Drift(n=10**9, mean=0.6, squares=0.01 * 10**9)


def test_scores_of_quiet_rounds_are_standard_normal_from_the_first_one_on():
    scores = np.array([quiet(N_FIRST, seed).score(0.6 + 0.1 * x) for seed, x in _normals(600)])
    held = np.abs(scores) < GREATEST
    expected = truncnorm(-GREATEST, GREATEST).cdf
    test = kstest(scores[held], expected)
    assert test.pvalue > 1e-3, test
    # With the deviation of eight rounds taken for the true one, they would be wider.
    assert binomtest(int((~held).sum()), 600, 0.0027, alternative="greater").pvalue > 1e-3


def _normals(n: int) -> list[tuple[int, float]]:
    return list(enumerate(np.random.default_rng(99).normal(size=n)))


@pytest.mark.statistical
def test_quiet_rounds_alarm_as_seldom_as_stated_though_eight_say_what_is_usual():
    n = 400
    false = sum(first_alarm(quiet(N_FIRST, seed), 0.0, 30, seed) is not None for seed in range(n))
    # Significance 1e-3; .03 is stated, .1 is the most that would do.
    test = binomtest(false, n, 0.03, alternative="greater")
    assert test.pvalue > 1e-3, f"{false} of {n} quiet streams raised an alarm, 3 % stated"


@pytest.mark.slow
@pytest.mark.statistical
def test_a_false_alarm_takes_four_hundred_and_eighty_rounds():
    n = 300
    lengths = [first_alarm(quiet(N_FIRST, seed), 0.0, 10**4, seed) or 10**4 for seed in range(n)]
    # Run lengths are nearly exponential, so 2 sum / mean is chi-squared; significance 1e-3.
    assert chi2(2 * n).cdf(2 * sum(lengths) / 480) > 1e-3, np.mean(lengths)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("n_before", "shift", "stated"),
    [(None, 1.0, 0.95), (8, 2.0, 0.75), (16, 1.0, 0.54), (40, 1.0, 0.82), (80, 1.0, 0.9)],
)
def test_a_shift_is_caught_within_twenty_rounds_as_often_as_stated(
    n_before: int | None, shift: float, stated: float
):
    n, caught = 200, 0
    for seed in range(n):
        state = known() if n_before is None else quiet(n_before, seed)
        caught += state.is_alarming or first_alarm(state, shift, 20, seed) is not None
    test = binomtest(caught, n, stated, alternative="less")
    assert test.pvalue > 1e-3, f"{caught} of {n} caught, {stated:.0%} stated"


def test_the_first_rounds_only_say_what_is_usual():
    state = Drift()
    for k in range(N_FIRST):
        state = state.after(float(k % 2), 0.0)
    assert not state.is_alarming
    assert (state.mean, state.squares) == pytest.approx((0.5, 2.0))
    usual = state.after(0.5, 0.0)
    assert (usual.up, usual.down) == (0.0, 0.0)
    assert Drift(**json.loads(canonical_json(asdict(state)))) == state
    assert state.after(-9.0, 0.0).down == GREATEST - SLACK
    assert not state.after(-9.0, 0.0).is_alarming, "one round alone raises none"


def test_a_drift_is_never_learned_as_usual_and_an_alarm_ends_when_it_does():
    state = known()
    while not state.is_alarming:
        state = state.after(0.9, 0.0)
    held = state.mean, state.squares, state.n
    for _ in range(20):
        state = state.after(0.9, 0.0)
    assert (state.mean, state.squares, state.n) == held
    assert state.is_alarming
    for _ in range(300):
        state = state.after(0.6, 0.0)
    assert not state.is_alarming
    assert state.n > held[2]


def test_equal_rounds_make_no_change_infinite():
    state = Drift()
    for _ in range(N_FIRST + 3):
        state = state.after(0.5, 0.5)
    assert (state.up, state.down) == (0.0, 0.0)
    assert state.after(0.6, 0.5).up == GREATEST - SLACK


# -- exploitation


def standing(k: int, judge: float, grounded: float) -> IncumbentMeans:
    return IncumbentMeans(
        round_number=k,
        incumbent=canonical_json({"temperature": 0.1 * k, "system": f"text {k}"}),
        judge_mean=judge,
        grounded_mean=grounded,
    )


@pytest.mark.statistical
def test_an_exploiter_is_caught_within_ten_rounds_and_the_best_restored_bit_for_bit():
    caught = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        state, best = Exploitation(), (-np.inf, "")
        for k in range(10):
            truth = 0.7 - 0.03 * k + 0.03 * float(rng.normal())
            one = standing(k, 0.5 + 0.05 * k + 0.03 * float(rng.normal()), truth)
            best = max(best, (truth, one.incumbent))
            state = state.after(one)
            if state.is_frozen:
                assert state.restored == best[1]
                caught += 1
                break
    assert caught >= 95, caught


@pytest.mark.statistical
def test_quiet_rounds_seldom_look_like_exploitation():
    n = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        state = Exploitation()
        for k in range(30):
            state = state.after(standing(k, float(rng.normal()), float(rng.normal())))
        n += state.is_frozen
    assert n <= 200 * 0.12, n


def test_fewer_than_five_rounds_prove_nothing_and_an_alarm_stays():
    rising = [standing(k, 0.1 * k, -0.1 * k) for k in range(N_ROUNDS)]
    state = Exploitation()
    for one in rising:
        assert not state.is_frozen
        state = state.after(one)
    assert pytest.approx(student_t.ppf(0.95, N_ROUNDS - 2)) == LIMIT
    assert state.is_frozen
    assert state.restored == rising[0].incumbent
    assert state.after(standing(9, 0.0, 0.9)).is_frozen
    assert Exploitation.from_json(json.loads(canonical_json(asdict(state)))) == state
    assert Exploitation.from_json(asdict(Exploitation())) == Exploitation()
    assert Exploitation().restored is None


def test_the_slope_of_a_constant_is_nothing_and_of_a_line_endless():
    assert slope_t([1.0] * 5) == 0.0
    assert slope_t([0.0, 1.0, 2.0, 3.0, 4.0]) == 1e6
    noisy = [2.0, 1.0, 3.0, 2.0, 2.5]
    assert slope_t(noisy) == pytest.approx(
        linregress(range(5), noisy).slope / linregress(range(5), noisy).stderr
    )
