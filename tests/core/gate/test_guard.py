"""After a promotion: back without cause is rare, a late decline is found, good news ends the watch."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from convergence_core.gate.guard import Guard, gains_against_champion


def looked(
    guard: Guard,
    means: tuple[float, float],
    rng: np.random.Generator,
    n: int = 50,
    tolerance: float = 0.0,
) -> Guard:
    """Return the guard after a look at traffic shared 80:20 by promoted and champion."""
    promoted = rng.random(n) < 0.8
    return guard.tell(
        gains_against_champion(
            is_promoted=promoted,
            rewards=(rng.random(n) < np.where(promoted, *means)).astype(float),
            shares=np.full(n, 0.8),
            means=(0.6, 0.6),
            tolerance=tolerance,
        )
    )


def watched(
    means: tuple[float, float], rng: np.random.Generator, *, looks: int, tolerance: float = 0.0
) -> Guard:
    """Return the guard at its decision, or after these looks."""
    guard = Guard()
    for _ in range(looks):
        guard = looked(guard, means, rng, tolerance=tolerance)
        if guard.decision != "watching":
            break
    return guard


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_both_kinds_of_evidence_are_one_at_most_in_expectation_at_the_edge_of_their_null(
    tolerance: float,
):
    """Sum over all courses of three looks of one request each."""
    champion, promoted, share = 0.6, 0.6 - tolerance, 0.7
    worse = better = total = 0.0
    for course in itertools.product(itertools.product((True, False), (0.0, 1.0)), repeat=3):
        guard, chance = Guard(alpha=1e-9), 1.0
        for is_promoted, reward in course:
            mean = promoted if is_promoted else champion
            chance *= share if is_promoted else 1.0 - share
            chance *= mean if reward else 1.0 - mean
            guard = guard.tell(
                gains_against_champion(
                    is_promoted=[is_promoted],
                    rewards=[reward],
                    shares=[share],
                    means=(0.55, 0.65),
                    tolerance=tolerance,
                )
            )
        worse += chance * np.exp(guard.log_e_worse)
        better += chance * np.exp(guard.log_e_better)
        total += chance
    assert total == pytest.approx(1.0)
    assert worse == pytest.approx(1.0, abs=1e-9)
    assert better == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("means", "tolerance", "decision"),
    [
        ((0.3, 0.7), 0.0, "rollback"),
        ((0.8, 0.5), 0.0, "confirmed"),
        ((0.6, 0.6), 0.15, "confirmed"),
    ],
)
def test_worse_promotions_go_back_and_better_or_tolerated_ones_are_confirmed(
    means, tolerance, decision
):
    rng = np.random.default_rng(1)
    assert watched(means, rng, looks=200, tolerance=tolerance).decision == decision


@pytest.mark.slow
def test_a_decline_that_begins_late_is_found_nearly_as_soon_as_one_from_the_start():
    rng = np.random.default_rng(4)

    def looks_until_back(n_good: int) -> int:
        guard = Guard(alpha=0.05)
        for look in range(n_good + 200):
            means = (0.72, 0.7) if look < n_good else (0.4, 0.7)
            guard = replace(looked(guard, means, rng), decision="watching")
            if guard.log_e_worse >= np.log(20.0):
                return look - n_good + 1
        raise AssertionError("never found")

    early = np.mean([looks_until_back(0) for _ in range(20)])
    late = np.mean([looks_until_back(200) for _ in range(20)])
    assert late < early + 8, f"{late} looks after 200 good ones, {early} from the start"


@pytest.mark.statistical
@pytest.mark.slow
def test_equal_arms_seldom_go_back_over_a_long_watch():
    rng, n_runs = np.random.default_rng(6), 150
    back = confirmed = 0
    for _ in range(n_runs):
        decision = watched((0.6, 0.6), rng, looks=40).decision
        back += decision == "rollback"
        confirmed += decision == "confirmed"
    # Significance 1e-3 for each kind of error.
    for wrong in (back, confirmed):
        test = stats.binomtest(wrong, n_runs, 0.05, alternative="greater")
        assert test.pvalue > 1e-3, f"{wrong} of {n_runs}, 5% allowed"


def test_the_first_verdict_stays():
    back = watched((0.2, 0.8), np.random.default_rng(0), looks=100)
    assert back.decision == "rollback"
    later = looked(back, (0.9, 0.1), np.random.default_rng(1))
    assert later.decision == "rollback"
    assert later.n > back.n


def test_a_look_without_rewards_changes_nothing():
    assert looked(Guard(), (0.5, 0.5), np.random.default_rng(0), n=0) == Guard()
