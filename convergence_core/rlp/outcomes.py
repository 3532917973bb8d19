"""Outcomes of committed predictions, from a generation's trials.

Exogenous cells alone count, and none that was evaluated before the predictions were durable: its
outcome might have been known.

What is predicted is a candidate's mean reward over all cases. A trial has seen a few, easy or hard ones, so
what was known of each case before the generation is taken off its reward:

    outcome_i = mean over cells of  y_ij - (b_j - sum_j w_j b_j)

with b_j the posterior means of ``posterior.case_effects``, 0 of cases that no one was asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from convergence_core.records import Cell, Trial
from convergence_core.rlp.commitments import Commitment
from convergence_core.rlp.history import adjusted_mean

OLDER: Final = "it was evaluated before the predictions were durable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOutcomes:
    """Outcomes of the candidates that were predicted."""

    observed: Mapping[str, int] = field(default_factory=dict)
    """Candidate → index of the outcome."""
    void: Mapping[str, str] = field(default_factory=dict)
    """Candidate → why its outcome counts for nothing."""


def outcomes_of(
    commitment: Commitment, trials: Sequence[Trial], exogenous: frozenset[Cell]
) -> CandidateOutcomes:
    """Return the outcomes of a commitment's subjects.

    Args:
        commitment: made before them.
        trials: of the generation.
        exogenous: cells whose choice owed nothing to thoughts.
    """
    observed: dict[str, int] = {}
    void = dict.fromkeys(commitment.subjects, "no outcome")
    for trial in trials:
        name = trial.candidate.candidate_id
        cells = [e for e in trial.evaluations if e.cell in exogenous and e.reward is not None]
        if not cells or name not in void:
            continue
        starts = [e.started_us for e in cells if e.started_us is not None]
        committed_us = commitment.committed_us
        if committed_us is not None and min(starts, default=0) < committed_us:
            void[name] = OLDER
        else:
            observed[name] = commitment.bins.bin_of(adjusted_mean(cells, commitment.easier))
    return CandidateOutcomes(
        # In the order of the commitment, whatever the order of trials.
        observed={name: observed[name] for name in commitment.subjects if name in observed},
        void={name: reason for name, reason in void.items() if name not in observed},
    )
