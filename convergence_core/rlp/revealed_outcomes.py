"""From a generation's trials to what came of its commitment.

Exogenous cells alone count, and none that was evaluated before the predictions were durable: its
outcome might have been known.

What is foretold is a candidate's mean reward over all cases. A trial has seen a few, easy or hard ones, so
what was known of each case before the generation is taken off its reward:

    outcome_i = mean over cells of  y_ij - (b_j - sum_j w_j b_j)

with b_j the posterior means of ``posterior.case_effects``, 0 of cases that nobody was asked; of pass
and fail that are read by ability, what a case's ease is worth to the median candidate.
"""

from collections.abc import Sequence
from typing import Final

from convergence_core.records import Cell, Trial
from convergence_core.rlp.commitments import Commitment
from convergence_core.rlp.history import CandidateOutcomes, adjusted_mean

OLDER: Final = "it was evaluated before the predictions were durable"


def outcomes_of(
    commitment: Commitment, trials: Sequence[Trial], exogenous: frozenset[Cell]
) -> CandidateOutcomes:
    """Return what came of a commitment's subjects, from exogenous cells alone.

    A cell that was evaluated before the predictions were durable voids its candidate: its outcome
    might have been known.
    """
    rewards: dict[str, float] = {}
    void: dict[str, str] = {}
    for trial in trials:
        name = trial.candidate.candidate_id
        cells = [e for e in trial.evaluations if e.cell in exogenous and e.reward is not None]
        if not cells:
            continue
        starts = [e.started_us for e in cells if e.started_us is not None]
        if (
            commitment.committed_us is not None
            and min(starts, default=0) < commitment.committed_us
        ):
            void[name] = OLDER
            continue
        rewards[name] = adjusted_mean(cells, commitment.easier)
    observed: dict[str, int] = {}
    voided: dict[str, str] = {}
    for subject in commitment.subjects:
        if subject in rewards:
            observed[subject] = commitment.scale.bin_of(rewards[subject])
        else:
            voided[subject] = void.get(subject, "no outcome")
    return CandidateOutcomes(observed=observed, void=voided)
