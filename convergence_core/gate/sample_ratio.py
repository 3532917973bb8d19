"""Sample ratio: agreement of the arms' realised shares with their propensities.

If each decision takes arm i with its logged probability p, given the past, each bet

    wealth = mean over c of prod (1 + lambda_c ([A = i] - p)),    lambda_c = c / p or -c / (1 - p)  (1)

on more or on fewer decisions than expected is a martingale from 1 (``betting``), and so is the
mean over all arms and both sides. So it ever reaches ``1 / alpha`` with probability at most
``alpha``, however often you check. M. Lindon, A. Malek, "Anytime-valid inference for multinomial
count data", NeurIPS 2022, bet by a Dirichlet prior on fixed shares; these bets allow shares to
change by policy version.

The same holds for the decisions with a reward, unless one arm lacks rewards more often.
"""

from typing import Final

import numpy as np

from convergence_core.gate.betting import FRACTIONS, LOG_START, Floats, log_mean_wealth

ALPHA: Final = 0.01
"""Maximum probability of a false alarm, over all time."""


def log_e_of_shares(counts: Floats, propensities: Floats) -> Floats:
    """Return the evidence that each arm's share departs from its propensity, nats, (n_arms,).

    Their mean, not their maximum, is the evidence of the whole; see ``departs``.

    Args:
        counts: Decisions by policy version and arm, (n_versions, n_arms).
        propensities: The arms' probabilities in each version, (n_versions, n_arms).

    Example:
        >>> even = np.full((1, 2), 0.5)
        >>> departs(log_e_of_shares(np.array([[60.0, 40.0]]), even))
        False
        >>> departs(log_e_of_shares(np.array([[80.0, 20.0]]), even))
        True
    """
    total = counts.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = _log_wealth(counts, total - counts, propensities)
        below = _log_wealth(total - counts, counts, 1.0 - propensities)
    impossible = ((propensities <= 0.0) & (counts > 0.0)).any(axis=0)
    both = np.logaddexp(above, below) - np.log(2.0)
    return np.where(impossible, np.inf, both)


def departs(log_e: Floats) -> bool:
    """Return whether the arms' combined evidence reaches the threshold of ``ALPHA``."""
    return bool(log_mean_wealth(log_e) - np.log(log_e.size) >= -np.log(ALPHA))


def _log_wealth(hits: Floats, misses: Floats, p: Floats) -> Floats:
    """Return the log wealth of bets on more hits than p, (n_arms,)."""
    gains = hits[..., None] * np.log1p(FRACTIONS * (1.0 / p[..., None] - 1.0))
    gains += misses[..., None] * np.log1p(-FRACTIONS)
    stakes = ((p > 0.0) & (p < 1.0))[..., None]
    return log_mean_wealth(LOG_START + np.where(stakes, gains, 0.0).sum(axis=0))  # (eq. 1)
