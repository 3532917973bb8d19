"""Held-out reward from logged answers: right on average, honest intervals, no reward from chance."""

import numpy as np
import pytest

from convergence_core.feedback.offline_reward import LEAST_GROUPS, offline_reward

N = 120


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def world(seed: int, shift: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities of 30 answers by incumbent and candidate, and the reward of each."""
    rng = np.random.default_rng(seed)
    logits, rewards = rng.normal(size=30), rng.uniform(-1, 1, size=30)
    return softmax(logits), softmax(logits + shift * rewards + 0.3 * rng.normal(size=30)), rewards


def test_the_difference_is_that_of_the_policies_and_the_interval_covers_it():
    incumbent, candidate, rewards = world(0, shift=0.6)
    truth = float((candidate - incumbent) @ rewards)
    rng, found = np.random.default_rng(1), []
    for _ in range(400):
        y = rng.choice(30, size=N, p=incumbent)
        noisy = rewards[y] + 0.3 * rng.normal(size=N)
        one = offline_reward(noisy, np.log(candidate[y]), np.log(incumbent[y]))
        assert one is not None
        assert one.step == 1.0
        found.append(one)
    mean = float(np.mean([one.difference for one in found]))
    error = float(np.std([one.difference for one in found])) / 20
    assert abs(mean - truth) < 3 * error + 0.01, (mean, truth, error)
    covered = sum(one.low <= truth <= one.high for one in found)
    assert covered >= 368, covered  # 95 % of 400, less three standard errors
    assert covered < 400, "an interval that never misses is too wide"


def test_a_candidate_that_is_far_away_is_valued_on_the_way_to_it():
    rng = np.random.default_rng(5)
    rewards = rng.uniform(-1, 1, size=N)
    far = -50.0 + 3 * rewards + rng.normal(size=N)
    one = offline_reward(rewards, far, np.full(N, -50.0))
    assert one is not None
    assert 0 < one.step < 0.7
    assert one.effective_n == pytest.approx(N / 2, rel=1e-6)
    assert one.low > 0
    assert "60)" not in one.words
    assert one.words == (
        f"120 rated answers to 120 prompts (effectively 60, {100 * one.step:.0f} % of the way to the "
        "candidate)"
    )
    opposite = offline_reward(-rewards, far, np.full(N, -50.0))
    assert opposite is not None
    assert opposite.high < 0


@pytest.mark.parametrize(
    "shares", [(0.2,) * 5, (0.03, 0.07, 0.1, 0.3, 0.5)], ids=["even", "mostly best"]
)
def test_no_candidate_of_chance_is_better_than_its_incumbent(shares: tuple[float, ...]):
    """Of 1,000 candidates that changed nothing, or at random, at most 5 % seem better (2.5 % expected)."""
    rng, n_better = np.random.default_rng(6), 0
    for number in range(1_000):
        rewards = (rng.choice(5, size=60, p=shares) - 2) / 2
        ratio = (
            np.zeros(60) if number % 10 == 0 else rng.normal(scale=rng.uniform(0.01, 3), size=60)
        )
        one = offline_reward(rewards, ratio - 40, np.full(60, -40.0))
        assert one is not None
        n_better += one.low > 0
    assert 0 < n_better <= 50, n_better


def learned_ratio(
    rng: np.random.Generator, n_features: int, *, is_shuffled: bool
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return rewards and log-ratios of held-out answers, after a fit to the ratings of others.

    An answer has features, and people like the first. The candidate's log-ratio is what ridge regression
    on the training ratings says of an answer, scaled to a divergence of a nat. Last is whether the
    candidate is truly better: it tilts answers along its slope.
    """
    x = rng.normal(size=(240, n_features))
    stars = np.clip(np.rint(3 + x[:, 0] + rng.normal(size=240)), 1, 5)
    given = rng.permutation(stars[:120]) if is_shuffled else stars[:120]
    slope = np.linalg.solve(
        x[:120].T @ x[:120] + np.eye(n_features), x[:120].T @ (given - given.mean())
    )
    ratio = x[120:] @ slope
    return (stars[120:] - 3) / 2, ratio * (1.4 / ratio.std()), bool(slope[0] > 0)


@pytest.mark.parametrize(("n_features", "most_by_chance"), [(4, 50), (30, 15)])
def test_ratings_that_mean_something_are_learned_and_shuffled_ones_are_refused(
    n_features: int, most_by_chance: int
):
    rng = np.random.default_rng(7)
    better, worse = {True: 0, False: 0}, 0
    for is_shuffled in (True, False):
        for _ in range(100):
            rewards, ratio, is_truly = learned_ratio(rng, n_features, is_shuffled=is_shuffled)
            one = offline_reward(rewards, ratio - 40, np.full(120, -40.0))
            assert one is not None
            better[is_shuffled] += one.low > 0
            worse += one.low > 0 and not is_truly
    assert better[False] >= 90, better
    # A shuffled fit points anywhere, and the fewer the features the more often where the liking lies.
    assert better[True] <= most_by_chance, better
    assert worse <= 5, "passed, and truly worse, of about 100 that are"


def test_answers_of_one_prompt_count_as_one():
    rng = np.random.default_rng(8)
    rewards, ratio = rng.normal(size=30), rng.normal(scale=0.1, size=30)
    base = np.zeros(30)
    alone = offline_reward(rewards, ratio, base)
    twice = offline_reward(
        np.tile(rewards, 4), np.tile(ratio, 4), np.tile(base, 4), groups=np.tile(np.arange(30), 4)
    )
    assert alone is not None
    assert twice is not None
    assert (twice.n_answers, twice.n_groups) == (120, 30)
    assert twice.difference == pytest.approx(alone.difference)
    assert (twice.low, twice.high) == pytest.approx((alone.low, alone.high))


def test_too_few_or_unusable_values_give_no_estimate():
    few = np.zeros(LEAST_GROUPS - 1)
    assert offline_reward(few, few, few) is None
    assert offline_reward([], [], []) is None
    enough = np.zeros(LEAST_GROUPS)
    assert offline_reward(enough, enough, enough) is not None
    with pytest.raises(ValueError, match="must be equally long, but got 7, 8, 8 and 7"):
        offline_reward(few, enough, enough)
    with pytest.raises(ValueError, match="log_candidate must be finite, but 1 are not"):
        offline_reward(enough, [np.nan, *few], enough)
