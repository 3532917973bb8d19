"""Information gain of each thought on each outcome.

Both arms pass through the same T_cal; the statistical posterior is calibrated already. A subject
without an outcome, or without a prediction in one of the arms, is left out of that pair whole:
never one side alone. A thought that moved no prediction is not scored: what the same model predicts
without it is no merit of the thought.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from convergence_core.rlp import gain
from convergence_core.rlp.baseline import Mixture
from convergence_core.rlp.bins import tempered
from convergence_core.rlp.commitments import NO_THOUGHT_ARM, Commitment, Forecasts
from convergence_core.rlp.outcomes import CandidateOutcomes
from convergence_core.rlp.replay import ReplayRow


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRows:
    """A generation's rows."""

    rows: tuple[ReplayRow, ...] = ()
    """Of this generation's thoughts, then of older ones."""
    likelihoods: tuple[tuple[float, ...], ...] = ()
    """For each predictor of the baseline, the probability it gave each outcome."""

    def own(self, thought_id: str) -> list[ReplayRow]:
        """Return the rows that a thought of this generation is rewarded for."""
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
    observed = {
        subject: outcomes.observed[subject]
        for subject in commitment.subjects
        if subject in outcomes.observed
        and subject in commitment.no_thought
        and subject in commitment.statistical
    }
    if commitment.estimator is None or not observed:
        return GainRows()
    no_thought = {s: tempered(commitment.no_thought[s], t_cal) for s in observed}
    baselines = {s: mixture.predict([no_thought[s], commitment.statistical[s]]) for s in observed}
    thought_ids = [t.thought_id for t in commitment.weighted]
    arms = [
        *((name, commitment.forecasts.get(name, {}), False) for name in thought_ids),
        *((name, forecasts, True) for name, forecasts in commitment.rescored.items()),
    ]
    rows: list[ReplayRow] = []
    for name, forecasts, is_rescored in arms:
        p = {s: tempered(forecasts[s], t_cal) for s in observed if s in forecasts}
        if p:
            outcome = [observed[s] for s in p]
            resolutions = gain.resolutions(np.array([*p.values()]), outcome)
            rows += [
                ReplayRow(
                    generation=commitment.generation,
                    thought_id=name,
                    subject=s,
                    observed=observed[s],
                    **_raw(commitment, forecasts, s),
                    p=float(q[observed[s]]),
                    baseline=float(baselines[s][observed[s]]),
                    gain=gain.information_gain(q, baselines[s], observed[s]),
                    resolution=float(resolution),
                    estimator=commitment.estimator,
                    is_rescored=is_rescored,
                    is_censored=commitment.is_censored(name, s, observed[s]),
                )
                for (s, q), resolution in zip(p.items(), resolutions, strict=True)
            ]
    seen = [s for s in observed if not commitment.is_censored(NO_THOUGHT_ARM, s, observed[s])]
    return GainRows(
        rows=tuple(rows),
        likelihoods=tuple(
            tuple(float(of[s][observed[s]]) for s in seen)
            for of in (no_thought, commitment.statistical)
        ),
    )


def _raw(commitment: Commitment, forecasts: Forecasts, subject: str) -> dict[str, Any]:
    """Return a subject's predictions in all three arms, as they were given."""
    arms = {
        "forecast": forecasts,
        "no_thought": commitment.no_thought,
        "statistical": commitment.statistical,
    }
    return {name: tuple(float(v) for v in arm[subject]) for name, arm in arms.items()}
