"""After a promotion: back without cause is rare, a late decline is found, good news ends the watch."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from convergence_core.gate.guard import Guard, allowed, gains_against_champion
from convergence_core.gate.guardrails import Guardrail


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
    """Return the guard at its first verdict, or after these looks."""
    guard = Guard()
    for _ in range(looks):
        guard = looked(guard, means, rng, tolerance=tolerance)
        if guard.is_worse or guard.is_safe:
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
    ("means", "tolerance", "verdict"),
    [
        ((0.3, 0.7), 0.0, "worse"),
        ((0.8, 0.5), 0.0, "safe"),
        ((0.6, 0.6), 0.15, "safe"),
    ],
)
def test_worse_promotions_are_worse_and_better_or_tolerated_ones_are_safe(
    means, tolerance, verdict
):
    guard = watched(means, np.random.default_rng(1), looks=200, tolerance=tolerance)
    assert (guard.is_worse, guard.is_safe) == (verdict == "worse", verdict == "safe")


@pytest.mark.slow
def test_a_decline_that_begins_late_is_found_nearly_as_soon_as_one_from_the_start():
    rng = np.random.default_rng(4)

    def looks_until_back(n_good: int) -> int:
        guard = Guard(alpha=0.05)
        for look in range(n_good + 200):
            means = (0.72, 0.7) if look < n_good else (0.4, 0.7)
            guard = replace(looked(guard, means, rng), is_worse=False)
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
        guard = watched((0.6, 0.6), rng, looks=40)
        back += guard.is_worse
        confirmed += guard.is_safe
    # Significance 1e-3 for each kind of error.
    for wrong in (back, confirmed):
        test = stats.binomtest(wrong, n_runs, 0.05, alternative="greater")
        assert test.pvalue > 1e-3, f"{wrong} of {n_runs}, 5% allowed"


def test_a_verdict_stays():
    back = watched((0.2, 0.8), np.random.default_rng(0), looks=100)
    assert back.is_worse
    later = looked(back, (0.9, 0.1), np.random.default_rng(1), n=2_000)
    assert later.is_worse
    assert later.is_safe
    assert later.n > back.n


def test_guardrails_share_the_error_of_a_rollback_and_not_that_of_a_step():
    alone, shared = Guard(alpha=0.05), Guard(alpha=0.05, n_guardrails=4)
    assert shared.log_threshold_worse - alone.log_threshold_worse == pytest.approx(np.log(4.0))
    assert shared.log_threshold == alone.log_threshold == pytest.approx(np.log(20.0))


@pytest.mark.parametrize("margin", [30.0, -30.0])
def test_a_number_is_cut_at_tukeys_outer_fences_of_the_control(margin: float):
    control = [100.0 + n for n in range(101)]
    rail = Guardrail(name="latency_ms", margin=margin).fenced(control, since=7)
    assert rail.since == 7
    assert rail.high - rail.low == pytest.approx(150.0 + 50.0 + 150.0 + 60.0)
    assert rail.centre == pytest.approx(np.mean([rail.scaled(x) for x in control]))
    assert rail.scaled(150.0) - rail.scaled(150.0 + margin) == pytest.approx(rail.tolerance)
    assert rail.scaled(1e300) == (0.0 if margin > 0 else 1.0)
    assert rail.scaled(-1e300) == (1.0 if margin > 0 else 0.0)


def test_fences_wait_for_values_and_stand_around_a_constant():
    rail = Guardrail(name="error", margin=0.01)
    assert not rail.fenced([0.0] * 19, since=0).is_fenced
    errors = rail.fenced([0.0] * 20, since=0)
    assert (errors.low, errors.high) == (0.0, 1.02)
    assert errors.scaled(0.0) - errors.scaled(1.0) == pytest.approx(1 / 1.02)
    huge = rail.fenced([1e300] * 30, since=0)
    assert huge.is_fenced
    assert np.isfinite([huge.centre, huge.scaled(0.0)]).all()
    cost = Guardrail(name="cost", margin=1e-4).fenced([3e-4] * 20, since=0)
    assert (cost.low, cost.high) == pytest.approx((3e-4, 8e-4))
    outlier = rail.fenced([0.0] * 199 + [1e100], since=0)
    assert (outlier.low, outlier.high) == (0.0, 1.02), "one value does not widen the fences"


@pytest.mark.parametrize(
    ("control", "margin", "value"),
    [
        ([0.0] * 199 + [1e9], -0.5, 0.0),
        ([1e9] * 200, 1.0, 1e9),
        ([200.0] * 196 + [1e9] * 4, 10.0, 200.0),
    ],
    ids=["a-huge-gain", "a-huge-constant", "a-few-huge-losses"],
)
@pytest.mark.parametrize(("change", "verdict"), [(0.0, "safe"), (5.0, "worse")])
def test_huge_values_among_constants_leave_a_guardrail_its_verdict(
    control: list[float], margin: float, value: float, change: float, verdict: str
):
    """The promoted is worse by ``change`` margins."""
    rail = Guardrail(name="x", margin=margin).fenced(control, since=0)
    guard, promoted = Guard(), np.tile([True, False], 5_000)
    for _ in range(2):
        gains = gains_against_champion(
            is_promoted=promoted,
            rewards=[rail.scaled(value + change * margin * new) for new in promoted],
            shares=np.full(10_000, 0.5),
            means=(rail.centre, rail.centre),
            tolerance=rail.tolerance,
        )
        guard = guard.tell(gains)
    assert guard.is_worse == (verdict == "worse")
    assert guard.is_worse or guard.is_safe


def test_an_error_counts_whole_however_small_the_margin():
    rail = Guardrail(name="error", margin=1e-5).fenced([0.0] * 200, since=0)
    assert (rail.low, rail.high) == pytest.approx((0.0, 1.00002))
    success = Guardrail(name="success", margin=-1e-5).fenced([1.0] * 200, since=0)
    assert (success.low, success.high) == pytest.approx((-1.0, 0.00002))


@pytest.mark.parametrize(
    ("control", "promoted"),
    [([5.0, 0.0] * 50, [20.0, 0.0, 0.0, 0.0]), (([5.0] + [0.0] * 9) * 10, [20.0] + [0.0] * 19)],
)
def test_more_revenue_from_fewer_sales_is_not_worse(control: list[float], promoted: list[float]):
    rail = Guardrail(name="revenue", margin=-0.1).fenced(control, since=0)
    assert np.mean([rail.scaled(value) for value in promoted]) > rail.centre


def test_a_step_allows_the_margin_over_its_share_of_the_requests():
    assert allowed(0.05, 0.25) == pytest.approx(0.2)
    assert allowed(0.3, 0.1) == 0.9


def test_a_look_at_pending_rewards_only_counts_them_at_their_worst():
    def told(promoted: list[bool], rewards: list[float], guard: Guard) -> Guard:
        gains = gains_against_champion(
            is_promoted=promoted, rewards=rewards, shares=[0.5] * len(rewards), means=(0.6, 0.6)
        )
        return guard.tell(gains)

    together = told([True, True], [np.nan, 1.0], Guard())
    apart = told([True], [1.0], told([True], [np.nan], Guard()))
    assert apart.log_e_better == pytest.approx(together.log_e_better)
    assert apart.n == together.n == 1


def test_a_look_without_rewards_changes_nothing():
    assert looked(Guard(), (0.5, 0.5), np.random.default_rng(0), n=0) == Guard()
