"""The best of several arms in live traffic: exact in expectation, rarely wrong at any look."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from convergence_core.gate.best_arm_test import (
    MIN_REWARDS,
    BestArmTest,
    RewardedRequests,
    fewest_requests,
    n_to_verdict,
    verdict_shares,
)
from convergence_core.gate.betting import FRACTIONS, log_pair_factors
from tests.core.gate.requests import after, batch, counted, design_of


def played(
    means: Sequence[float], rng: np.random.Generator, *, mode: str, cap: int
) -> tuple[BestArmTest, int]:
    """Return the test of rewards 0 and 1 at its verdict or at the cap, and its requests."""
    test, n = BestArmTest.begin(len(means)), 0
    while n < cap and not test.is_over:
        even = np.full(len(means), 1.0 / len(means))
        shares = even if mode == "even" else verdict_shares(test, rng)
        numbers = rng.multinomial(100, shares)
        requests = batch(rng.binomial(numbers, means), numbers, shares)
        test = after(test, requests)
        n += 100
    return test, n


def one(arm: int, reward: float, shares: Sequence[float]) -> RewardedRequests:
    return RewardedRequests(
        arms=np.array([arm]),
        rewards=np.array([reward]),
        propensities=np.array([shares]),
        counts=np.ones(1),
    )


@pytest.mark.parametrize(
    ("means", "effect", "tied"),
    [
        ((0.6, 0.6), 0.0, (0, 1)),
        ((0.3, 0.7, 0.7), 0.0, (1, 2)),
        ((0.5, 0.7), 0.2, (0,)),
        ((0.2, 0.5, 0.9), 0.0, (2,)),
    ],
)
@pytest.mark.slow
def test_evidence_against_a_true_null_is_one_at_most_in_expectation_whatever_rule_allocates(
    means: tuple[float, ...], effect: float, tied: tuple[int, ...]
):
    """Sum over every course of five requests, shares and bets changing after each reward."""
    n_arms, expected, total = len(means), np.zeros(len(means)), 0.0
    start = BestArmTest.begin(n_arms, min_effect=effect)
    for arm in range(n_arms):  # a reward each, so that bets are placed from the first request on
        start = after(start, one(arm, float(arm % 2), [1.0] * n_arms))
    for course in itertools.product(itertools.product(range(n_arms), (0, 1)), repeat=4):
        test, chance = start, 1.0
        for arm, reward in course:
            shares = test.means**2 / (test.means**2).sum()
            chance *= shares[arm] * (means[arm] if reward else 1.0 - means[arm])
            test = after(test, one(arm, reward, shares.tolist()))
        expected += chance * np.exp(test.log_e)
        total += chance
    assert total == pytest.approx(1.0)
    for arm in tied:
        assert expected[arm] <= 1.0 + 1e-9
    if len(means) == 2 and not effect:
        assert expected == pytest.approx(np.ones(2)), "equal arms make the game fair"


def test_bets_on_zeros_and_ones_are_ratios_of_likelihoods():
    """The factor is p_alternative(x | arm) / p_pooled(x), as in Turner, Ly and Grünwald."""
    p, means = 0.3, (0.8, 0.5)
    pooled = p * means[0] + (1 - p) * means[1]
    largest = min(p / pooled, (1 - p) / (1 - pooled))
    for is_first, reward in itertools.product((True, False), (0.0, 1.0)):
        found = np.exp(
            log_pair_factors(
                is_first=np.array([is_first]),
                rewards=np.array([reward]),
                shares=np.array([p]),
                means=means,
            )
        )[0]
        own = p if is_first else 1 - p
        sign = 1.0 if is_first else -1.0
        alternative = pooled + sign * FRACTIONS * largest / own * pooled * (1 - pooled)
        ratio = alternative / pooled if reward else (1 - alternative) / (1 - pooled)
        assert found == pytest.approx(ratio)


def test_an_arm_that_could_not_be_chosen_adds_no_evidence():
    logs = log_pair_factors(
        is_first=np.array([True, False]),
        rewards=np.array([1.0, 0.0]),
        shares=np.array([1.0, 0.0]),
        means=(0.9, 0.1),
    )
    assert not logs.any()


def test_nothing_is_staked_before_each_arm_has_a_reward():
    test = counted([5, 0, 0], [5, 5, 0])
    assert test.log_e == pytest.approx(np.zeros(3))
    assert test.numbers.tolist() == [5, 5, 0]


def test_rewards_of_one_design_may_come_in_parts_and_in_any_order():
    test, _ = played((0.4, 0.6), np.random.default_rng(0), mode="even", cap=300)
    design, shares = design_of(test), [0.5, 0.5]
    parts = [batch(s, n, shares) for s, n in [([3, 4], [7, 9]), ([1, 0], [2, 2])]]
    at_once = after(test, batch([4, 4], [9, 11], shares), design)
    for order in (parts, parts[::-1]):
        found = test
        for part in order:
            found = after(found, part, design)
        assert found.log_wealth == pytest.approx(at_once.log_wealth)
        assert found.sums == pytest.approx(at_once.sums)


def test_an_eliminated_arm_stays_so():
    test, _ = played((0.2, 0.8), np.random.default_rng(1), mode="even", cap=2_000)
    assert test.winner == 1
    design = design_of(test)
    for _ in range(20):
        test = after(test, batch([50, 0], [50, 50], [0.5, 0.5]), design)
    assert test.eliminated[0]
    assert test.is_over


@pytest.mark.statistical
@pytest.mark.parametrize(
    "mean",
    [
        0.7,
        pytest.param(0.02, marks=pytest.mark.slow),
        pytest.param(0.98, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_equal_arms_rarely_have_a_winner_however_often_one_looks(mean: float):
    rng, n_runs = np.random.default_rng(11), 80
    false = sum(
        played((mean, mean), rng, mode=mode, cap=2_000)[0].is_over
        for mode in ("even", "verdict")
        for _ in range(n_runs // 2)
    )
    # Significance 1e-3.
    test = stats.binomtest(false, n_runs, 0.05, alternative="greater")
    assert test.pvalue > 1e-3, f"{false} of {n_runs} had a winner, 5% allowed"


@pytest.mark.statistical
@pytest.mark.slow
def test_traffic_for_a_verdict_needs_fewer_requests_than_an_even_split():
    means, n_runs = (0.5, 0.6, 0.65, 0.75), 30
    needed = {}
    for mode in ("even", "verdict"):
        runs = [
            played(means, np.random.default_rng(s), mode=mode, cap=20_000) for s in range(n_runs)
        ]
        assert all(test.winner == 3 for test, _ in runs)
        needed[mode] = float(np.mean([n for _, n in runs]))
    assert needed["verdict"] < 0.75 * needed["even"], needed


@pytest.mark.statistical
def test_a_minimum_effect_keeps_near_ties_undecided():
    rng, numbers = np.random.default_rng(3), np.array([50, 50])
    test = BestArmTest.begin(2, min_effect=0.1)
    for _ in range(60):
        test = after(test, batch(rng.binomial(numbers, (0.5, 0.55)), numbers, [0.5, 0.5]))
    assert not test.eliminated[0]
    plain, _ = played((0.5, 0.55), np.random.default_rng(3), mode="even", cap=12_000)
    assert plain.winner == 1


def test_planned_numbers_are_the_fewest_that_give_every_arm_its_evidence():
    means, needs = np.array([0.3, 0.5, 0.62, 0.7]), np.array([2.0, 1.0, 4.0, 3.0])
    found = fewest_requests(means[None], needs, 0.0)[0]

    def evidence(numbers: np.ndarray) -> np.ndarray:
        middle = (0.7 + means[:3]) / 2.0
        found: np.ndarray = (0.7 - means[:3]) ** 2 / (
            2.0 * middle * (1.0 - middle) * (1.0 / numbers[:3] + 1.0 / numbers[3])
        )
        return found

    assert evidence(found) == pytest.approx(needs[:3], rel=1e-5)
    a = (0.7 - means[:3]) ** 2 / ((0.7 + means[:3]) * (1.0 - (0.7 + means[:3]) / 2.0) * needs[:3])

    def total(n_i: float) -> float:
        return n_i + float((1.0 / (a - 1.0 / n_i)).sum())

    best = optimize.minimize_scalar(total, bounds=(1.001 / a.min(), 10.0 / a.min()))
    assert found.sum() == pytest.approx(best.fun, rel=1e-4)


def test_two_arms_share_evenly_and_the_projection_is_of_the_right_size():
    test = counted([280, 350], [500, 500])
    assert verdict_shares(test, np.random.default_rng(0)) == pytest.approx([0.5, 0.5])
    n = n_to_verdict(test)
    assert n is not None
    assert 200 < n < 1_500


def test_eliminated_arms_get_nothing():
    rng, numbers = np.random.default_rng(2), np.full(3, 40)
    test = BestArmTest.begin(3)
    while not test.eliminated[0]:
        requests = batch(rng.binomial(numbers, (0.2, 0.6, 0.62)), numbers, np.full(3, 1 / 3))
        test = after(test, requests)
    assert not test.is_over
    assert verdict_shares(test, rng)[0] == 0.0


def test_once_there_is_a_winner_it_gets_all():
    rng = np.random.default_rng(3)
    test, _ = played((0.2, 0.7, 0.3, 0.3), rng, mode="verdict", cap=40_000)
    assert test.winner == 1
    assert n_to_verdict(test) == 0
    assert verdict_shares(test, rng).tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("test", "shares"),
    [
        # None is left, so all take part again.
        (replace(counted([10, 10], [50, 50]), eliminated=np.ones(2, bool)), [0.5, 0.5]),
        # One came later.
        (
            replace(counted([10, 30, 1], [50, 50, 2]), eliminated=np.array([True, False, False])),
            [0.0, 0.5, 0.5],
        ),
        (counted([10, 20, 5], [MIN_REWARDS, MIN_REWARDS, MIN_REWARDS - 1]), [1 / 3] * 3),
    ],
)
def test_arms_that_take_part_share_evenly_where_none_is_left_or_one_has_few_rewards(test, shares):
    assert verdict_shares(test, np.random.default_rng(0)) == pytest.approx(shares)
