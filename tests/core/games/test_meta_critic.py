"""The meta-critic keeps what helps on held-out cases, and says nothing without coins."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from convergence_core.games.held_out import HeldOutError, HeldOutGuard
from convergence_core.games.meta_critic import (
    LEAST_SD,
    Coin,
    GameRound,
    NoCoinsError,
    effects,
    p_keep_of,
    posterior,
    toss,
)


def rounds_of(x: np.ndarray, y: np.ndarray, probability: float = 0.5) -> list[GameRound]:
    names = "abcdef"
    return [
        GameRound(
            round_number=t,
            coins={names[j]: Coin(probability, bool(on)) for j, on in enumerate(row)},
            change=float(change),
        )
        for t, (row, change) in enumerate(zip(x, y, strict=True))
    ]


def test_the_posterior_is_that_of_ridge_regression():
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(30), rng.integers(0, 2, (30, 3))])
    y = rng.normal(size=30)
    mean, covariance = posterior(x, y, 0.25)
    penalty = np.diag([1e-3, 400.0, 400.0, 400.0]) * 0.25
    expected = np.linalg.solve(x.T @ x + penalty, x.T @ y)
    assert mean == pytest.approx(expected)
    assert covariance == pytest.approx(np.linalg.inv(x.T @ x / 0.25 + penalty / 0.25))


def test_one_game_in_a_balanced_design_has_a_closed_form():
    # 2n rounds, half with the game, free level a: precision of beta is n / (2 s^2) + 1 / .05^2.
    n, step, variance = 40, 0.04, 0.02**2
    x = np.array([[1], [0]] * n)
    y = np.where(x[:, 0] == 1, step, 0.0)
    rounds = [replace(one, change_variance=variance) for one in rounds_of(x, y)]
    (found,) = effects(rounds)
    data, prior = n / (2 * variance), 0.05**-2
    assert found.sd == pytest.approx((data + prior) ** -0.5, rel=1e-4)
    assert found.mean == pytest.approx(step * data / (data + prior), rel=1e-4)
    assert found.p_keep == pytest.approx(norm.cdf(found.mean / found.sd))
    low, high = found.interval
    assert norm.cdf((high - found.mean) / found.sd) == pytest.approx(0.9)
    assert (low + high) / 2 == pytest.approx(found.mean)
    assert (found.n_included, found.n_rounds) == (n, 2 * n)


def test_residuals_say_how_noisy_rounds_are_and_never_less_than_a_hundredth():
    x = np.array([[1], [0]] * 20)
    quiet = effects(rounds_of(x, np.where(x[:, 0] == 1, 0.02, 0.0)))[0]
    assert quiet.sd == pytest.approx((20 / (2 * LEAST_SD**2) + 400) ** -0.5, rel=1e-3)
    noisy = effects(rounds_of(x, np.random.default_rng(2).normal(0, 0.2, 40)))[0]
    assert noisy.sd > 2 * quiet.sd


@pytest.mark.parametrize("coins", [{}, {"a": Coin(1.0, True)}, {"a": Coin(0.0, False)}])
def test_without_coins_nothing_is_reported(coins):
    rounds = [GameRound(round_number=0, coins=coins, change=0.1)]
    with pytest.raises(NoCoinsError, match="must log a probability"):
        effects(rounds)
    with pytest.raises(NoCoinsError, match="must log a probability"):
        p_keep_of(rounds, ["a"])


@pytest.mark.parametrize("wrong", [{"change": float("nan")}, {"change_variance": -1.0}])
def test_numbers_that_are_none_are_refused(wrong):
    fields = {"round_number": 0, "coins": {"a": Coin(0.5, True)}, "change": 0.0, **wrong}
    with pytest.raises(ValueError, match="must be finite"):
        effects([GameRound(**fields)])


def test_a_round_that_came_twice_is_refused():
    one = GameRound(round_number=4, coins={"a": Coin(0.5, True)}, change=0.0)
    with pytest.raises(ValueError, match="round 4 must come once"):
        effects([one, one])


def test_coins_are_fair_at_first_and_bounded_later():
    rng = np.random.default_rng(0)
    p_keep = {"a": 0.999, "b": 0.001, "c": 0.4}
    assert {coin.probability for coin in toss(p_keep, 7, rng).values()} == {0.5}
    later = toss(p_keep, 8, rng)
    assert [coin.probability for coin in later.values()] == [0.9, 0.1, 0.4]
    n_on = sum(toss(p_keep, 8, rng)["b"].is_included for _ in range(4_000))
    assert abs(n_on - 400) < 3.3 * np.sqrt(360), n_on


TEXT = "the parcel left our store on monday and should reach you within five working days or so"


def test_held_out_text_in_a_prompt_is_caught():
    guard = HeldOutGuard([TEXT, "short one of six words only"])
    guard.check(["Something else.", " ".join(TEXT.split()[:12])])
    with pytest.raises(HeldOutError, match="prompt 2 of 2"):
        guard.check(["Something else.", f"Answer: {TEXT.upper()}!"])
    with pytest.raises(HeldOutError, match="prompt 1 of 1"):
        guard.check(["Is this a short one of six words only?"])
