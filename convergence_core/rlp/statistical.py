"""Predictions of the search's own posterior: the other half of the baseline.

The posterior of a candidate's mean reward (``posterior.space_model``) is normal in warped rewards;
an outcome adds the candidate's own effect, where it is unseen, and the error of a trial. Without
any reward every bin is as likely.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import ndtr

from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import Candidate
from convergence_core.rlp.bins import N_BINS, TENTHS, RewardBins

UNIFORM: Final = 0.02
"""Share of the uniform distribution: the model may be wrong."""


def trial_variance(fitted: FittedSpaceModel) -> float:
    """Return the variance of one trial's error, in warped units squared; 0 without evidence."""
    learned = fitted.learned
    if learned is None:
        return 0.0
    slope = learned.warp.slope(learned.effects.mean) if learned.effects.is_measured else 1.0
    errors = slope * slope * np.diag(learned.effects.errors)
    return float(learned.process.noise * np.median(errors))


def easier_cases(fitted: FittedSpaceModel) -> dict[str, float]:
    """Return case → by how much its rewards are known to lie above the mean over cases."""
    if fitted.learned is None:
        return {}
    effects, evidence = fitted.learned.effects, fitted.learned.evidence
    mean = float(evidence.case_weight @ effects.case_effect)
    known = zip(evidence.case_ids, effects.case_effect, strict=True)
    return {case: float(effect) - mean for case, effect in known}


def predictive(
    fitted: FittedSpaceModel, candidates: Sequence[Candidate], bins: RewardBins = TENTHS
) -> np.ndarray:
    """Return the bins' probabilities of each candidate's next trial, (n, N_BINS)."""
    if fitted.learned is None or not candidates:
        return np.full((len(candidates), N_BINS), 1.0 / N_BINS)
    beliefs = fitted.posterior(candidates)
    mean, sd = beliefs.marginals
    unseen = beliefs.rows < 0
    variance = sd**2 + trial_variance(fitted) + fitted.learned.process.nugget_variance * unseen
    edges = fitted.learned.warp.forward(bins.edges[1:-1])  # (N_BINS - 1,)
    below = ndtr((edges - mean[:, None]) / np.sqrt(variance)[:, None])
    n = len(candidates)
    p = np.diff(np.concatenate([np.zeros((n, 1)), below, np.ones((n, 1))], axis=1), axis=1)
    return np.asarray((1.0 - UNIFORM) * np.maximum(p, 0.0) + UNIFORM / N_BINS, np.float64)
