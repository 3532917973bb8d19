"""Forecasts of the search's own posterior: the baseline.

The posterior of a candidate's mean score (``posterior.space_model``) is normal in warped scores.
An outcome adds the error of a trial, and the candidate's own effect if it is unseen.
"""

from collections.abc import Sequence

import numpy as np

from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import Candidate
from convergence_core.rlp.quantiles import Quantiles, Z


def trial_variance(fitted: FittedSpaceModel) -> float:
    """Return the variance of one trial's error, in warped units squared; 0 without evidence."""
    learned = fitted.learned
    if learned is None:
        return 0.0
    slope = learned.warp.slope(learned.effects.mean) if learned.effects.is_measured else 1.0
    errors = slope * slope * np.diag(learned.effects.errors)
    return float(learned.process.noise * np.median(errors))


def easier_cases(fitted: FittedSpaceModel) -> dict[str, float]:
    """Return case → estimated excess of its scores over the mean of all cases."""
    if fitted.learned is None:
        return {}
    effects, evidence = fitted.learned.effects, fitted.learned.evidence
    mean = float(evidence.case_weight @ effects.case_effect)
    known = zip(evidence.case_ids, effects.case_effect, strict=True)
    return {case: float(effect) - mean for case, effect in known}


def predictive(fitted: FittedSpaceModel, candidates: Sequence[Candidate]) -> list[Quantiles]:
    """Return the quantiles of each candidate's next trial; those of [0, 1] without evidence."""
    if fitted.learned is None or not candidates:
        return [Quantiles(0.1, 0.5, 0.9)] * len(candidates)
    beliefs = fitted.posterior(candidates)
    mean, sd = beliefs.marginals
    unseen = beliefs.rows < 0
    variance = sd**2 + trial_variance(fitted) + fitted.learned.process.nugget_variance * unseen
    ends = mean + np.sqrt(variance) * np.array([[-Z], [0.0], [Z]])  # (3, n)
    return [Quantiles.of(q.tolist()) for q in fitted.learned.warp.backward(ends).T]
