"""A Gaussian process as textbooks write it: one pair at a time, every matrix in full."""

import math

import numpy as np

from convergence_core.space.arrays import Encoding, Points


def by_hand(
    encoding: Encoding,
    a: Points,
    b: Points,
    log_params: np.ndarray,
) -> np.ndarray:
    """The covariance that the kernel's docstring states, without own effects, (n, m).

    Args:
        encoding: of the space.
        a: places of n candidates.
        b: places of m candidates.
        log_params: lengths, weights, the product's variance.
    """
    n_numbers, n_choices = len(encoding.number_names), len(encoding.choice_names)
    n_dims = n_numbers + n_choices
    theta = np.exp(log_params)
    total = np.zeros((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            parts = []
            for d in range(n_numbers):
                r = abs(a.numbers[i, d] - b.numbers[j, d]) / theta[d]
                matern = 1 + math.sqrt(5) * r + 5 * r**2 / 3
                parts.append(matern * math.exp(-math.sqrt(5) * r))
            for d in range(n_choices):
                distance = encoding.distances[d][a.codes[i, d], b.codes[j, d]]
                parts.append(math.exp(-theta[n_numbers + d] * distance))
            total[i, j] = theta[n_dims] * math.prod(parts)
    return total


def condition(
    encoding: Encoding,
    training: Points,
    targets: np.ndarray,
    noise: np.ndarray,
    *,
    log_params: np.ndarray,
    asked: Points,
    rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a normal vector's one part, given the other.

    Args:
        encoding: of the space.
        training: places of the measured candidates.
        targets: what was measured.
        noise: covariance of the measurements' errors.
        log_params: of the kernel.
        asked: places of the candidates asked for.
        rows: which of the measured candidates each is, -1 for none; only measured ones have an
            effect of their own.
    """
    own = math.exp(log_params[-1])
    n = len(training)
    everyone = training.join(asked)
    identity = np.append(np.arange(n), rows)
    is_same = (identity[:, None] == identity) & (identity >= 0)
    total = by_hand(encoding, everyone, everyone, log_params) + own * is_same
    measured = total[:n, :n] + noise
    cross = total[n:, :n]
    mean = cross @ np.linalg.solve(measured, targets)
    return mean, total[n:, n:] - cross @ np.linalg.solve(measured, cross.T)
