"""From commitments and outcomes to rows: what each thought gained on each outcome.

Both arms pass through the same T_cal; the statistical posterior is calibrated already. A subject
without an outcome, or without a prediction in one of the arms, is left out of that pair whole:
never one side alone. A thought that moved no prediction is not scored: what the same model foretells
without it is no merit of the thought.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.rlp import gain
from convergence_core.rlp.baseline import Mixture
from convergence_core.rlp.bins import crps, tempered
from convergence_core.rlp.commitments import SILENT_ARM, Commitment, Forecasts
from convergence_core.rlp.history import CandidateOutcomes
from convergence_core.rlp.replay import ReplayRow


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRows:
    """A generation's rows."""

    rows: tuple[ReplayRow, ...]
    """Of this generation's thoughts, then of older ones."""
    likelihoods: tuple[tuple[float, ...], ...]
    """For each predictor of the baseline, the probability it gave each outcome."""

    def gains(self, thought_id: str) -> list[float]:
        """Return the gains that a thought of this generation is rewarded for."""
        return [row.gain for row in self._own(thought_id)]

    def resolutions(self, thought_id: str) -> list[float]:
        """Return the gains of such a thought over its own average forecast."""
        found = (row.resolution for row in self._own(thought_id))
        return [value for value in found if value is not None]

    def _own(self, thought_id: str) -> list[ReplayRow]:
        return [r for r in self.rows if r.thought_id == thought_id and not r.is_rescored]


def score(
    commitment: Commitment, outcomes: CandidateOutcomes, mixture: Mixture, t_cal: float
) -> GainRows:
    """Return what the thoughts of a commitment gained.

    Args:
        commitment: made before the outcomes.
        outcomes: what came.
        mixture: weights of the baseline as they were before these outcomes.
        t_cal: temperature of both arms.
    """
    known = [
        subject
        for subject in commitment.subjects
        if subject in outcomes.observed
        and subject in commitment.no_thought
        and subject in commitment.statistical
    ]
    if commitment.estimator is None or not known:
        return GainRows(rows=(), likelihoods=())
    no_thought = {s: tempered(commitment.no_thought[s], t_cal) for s in known}
    baselines = {s: mixture.predict([no_thought[s], commitment.statistical[s]]) for s in known}
    heard = [t.thought_id for t in commitment.heard]
    arms: Sequence[tuple[str, Forecasts, bool]] = [
        *((name, commitment.forecasts.get(name, {}), False) for name in heard),
        *((name, forecasts, True) for name, forecasts in commitment.rescored.items()),
    ]
    rows = []
    for thought_id, forecasts, is_rescored in arms:
        told = [subject for subject in known if subject in forecasts]
        if not told:
            continue
        outcome = [outcomes.observed[subject] for subject in told]
        right = np.array([tempered(forecasts[subject], t_cal) for subject in told])
        resolved = gain.resolutions(right, outcome)
        for subject, observed, p, resolution in zip(told, outcome, right, resolved, strict=True):
            rows.append(
                ReplayRow(
                    generation=commitment.generation,
                    thought_id=thought_id,
                    subject=subject,
                    observed=observed,
                    forecast=_tuple(forecasts[subject]),
                    no_thought=_tuple(commitment.no_thought[subject]),
                    statistical=_tuple(commitment.statistical[subject]),
                    p=float(p[observed]),
                    baseline=float(baselines[subject][observed]),
                    gain=gain.information_gain(p, baselines[subject], observed),
                    paper_gain=gain.log_ratio(p, no_thought[subject], observed),
                    crps_gain=crps(no_thought[subject], observed) - crps(p, observed),
                    resolution=float(resolution),
                    estimator=commitment.estimator,
                    is_rescored=is_rescored,
                    is_censored=commitment.is_censored(thought_id, subject, observed),
                )
            )
    predictors = (no_thought, commitment.statistical)
    seen = [s for s in known if not commitment.is_censored(SILENT_ARM, s, outcomes.observed[s])]
    return GainRows(
        rows=tuple(rows),
        likelihoods=tuple(
            tuple(float(of[s][outcomes.observed[s]]) for s in seen) for of in predictors
        ),
    )


def _tuple(p: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in p)
