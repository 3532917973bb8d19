"""Evidence about one mean: fair in expectation, exactly; rarely wrong at any look."""

import numpy as np
import pytest

from convergence_core.gate.betting import FRACTIONS, LOG_START, log_mean_wealth

MEANS = (0.02, 0.3, 0.7, 0.98)


def chance_to_cross(mean: float, n: int, log_e: np.ndarray, threshold: float) -> float:
    """Return the exact probability that the evidence ever reaches a threshold.

    Args:
        log_e: (n + 1, n + 1), by number of rewards and of successes.
    """
    alive, crossed = np.array([1.0]), 0.0
    for k in range(1, n + 1):
        alive = np.append(alive * (1.0 - mean), 0.0) + np.insert(alive * mean, 0, 0.0)
        out = log_e[k, : k + 1] >= threshold
        crossed += float(alive[out].sum())
        alive = np.where(out, 0.0, alive)
    return crossed


@pytest.mark.parametrize("mean", MEANS)
def test_the_chance_ever_to_reject_what_is_true_is_exactly_below_alpha(mean: float):
    n, alpha = 400, 0.05
    k, s = np.arange(n + 1)[:, None], np.arange(n + 1)[None]
    logs = np.full((n + 1, n + 1, FRACTIONS.size), -np.inf)
    possible = s <= k
    successes, failures = np.broadcast_arrays(s, k - s)
    up, down = np.log1p(FRACTIONS * (1.0 / mean - 1.0)), np.log1p(-FRACTIONS)
    logs[possible] = successes[possible][:, None] * up + failures[possible][:, None] * down
    chance = chance_to_cross(mean, n, log_mean_wealth(logs + LOG_START), -np.log(alpha))
    assert chance <= alpha
    assert chance > alpha / 25, "evidence that never crosses would be valid and useless"
