"""Quality constraints: who serves, who gets a chance, and how seldom a verdict is wrong."""

import numpy as np
import pytest

from convergence_core.bandit import QualityConstraint

CHEAP = QualityConstraint(least=0.9, confidence=0.95, explore=0.2)


@pytest.mark.parametrize(
    ("sums", "numbers", "costs", "standing", "shares"),
    [
        # The cheapest that holds serves.
        ([980, 985, 600], [1_000] * 3, [2.0, 3.0, 1.0], "holds holds fails", (1.0, 0.0, 0.0)),
        # A cheaper one that is undecided gets its chance, and a dearer one none.
        (
            [980, 18, 18],
            [1_000, 20, 20],
            [2.0, 1.0, 3.0],
            "holds undecided undecided",
            (0.8, 0.2, 0.0),
        ),
        # None holds: the best serves, and all undecided ones get a chance.
        (
            [9, 8, 100],
            [10, 10, 1_000],
            [2.0, 1.0, 0.1],
            "undecided undecided fails",
            (0.8, 0.2, 0.0),
        ),
    ],
)
def test_the_cheapest_arm_that_holds_serves_and_cheaper_undecided_ones_get_a_chance(
    sums, numbers, costs, standing, shares
):
    plan = CHEAP.plan(sums, numbers, costs)
    assert plan.standing == tuple(standing.split())
    assert plan.serving == 0
    assert plan.shares == pytest.approx(shares)


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
