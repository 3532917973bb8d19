"""SimPO: the loss that the paper trains with (eq. 4.7), for checks of exports and trainers.

    L = -log sigma(beta/|y_w| log M(y_w|x) - beta/|y_l| log M(y_l|x) - gamma)

with beta = 10 and gamma = 3 (§5.1). Trainers that write beta (... - gamma/beta) mean the same gamma.
"""

from typing import Final

import numpy as np

BETA: Final = 10.0
GAMMA: Final = 3.0


def losses(
    chosen: np.ndarray,
    rejected: np.ndarray,
    chosen_lengths: np.ndarray,
    rejected_lengths: np.ndarray,
    *,
    beta: float = BETA,
    gamma: float = GAMMA,
) -> np.ndarray:
    """Return the loss of each row, (n,).

    Args:
        chosen: log M(y_w|x), summed over its tokens, (n,).
        rejected: log M(y_l|x), (n,).
        chosen_lengths: |y_w|, in tokens, (n,).
        rejected_lengths: |y_l|, (n,).
        beta: scale.
        gamma: target margin.

    Raises:
        ValueError: a length is not above 0.
    """
    if not (np.all(chosen_lengths > 0) and np.all(rejected_lengths > 0)):
        raise ValueError("an answer has at least one token")
    margin = beta * chosen / chosen_lengths - beta * rejected / rejected_lengths - gamma
    # log(1 + e^-m), written so that no power overflows.
    return np.asarray(np.logaddexp(0.0, -margin), np.float64)
