"""Drift detection: changes are found, and false alarms are as rare as stated."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.bandit import flipped
from convergence_core.bandit import BetaArms, DriftWatch
from convergence_core.bandit.drift import REWARDS_PER_FALSE_ALARM
from convergence_core.bandit.global_drift import N_SEQUENCES, GlobalDriftDetector


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
    assert len(sequences) <= N_SEQUENCES
    assert sequences[0].n == 1_200, "the oldest stays"
    assert sequences[-1].n == 10


def test_a_watch_survives_json():
    watch, rng = DriftWatch.begin(2, rewards_per_false_alarm=5_000), np.random.default_rng(3)
    for n in range(157):
        watch, _ = watch.tell(n % 2, float(rng.random()), 0.5)
    assert watch.all_arms.sequences
    assert DriftWatch.from_json(json.loads(json.dumps(watch.to_json()))) == watch


def test_a_stored_watch_of_arms_alone_goes_on_with_one_of_all_arms():
    watch, _ = DriftWatch.begin(2).tell(0, 1.0)
    old = {name: value for name, value in watch.to_json().items() if name not in {"whole", "n"}}
    again = DriftWatch.from_json(old)
    assert again.arms == watch.arms
    assert again.all_arms == GlobalDriftDetector().widened(2)


# -- all arms together


def shared_change(
    means: Sequence[float],
    fall: float,
    seed: int,
    *,
    rate: float = 20_000.0,
    at: int = 1_000,
    length: int = 3_000,
    is_drawn: bool = True,
) -> tuple[int, int | None] | None:
    """Return the first alarm after an even share of requests, and its arm."""
    rng, watch = (
        np.random.default_rng(seed),
        DriftWatch.begin(len(means), rewards_per_false_alarm=rate),
    )
    for n in range(1, length + 1):
        arm = int(rng.integers(len(means)))
        reward = float(rng.random() < means[arm] - (fall if n > at else 0.0))
        watch, alarm = watch.tell(arm, reward, 1.0 / len(means) if is_drawn else None)
        if alarm is not None:
            return n, alarm.arm
    return None


@pytest.mark.statistical
@pytest.mark.slow
def test_a_change_that_all_arms_share_is_found_before_an_arm_shows_it():
    means = (0.8, 0.75, 0.7, 0.6, 0.6, 0.5)
    found = [shared_change(means, 0.3, seed) for seed in range(4)]
    alone = [shared_change(means, 0.3, seed, is_drawn=False) for seed in range(4)]
    assert all(one is not None and one[0] > 1_000 for one in found), found
    assert [one[1] for one in found if one is not None].count(None) >= 3, found
    later = [3_000 if one is None else one[0] for one in alone]
    sooner = [one[0] for one in found if one is not None]
    assert np.mean(sooner) - 1_000 < 0.7 * (np.mean(later) - 1_000), (sooner, later)


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("is_even", [True, False])
def test_false_alarms_of_single_and_all_arms_together_are_as_rare_as_stated(is_even: bool):
    """The chance of one by n rewards is at most n / rate, whatever rule shares the requests."""
    n_runs, length, rate = 60, 600, 2_000.0
    means, alarms, n_epochs = np.array([0.7, 0.6, 0.65]), 0, 0
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        arms = BetaArms.begin([1.0] * 3, 1.0)
        watch = DriftWatch.begin(3, rewards_per_false_alarm=rate)
        for _ in range(length):
            shares = np.full(3, 1.0 / 3.0)
            if not is_even:  # earlier rewards say where later requests go
                shares = 0.1 / 3.0 + 0.9 * arms.means**4 / (arms.means**4).sum()
            arm = int(rng.choice(3, p=shares))
            reward = float(rng.random() < means[arm])
            arms = arms.tell(arm, reward)
            watch, alarm = watch.tell(arm, reward, float(shares[arm]))
            if alarm is not None:
                alarms += 1
                break
        n_epochs += watch.all_arms.n_epochs
    assert n_epochs >= n_runs, "all arms are watched"
    # Significance 1e-3.
    test = stats.binomtest(alarms, n_runs, length / rate, alternative="greater")
    assert test.pvalue > 1e-3, f"{alarms} of {n_runs} raised an alarm"


@pytest.mark.statistical
def test_the_sequences_of_all_arms_miss_as_rarely_as_stated():
    """E[r] is known here; every look of the oldest sequence is one."""
    error, n_runs, missed = 0.2, 60, 0
    means, shares = np.array([0.9, 0.4]), np.array([0.6, 0.4])
    for seed in range(n_runs):
        rng, watch = np.random.default_rng(seed), GlobalDriftDetector().widened(2)
        for _ in range(300):
            arm = int(rng.random() < shares[1])
            watch, _ = watch.tell(arm, float(rng.random() < means[arm]), float(shares[arm]), error)
        truth = float(np.dot(watch.weights, means - np.array(watch.centres)))
        oldest = watch.sequences[0]
        missed += not oldest.low <= truth <= oldest.high
    # Significance 1e-3.
    test = stats.binomtest(missed, n_runs, error, alternative="greater")
    assert test.pvalue > 1e-3, f"{missed} of {n_runs} missed, {error:.0%} stated"


def test_traffic_that_moves_is_no_change_of_all_arms():
    """One arm is far better; requests move to it and back, and no mean changes."""
    rng, watch, shares = np.random.default_rng(4), DriftWatch.begin(2), (0.5, 0.5)
    for n in range(1_600):
        if n % 400 == 200:
            shares = (0.4, 0.6) if shares[0] == 0.5 else (0.5, 0.5)
        arm = int(rng.random() < shares[1])
        reward = float(rng.random() < (0.9, 0.2)[arm])
        watch, alarm = watch.tell(arm, reward, shares[arm])
        assert alarm is None, n
    assert watch.all_arms.n_epochs == 1
    assert watch.all_arms.sequences[0].n > 1_000


def test_an_alarm_of_all_arms_says_what_each_one_earned_since():
    rng, watch, alarm = np.random.default_rng(0), DriftWatch.begin(4), None
    n = 0
    while alarm is None:
        n += 1
        arm = n % 4
        mean = (0.9, 0.8, 0.8, 0.7)[arm] - (0.4 if n > 800 else 0.0)
        watch, alarm = watch.tell(arm, float(rng.random() < mean), 0.25)
    assert (alarm.arm, alarm.n) == (None, n)
    assert alarm.before == pytest.approx(0.8, abs=0.07)
    assert alarm.after == pytest.approx(0.4, abs=0.15)
    assert len(alarm.since) == 4
    assert sum(number for _, number in alarm.since) <= alarm.n_after + 40
    assert watch.all_arms == GlobalDriftDetector().widened(4), "all begins anew"
    assert all(arm.n == 0 for arm in watch.arms)


def test_an_alarm_of_an_arm_lets_the_detector_of_all_begin_anew():
    rng, watch, alarm = np.random.default_rng(0), DriftWatch.begin(2), None
    for n in range(1, 3_000):
        reward = float(rng.random() < (0.9 if n <= 300 or n % 2 else 0.1))
        watch, alarm = watch.tell(n % 2, reward, 0.5)
        if alarm is not None:
            break
    assert alarm is not None
    assert alarm.arm == 0
    assert watch.all_arms == GlobalDriftDetector().widened(2)


def test_an_epoch_is_centred_on_the_means_so_far_by_jeffreys_prior_at_the_traffics_shares():
    watch, n = GlobalDriftDetector().widened(2), 0
    while not watch.weights:
        watch, n = watch.tell(int(n % 4 == 0), float(n % 4 == 0), 0.5, 0.001)[0], n + 1
    counts, sums = np.array(watch.counts), np.array(watch.sums)
    assert watch.centres == pytest.approx((sums + 0.5) / (counts + 1.0))
    assert watch.weights == pytest.approx(counts / counts.sum())
    assert watch.centres[0] < 0.1
    assert watch.centres[1] > 0.9


def test_where_one_arm_has_nearly_all_of_the_traffic_the_detector_of_all_waits():
    watch = GlobalDriftDetector().widened(2)
    for n in range(400):
        watch, _ = watch.tell(int(n % 20 == 0), 1.0, 0.05 if n % 20 == 0 else 0.95, 0.001)
    assert watch.weights == ()
    for n in range(400):
        watch, _ = watch.tell(n % 2, 1.0, 0.5, 0.001)
    assert np.count_nonzero(watch.weights) == 2
    wider = watch.widened(3)
    assert (len(wider.weights), wider.weights[2], wider.widened(2)) == (3, 0.0, wider)


@pytest.mark.parametrize(
    ("reward", "propensity", "rule"), [(1.0, 0.0, "propensity"), (2.0, 0.5, r"\[0, 1\]")]
)
def test_impossible_rewards_and_propensities_are_refused(reward, propensity, rule):
    with pytest.raises(ValueError, match=rule):
        DriftWatch.begin(2).tell(0, reward, propensity)


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
        DriftWatch.from_json(value)


@pytest.mark.statistical
@pytest.mark.slow
def test_an_alarm_ends_the_regret_of_a_flip():
    """Arms .8 and .6; the better falls to .3 at request 2,000 of 6,000."""
    regrets = [flipped(seed, (0.8, 0.6), (0.3, 0.6))[0] for seed in range(3)]
    assert np.mean(regrets) <= 50.0, regrets


def test_the_documented_rate_of_false_alarms_is_the_default():
    assert DriftWatch().rewards_per_false_alarm == REWARDS_PER_FALSE_ALARM
    assert DriftWatch.begin(2).rewards_per_false_alarm == REWARDS_PER_FALSE_ALARM
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "runtime.md").read_text(encoding="utf-8")
    assert f'"rewards_per_false_alarm": {REWARDS_PER_FALSE_ALARM:_.0f}' in page
    page = (docs / "benchmarks.md").read_text(encoding="utf-8")
    assert f"one false alarm in {REWARDS_PER_FALSE_ALARM:,.0f} rewards" in page
