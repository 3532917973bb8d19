"""The meta-critic learns from the cases that searches used, and compares candidates on the same case alone."""

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.games import are_apart, society
from convergence_core.games.held_out import HeldOutError, HeldOutGuard
from convergence_core.games.meta_critic import (
    DROPPED,
    FADED,
    KEPT,
    LEAST_EFFECT,
    PRIOR_SD,
    UNDECIDED,
    CaseReward,
    Coin,
    GameEffect,
    effects,
    paired_trials,
    posterior,
)


def reward(candidate: str, case: str, value: float, game: str | None = None, **more) -> CaseReward:
    fields = {"run_id": "r", "generation": 0, **more}
    return CaseReward(candidate_id=candidate, case_id=case, game=game, reward=value, **fields)


def effect(mean: float, sd: float) -> GameEffect:
    return GameEffect(mean=mean, sd=sd, n_cases=4, n_trials=40)


def test_the_posterior_is_that_of_ridge_regression():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    mean, covariance = posterior(x, y, 0.25)
    penalty = np.eye(3) * 0.25 / PRIOR_SD**2
    assert mean == pytest.approx(np.linalg.solve(x.T @ x + penalty, x.T @ y))
    assert covariance == pytest.approx(np.linalg.inv(x.T @ x / 0.25 + penalty / 0.25))


def test_candidates_are_compared_on_the_same_case_of_the_same_generation():
    rewards = [
        reward("x", "mine", 0.9), reward("y", "mine", 0.5), reward("x", "hard", 1.0, "a"),
        reward("y", "hard", 0.0, "a"), reward("x", "alone", 0.3),
        # An easier generation: its level says nothing.
        reward("y", "mine", 1.0, generation=1), reward("z", "mine", 0.8, generation=1),
        reward("y", "other", 0.2, "b", generation=1), reward("z", "other", 0.6, "b", generation=1),
        # Without a case of the user's, or of a game, a trial says nothing.
        reward("x", "hard", 1.0, "a", generation=2), reward("y", "hard", 0.0, "a", generation=2),
    ]  # fmt: skip
    x, y, n_generations = paired_trials(rewards, ["a", "b"])
    assert n_generations == 2
    assert x == pytest.approx(np.array([[0.5, 0.0], [-0.5, 0.0], [0.0, -0.2], [0.0, 0.2]]))
    assert y == pytest.approx([0.2, -0.2, 0.1, -0.1])
    found = effects(rewards)
    assert (found["a"].n_cases, found["a"].n_trials, found["b"].n_trials) == (1, 2, 2)
    assert found["a"].mean > 0.0 > found["b"].mean
    assert effects(rewards[:2]) == {}, "no case of a game was used"


def test_probabilities_are_those_of_the_normal_posterior():
    found = effect(0.06, 0.03)
    assert found.p_keep == pytest.approx(norm.sf((LEAST_EFFECT - 0.06) / 0.03))
    low, high = found.interval
    assert norm.cdf((high - found.mean) / found.sd) == pytest.approx(0.9)
    assert (low + high) / 2 == pytest.approx(found.mean)


@pytest.mark.parametrize(
    ("mean", "sd", "probability", "is_dropped"),
    [
        (0.1, 0.03, KEPT, False),
        (0.0, 0.02, FADED, False),
        (-0.05, 0.03, DROPPED, True),
        (0.05, 0.05, UNDECIDED, False),
    ],
)
def test_a_decided_game_gains_or_loses_share(mean, sd, probability, is_dropped):
    found = effect(mean, sd)
    assert (found.probability, found.is_dropped) == (probability, is_dropped)
    assert GameEffect.prior().probability == UNDECIDED


def test_coins_are_a_function_of_case_and_seed_and_fall_as_often_as_they_say():
    assert Coin.of("c", "a", 0.5, seed="3 0") == Coin.of("c", "a", 0.5, seed="3 0")
    for probability in (DROPPED, UNDECIDED, KEPT):
        used = [Coin.of(f"c{i}", "a", probability, seed="3 0").is_used for i in range(2_000)]
        assert (
            abs(np.mean(used) - probability)
            < 3.3 * (probability * (1 - probability) / 2_000) ** 0.5
        )
    nights = [Coin.of("c", "a", 0.5, seed=f"3 {night}").is_used for night in range(200)]
    assert 70 < sum(nights) < 130


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ValueError, match="the reward of case mine must be finite"):
        effects([reward("x", "mine", float("nan"))])


def test_planted_games_are_told_apart_and_harmful_ones_dropped():
    known = society(seed=1)
    assert are_apart(known[-1])
    assert known[5]["bad"].is_dropped
    assert known[5]["worse"].is_dropped


TEXT = "the parcel left our store on monday and should reach you within five working days or so"


@pytest.mark.statistical
@pytest.mark.parametrize("n_candidates", [2, 3, 8, 20])
def test_a_game_that_says_nothing_is_decided_no_more_often_than_is_stated(n_candidates):
    n_dropped, rng = 0, np.random.default_rng(n_candidates)
    for _ in range(200):
        scores = rng.integers(2, size=(2, n_candidates)).astype(float)
        rewards = [
            reward(f"c{k}", case, float(scores[row, k]), game)
            for row, (case, game) in enumerate([("mine", None), ("hard", "a")])
            for k in range(n_candidates)
        ]
        n_dropped += effects(rewards)["a"].is_dropped
    assert n_dropped <= 32, "of 200; 20 are stated, and 32 is their 99.7 % quantile"


def test_held_out_text_in_a_prompt_is_caught():
    guard = HeldOutGuard([TEXT, "short one of six words only"])
    guard.check(["Something else.", " ".join(TEXT.split()[:12])])
    with pytest.raises(HeldOutError, match="prompt 2 of 2"):
        guard.check(["Something else.", f"Answer: {TEXT.upper()}!"])
    with pytest.raises(HeldOutError, match="prompt 1 of 1"):
        guard.check(["Is this a short one of six words only?"])
