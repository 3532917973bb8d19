"""Final test: re-estimation of the winner on cells that its choice did not use.

The winner, the user's defaults and the champion get the same cells: held-out cases, which the
search never saw, and another repeat of the search cases.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from convergence_core.records import Assignment, Candidate, Cell, Role, Trial, sha256_hex
from convergence_core.search.schedule import Schedule
from convergence_core.search.study import StopReason, Study, limit_reached
from convergence_core.search.study_state import StudyState


def finalists(
    study: Study, state: StudyState, held_out: Iterable[str], champion: Candidate | None
) -> list[Assignment]:
    """Return the candidates of the final test, the winner first, and their cells.

    The list is empty if no candidate can be recommended or the budget leaves no call.

    Args:
        study: Study of the run.
        state: State at the end of the search.
        held_out: Case ids that the search never saw.
        champion: Candidate in production; ``None`` if there is none.
    """
    recommendation = study.recommend(state)
    n_holdout, n_fresh = study.schedule.final_quota()
    if recommendation is None or not n_holdout + n_fresh:
        return []
    winner = state.search.archive.members[recommendation.candidate_id].candidate
    subjects = {winner.candidate_id: winner}
    for other in (study.baseline, champion):
        if other is not None:
            subjects.setdefault(other.candidate_id, other)
    cases = sorted(held_out, key=lambda case_id: sha256_hex(f"final:{case_id}"))
    # First repeat number that the search never uses.
    repeat = study.schedule.repeats + study.schedule.n_again
    cells: list[tuple[str, int, Role]] = [
        *((cases[i % len(cases)], i // len(cases), "holdout") for i in range(n_holdout)),
        *((case_id, repeat, "fresh") for case_id in study.case_order[:n_fresh]),
    ]
    return [
        Assignment(
            candidate=candidate,
            cells=tuple(
                Cell(candidate_id=candidate_id, case_id=case_id, repeat=number, role=role)
                for case_id, number, role in cells
            ),
            label=f"final test: {study.space.name(candidate, n=3)}",
        )
        for candidate_id, candidate in subjects.items()
    ]


def describe_shortage(schedule: Schedule, trials: Sequence[Trial]) -> str:
    """Return what the final test lacks, in words without a full stop, or "" if it is complete.

    Args:
        schedule: Schedule of the run.
        trials: Trials of the final test; empty if there was none.
    """
    if not trials:
        return schedule.final_shortage() or ""
    evaluations = [evaluation for trial in trials for evaluation in trial.evaluations]
    lacking = [evaluation for evaluation in evaluations if evaluation.reward is None]
    if not lacking:
        return ""
    reached = limit_reached(trials)
    if reached is not None:
        n = sum(evaluation.error_type == "budget" for evaluation in lacking)
        return (
            f"{n:,} of its {len(evaluations):,} evaluations were not made: {reached.rstrip('.')}"
        )
    (why, _), *_ = Counter(evaluation.error_type for evaluation in lacking).most_common()
    return f"{len(lacking):,} of its {len(evaluations):,} evaluations got no reward ({why})"


def final_status(
    study: Study, state: StudyState, trials: Sequence[Trial], *, shortage: str, n_calls: int
) -> StopReason:
    """Return the final status of a run and its reason, including the final test.

    Args:
        study: Study of the run.
        state: State at the end of the search.
        trials: Trials of the final test; empty if there was none.
        shortage: What the final test lacks, in words; empty if it is complete.
        n_calls: Calls that count against the limits.
    """
    ended = study.stop_reason(state)
    assert ended is not None  # noqa: S101 - the search has ended
    reached = limit_reached(trials) or ("" if trials else shortage)
    if reached:  # the final test is incomplete, and a higher limit completes it
        return "budget", reached
    status, why = ended
    is_planned_end = status == "done" and study.has_run_all_generations(state)
    if is_planned_end and study.schedule.is_used_up(n_calls):
        spent = f"budget.max_calls={study.schedule.max_calls} is spent"
        return "budget", f"{spent}: {why}, with fewer evaluations than configured"
    return ended
