"""Drift detection: changes are found, and false alarms are as rare as stated."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.bandit import flipped
from convergence_core.bandit.drift import MIN_REWARDS, REWARDS_PER_FALSE_ALARM, Alarm, DriftWatch


def watched(
    n_rewards: int,
    seed: int,
    *,
    sd: float | None = 0.15,
    n_arms: int = 2,
    fall_at: int | None = None,
    period: float | None = None,
    rate: float = REWARDS_PER_FALSE_ALARM,
) -> tuple[list[Alarm], int]:
    """Return the alarms of a stream, and the rewards of arm 0 since its fall by one ``sd``.

    Ends at the first alarm after a fall. Rewards are normal, or with ``sd`` ``None`` 0 or 1; a period
    gives all arms a common cycle of ±.1.
    """
    rng = np.random.default_rng(seed)
    watch, alarms, since = DriftWatch(rewards_per_false_alarm=rate).widened(n_arms), [], 0
    means = np.linspace(0.5, 0.6, n_arms)
    for n in range(n_rewards):
        arm = int(rng.integers(n_arms))
        mean = means[arm] + (0.1 * np.sin(2 * np.pi * n / period) if period else 0.0)
        if fall_at is not None and n >= fall_at and arm == 0:
            mean, since = mean - (sd or 0.5), since + 1
        value = float(rng.random() < mean) if sd is None else float(rng.normal(mean, sd))
        watch, alarm = watch.tell(arm, min(max(value, 0.0), 1.0))
        if alarm is not None:
            alarms.append(alarm)
            if fall_at is not None and n >= fall_at:
                break
    return alarms, since


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.15, 0.05])
@pytest.mark.parametrize("n_arms", [1, 2, 4])
def test_a_fall_by_one_standard_deviation_is_found_within_sixty_rewards(sd: float, n_arms: int):
    found = [
        watched(1_000 + 80 * n_arms, seed, sd=sd, n_arms=n_arms, fall_at=1_000)
        for seed in range(9)
    ]
    soon = [since <= 60 for alarms, since in found if [alarm.arm for alarm in alarms] == [0]]
    assert sum(soon) >= 5, found


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.15, 0.05, None])
@pytest.mark.parametrize("period", [None, 1_000.0])
def test_alarms_without_a_change_are_as_rare_as_stated(sd: float | None, period: float | None):
    alarms, _ = watched(24_000, 7, sd=sd, period=period)
    # Significance 1e-2 against a Poisson number.
    stated = 24_000 / REWARDS_PER_FALSE_ALARM
    assert stats.poisson.sf(len(alarms) - 1, stated) > 1e-2, alarms


@pytest.mark.statistical
def test_a_short_run_length_is_held():
    """The bets alone hold it: with one arm there is no comparison with others."""
    n_runs, rate = 12, 200.0
    n_alarms = sum(len(watched(400, seed, n_arms=1, rate=rate)[0]) for seed in range(n_runs))
    assert n_alarms <= 400 * n_runs / rate


def test_an_alarm_says_what_changed_and_all_arms_begin_anew():
    rng, watch, alarm, n = np.random.default_rng(0), DriftWatch().widened(2), None, 0
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
    assert [arm.n for arm in watch.arms] == [0, 0]


def test_a_fall_that_all_arms_share_is_no_alarm():
    rng, watch = np.random.default_rng(1), DriftWatch().widened(2)
    for n in range(800):
        watch, alarm = watch.tell(n % 2, float(rng.random() < (0.8 if n < 400 else 0.4)))
        assert alarm is None, n
    assert max(bet.log_m for arm in watch.arms for bet in arm.bets) > 10.0, "alone they are sure"


def test_a_watch_survives_json():
    watch, rng = DriftWatch(rewards_per_false_alarm=5_000).widened(2), np.random.default_rng(3)
    for n in range(157):
        watch, _ = watch.tell(n % 2, float(rng.random()))
    assert watch.arms[0].n > MIN_REWARDS
    assert DriftWatch.from_json(watch.to_json()) == watch


def test_an_impossible_reward_is_refused():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        DriftWatch().widened(2).tell(0, 2.0)


@pytest.mark.parametrize("text", ["3", '{"arms": 3}'])
def test_what_is_no_watch_is_refused(text: str):
    with pytest.raises(ValueError, match="DriftWatch"):
        DriftWatch.from_json(text)


@pytest.mark.statistical
@pytest.mark.slow
def test_an_alarm_ends_the_regret_of_a_flip():
    """Arms .8 and .6; the better falls to .3 at request 2,000 of 6,000."""
    regrets = [flipped(seed, (0.8, 0.6), (0.3, 0.6))[0] for seed in range(3)]
    assert np.mean(regrets) <= 50.0, regrets


def test_the_documented_rate_of_false_alarms_is_the_default():
    assert DriftWatch().rewards_per_false_alarm == REWARDS_PER_FALSE_ALARM
    assert DriftWatch().widened(2).rewards_per_false_alarm == REWARDS_PER_FALSE_ALARM
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "runtime.md").read_text(encoding="utf-8")
    assert f'"rewards_per_false_alarm": {REWARDS_PER_FALSE_ALARM:_.0f}' in page
    page = (docs / "benchmarks.md").read_text(encoding="utf-8")
    assert f"one false alarm in {REWARDS_PER_FALSE_ALARM:,.0f} rewards" in page
