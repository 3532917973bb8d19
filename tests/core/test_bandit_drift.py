"""Changes are found, false alarms are as rare as stated, and what becomes of rewards."""

import numpy as np
import pytest

from convergence_core.bandit import (
    BetaArms,
    DriftWatch,
    OpenDecision,
    QualityConstraint,
    Receipt,
    receive,
)
from convergence_core.bandit.drift import N_STARTS


def first_alarm(means: list[float], seed: int, *, rate: float = 20_000.0) -> int | None:
    """Return after how many rewards of one arm an alarm was raised."""
    rng, watch = np.random.default_rng(seed), DriftWatch.begin(1, rewards_per_false_alarm=rate)
    for n, mean in enumerate(means, start=1):
        watch, alarm = watch.tell(0, float(rng.random() < mean))
        if alarm is not None:
            return n
    return None


@pytest.mark.statistical
@pytest.mark.parametrize("mean", [0.7, 0.03])
@pytest.mark.slow
def test_false_alarms_are_at_most_as_frequent_as_stated(mean: float):
    """Runs are cut at the stated mean time, which can only lower their own."""
    n_runs, length, rate = 40, 400, 400.0
    alarms = [first_alarm([mean] * length, seed, rate=rate) for seed in range(n_runs)]
    mean_time = np.mean([length if alarm is None else alarm for alarm in alarms])
    assert mean_time > 0.5 * rate, f"an alarm every {mean_time:.0f} rewards, {rate:.0f} stated"


@pytest.mark.statistical
@pytest.mark.parametrize(("before", "after"), [(0.8, 0.3), (0.3, 0.7), (0.95, 0.75)])
def test_a_change_is_found_soon(before: float, after: float):
    found = [first_alarm([before] * 500 + [after] * 500, seed) for seed in range(8)]
    assert all(alarm is not None and alarm > 500 for alarm in found), found
    assert np.median([alarm for alarm in found if alarm is not None]) < 650


def test_an_alarm_says_what_changed():
    rng, watch, alarm = np.random.default_rng(0), DriftWatch.begin(2), None
    n = 0
    while alarm is None:
        n += 1
        watch, quiet = watch.tell(0, float(rng.random() < 0.6))
        assert quiet is None
        watch, alarm = watch.tell(1, float(rng.random() < (0.9 if n <= 300 else 0.2)))
    assert alarm.arm == 1
    assert alarm.before == pytest.approx(0.9, abs=0.1)
    assert alarm.after == pytest.approx(0.2, abs=0.2)
    assert 0 < alarm.n_after <= n - 280
    assert alarm.n == n
    assert watch.arms[1].n == 0, "the watch begins anew"
    assert watch.arms[0].n == n


def test_a_long_watch_keeps_few_sequences():
    watch, rng = DriftWatch.begin(1), np.random.default_rng(3)
    for _ in range(1_200):
        watch, _ = watch.tell(0, float(rng.random() < 0.5))
    sequences = watch.arms[0].sequences
    assert len(sequences) <= N_STARTS
    assert sequences[0].n == 1_200, "the oldest stays"
    assert sequences[-1].n == 10


def test_a_watch_survives_json():
    watch, rng = DriftWatch.begin(2, rewards_per_false_alarm=5_000), np.random.default_rng(3)
    for _ in range(57):
        watch, _ = watch.tell(0, float(rng.random()))
    assert DriftWatch.from_json(watch.to_json()) == watch


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"rewards_per_false_alarm": 100, "arms": 3},
        {"rewards_per_false_alarm": 100, "arms": [3]},
        {"rewards_per_false_alarm": 1, "arms": []},
    ],
)
def test_what_is_no_watch_is_refused(value: dict[str, object]):
    with pytest.raises(ValueError, match="not a drift watch"):
        DriftWatch.from_json(value)  # type: ignore[arg-type]


def test_rewards_out_of_range_are_refused_by_the_watch():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        DriftWatch.begin(1).tell(0, 2.0)


@pytest.mark.statistical
@pytest.mark.slow
def test_an_alarm_that_reopens_its_arm_ends_the_regret_of_a_flip():
    """Arms .8 and .6; the better falls to .3 at request 2,000 of 4,000."""
    regrets = []
    for seed in range(3):
        rng, arms, watch = (
            np.random.default_rng(seed),
            BetaArms.begin([1.0, 1.0], 1.0),
            DriftWatch.begin(2),
        )
        regret = 0.0
        for t in range(4_000):
            means = (0.3, 0.6) if t >= 2_000 else (0.8, 0.6)
            arm = int(arms.draw(rng).argmax())
            reward = float(rng.random() < means[arm])
            regret += (max(means) - means[arm]) if t >= 2_000 else 0.0
            arms = arms.tell(arm, reward)
            watch, alarm = watch.tell(arm, reward)
            if alarm is not None:
                since = alarm.after * alarm.n_after
                arms = arms.reopened(arm, successes=since, failures=alarm.n_after - since)
        regrets.append(regret)
    assert np.mean(regrets) <= 50.0, regrets


OPEN = OpenDecision(expires_us=1_000)
DONE = OpenDecision(expires_us=1_000, reward=0.5)
OK = Receipt(status="ok", stored="ok", learns=True)


@pytest.mark.parametrize(
    ("decision", "now_us", "expected"),
    [
        (OPEN, 999, OK),
        (OpenDecision(expires_us=None), 10**18, OK),
        (OPEN, 1_000, Receipt(status="late", stored="late", learns=False)),
        (DONE, 999, Receipt(status="duplicate", stored=None, learns=False)),
        (DONE, 5_000, Receipt(status="duplicate", stored=None, learns=False)),
        (
            OpenDecision(expires_us=1_000, reward=0.4),
            999,
            Receipt(status="conflict", stored="conflict", learns=False),
        ),
        (None, 999, Receipt(status="unknown", stored="orphan", learns=False)),
    ],
)
def test_each_kind_of_reward_has_its_end(
    decision: OpenDecision | None, now_us: int, expected: Receipt
):
    assert receive(0.5, decision, now_us) == expected


def test_late_rewards_count_where_that_is_asked_for():
    assert receive(0.5, OPEN, 2_000, late_counts=True) == Receipt(
        status="late", stored="late", learns=True
    )


@pytest.mark.parametrize("reward", [-0.1, 1.1, float("nan"), float("inf"), float("-inf")])
def test_what_is_no_reward_is_refused_before_anything_else(reward: float):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        receive(reward, None, 0)


CHEAP = QualityConstraint(least=0.9, confidence=0.95, explore=0.2)


def test_the_cheapest_arm_that_holds_serves():
    plan = CHEAP.plan([980, 985, 600], [1_000, 1_000, 1_000], [2.0, 3.0, 1.0])
    assert plan.standing == ("holds", "holds", "fails")
    assert plan.serving == 0
    assert plan.shares == (1.0, 0.0, 0.0)


def test_a_cheaper_arm_that_is_undecided_gets_its_chance_and_a_dearer_one_none():
    plan = CHEAP.plan([980, 18, 18], [1_000, 20, 20], [2.0, 1.0, 3.0])
    assert plan.standing == ("holds", "undecided", "undecided")
    assert plan.shares == pytest.approx((0.8, 0.2, 0.0))


def test_where_none_holds_the_best_serves_and_all_undecided_get_a_chance():
    plan = CHEAP.plan([9, 8, 100], [10, 10, 1_000], [2.0, 1.0, 0.1])
    assert plan.standing == ("undecided", "undecided", "fails")
    assert plan.serving == 0
    assert plan.shares == pytest.approx((0.8, 0.2, 0.0))


def test_arms_without_requests_are_undecided():
    plan = CHEAP.plan([0, 0], [0, 0], [1.0, 2.0])
    assert (plan.lows, plan.highs) == ((0.0, 0.0), (1.0, 1.0))
    assert plan.shares == pytest.approx((0.8, 0.2))


@pytest.mark.statistical
def test_an_arm_that_does_not_hold_is_seldom_said_to_at_any_look():
    rng, wrong, n_runs = np.random.default_rng(8), 0, 100
    for _ in range(n_runs):
        sums = np.cumsum(rng.random((2, 600)) < 0.899, axis=1)
        looks = range(50, 601, 50)
        wrong += any(
            "holds" in CHEAP.plan(sums[:, n - 1], [n, n], [1.0, 1.0]).standing for n in looks
        )
    # At most 5 % is stated; 12 of 100 has a chance below 0.005 then.
    assert wrong <= 12, wrong


@pytest.mark.parametrize(
    ("sums", "numbers", "costs"),
    [([1], [1, 2], [1.0]), ([3], [2], [1.0]), ([], [], []), ([1], [2], [float("nan")])],
)
def test_impossible_measurements_are_refused(
    sums: list[int], numbers: list[int], costs: list[float]
):
    with pytest.raises(ValueError, match="sums"):
        CHEAP.plan(sums, numbers, costs)


@pytest.mark.parametrize(
    "settings", [{"least": 1.0}, {"least": 0.5, "confidence": 1.0}, {"least": 0.5, "explore": 2.0}]
)
def test_constraints_out_of_range_are_refused(settings: dict[str, float]):
    with pytest.raises(ValueError, match="must lie"):
        QualityConstraint(**settings)
