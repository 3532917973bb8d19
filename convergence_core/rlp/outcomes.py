"""Outcomes of committed forecasts, from a generation's trials.

Only exogenous cells are scored, and none that was evaluated before the forecasts were durable,
because its outcome might have been known.

A forecast is of a candidate's mean score over all cases. A trial sees only a few cases, which may
be easy or hard. So the estimated effect of each case before the generation is subtracted:

    outcome_i = mean over cells of  y_ij - (b_j - sum_j w_j b_j)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from convergence_core.records import Cell, Evaluation, Trial
from convergence_core.rlp.commitments import Commitment


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOutcomes:
    """Outcomes of the forecast candidates."""

    observed: Mapping[str, float] = field(default_factory=dict)
    """Candidate chosen without a thought → score."""
    proposed: Mapping[str, float] = field(default_factory=dict)
    """Candidate that the model proposed → score, which is not rewarded."""
    others: float | None = None
    """Mean score of all candidates chosen without a thought; ``None`` if there is none."""


def adjusted_mean(evaluations: Sequence[Evaluation], easier: Mapping[str, float]) -> float:
    """Return the mean score adjusted for the cases, within [0, 1].

    Args:
        evaluations: Evaluations with a score, at least one.
        easier: Case → excess of its scores over the mean of all cases; 0 for others.
    """
    adjusted = [(e.reward or 0.0) - easier.get(e.cell.case_id, 0.0) for e in evaluations]
    return min(1.0, max(0.0, sum(adjusted) / len(adjusted)))


def outcomes_of(
    commitment: Commitment, trials: Sequence[Trial], exogenous: frozenset[Cell]
) -> CandidateOutcomes:
    """Return the outcomes of a commitment's candidates.

    Args:
        commitment: Commitment made before them.
        trials: Trials of the generation.
        exogenous: Cells chosen without thoughts.
    """
    observed: dict[str, float] = {}
    proposed: dict[str, float] = {}
    others: list[float] = []
    named = {setting.candidate_id for setting in commitment.settings} - {*commitment.subjects}
    for trial in trials:
        name = trial.candidate.candidate_id
        cells = [e for e in trial.evaluations if e.reward is not None and e.cell.role == "search"]
        if name in named and cells:
            proposed[name] = adjusted_mean(cells, commitment.easier)
        cells = [e for e in cells if e.cell in exogenous]
        if not cells:
            continue
        others.append(adjusted_mean(cells, commitment.easier))
        starts = [e.started_us for e in cells if e.started_us is not None]
        committed_us = commitment.committed_us
        if committed_us is None or min(starts, default=0) >= committed_us:
            observed[name] = others[-1]
    return CandidateOutcomes(
        # In the order of the commitment, independent of the order of trials.
        observed={name: observed[name] for name in commitment.subjects if name in observed},
        proposed={
            s.candidate_id: proposed[s.candidate_id]
            for s in commitment.settings
            if s.candidate_id in proposed
        },
        others=sum(others) / len(others) if others else None,
    )
