"""After the search: re-estimate the winner on cells nobody chose by, then write the results."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from convergence_core.events import FinalStarted, RunFinished
from convergence_core.ports import Row
from convergence_core.records import (
    Assignment,
    Candidate,
    Cell,
    Role,
    Trial,
    canonical_json,
    sha256_hex,
)
from convergence_core.result import RunResult
from convergence_core.search.recommend import Recommendation
from convergence_core.search.schedule import Schedule
from convergence_core.search.study import limit_reached
from tasks.inputs.cases import groups_of
from tasks.report.candidates import Final
from tasks.report.files import write_results
from tasks.run.champions import tagged_champion
from tasks.run.promotion_gate import judge, record
from tasks.run.result import collect
from tasks.run.run import Run
from tasks.store.clock import wall_clock_us
from tasks.store.tables.rows import measured_row, payload_rows, posterior_rows

FINAL = -1
"""Number under which the final re-estimation is published."""


def choose_finalists(run: Run) -> list[Assignment]:
    """Return the winner, with the user's defaults and the champion beside it, and their cells.

    All get the same cells: held-out cases that the search never saw, and the search cases once
    more. Empty when nothing can be recommended, or when the budget leaves no call for it.

    Raises:
        RunInterruptedError: the run was asked to stop.
    """
    run.check_stop()
    run.begin_final()
    recommendation = run.study.recommend(run.state)
    if recommendation is None or not run.study.schedule.final_quota().n_cells:
        return []
    members = run.state.search.archive.members
    subjects = [members[recommendation.candidate_id].candidate]
    baseline = run.study.baseline
    for other in (baseline, _champion(run)):
        known = {subject.candidate_id for subject in subjects}
        if other is not None and other.candidate_id not in known:
            subjects.append(other)
    assignments = [_final_assignment(run, candidate) for candidate in subjects]
    run.emit(FinalStarted(n_cells=sum(len(assignment.cells) for assignment in assignments)))
    return assignments


def conclude(run: Run, trials: Sequence[Trial]) -> RunResult:
    """Publish the final evaluations, write the result files and mark the run as done.

    Raises:
        RunInterruptedError: the run was asked to stop; resuming it takes the final look again.
    """
    run.check_stop()
    ended = run.study.stop_reason(run.state)
    assert ended is not None  # noqa: S101 - the flow's loop ends only then
    status, reason = ended.status, ended.text
    recommendation = run.study.recommend(run.state)
    final_look = "" if recommendation is None else told_final_look(run.study.schedule, trials)
    reached = limit_reached(trials)
    if reached is None and not trials and final_look:
        reached = final_look
    if reached is not None:  # a limit that raising would mend: the final look is not whole
        status, reason = "budget", reached
    elif status == "done" and run.study.has_run_all_generations(run.state) and _is_used_up(run):
        reached = f"budget.max_calls={run.study.schedule.max_calls} is spent"
        status, reason = "budget", f"{reached}: {reason}, with less than is configured"
    evaluations = [evaluation for trial in trials for evaluation in trial.evaluations]
    run.store.publish(
        run.run_id,
        FINAL,
        {
            "payloads": payload_rows(run.run_id, evaluations),
            "evaluations": run.evaluation_rows(evaluations),
            "estimates": _estimate_rows(run, recommendation, trials),
            "attempts": run.journal.attempts(run.run_id, generation=None),
        },
    )
    baseline = run.study.baseline
    result = collect(
        run.store,
        replace(run.record, ended_us=wall_clock_us()),
        configuration=run.configuration,
        space=run.loaded.space,
        search=run.state.search,
        recommendation=recommendation,
        final_trials=trials,
        totals=run.journal.totals(run.run_id),
        n_maybe_paid=len(run.maybe_paid),
        cases=run.loaded.cases,
        n_search_cases=len(run.loaded.search_cases),
        n_holdout_cases=len(run.loaded.holdout_cases),
        status=status,
        reason=reason,
        past=run.past,
        baseline_id=None if baseline is None else baseline.candidate_id,
    )
    winner_id = None if recommendation is None else recommendation.candidate_id
    reigning = _champion(run)
    gate = judge(
        run.configuration,
        trials,
        candidate_id=winner_id,
        opponent=reigning or baseline,
        is_champion=reigning is not None,
        weights={case.case_id: case.weight for case in run.loaded.cases},
        groups=groups_of(run.loaded.cases),
    )
    if gate is not None and winner_id is not None:
        result = replace(result, gate=gate)
        record(run, result, gate, run.state.search.archive.members[winner_id].candidate)
    result = write_results(
        replace(result, final_look=final_look),
        run.store,
        run.configuration,
        run.loaded.base_dir,
        cases=run.loaded.cases,
    )
    run.finish(reason, canonical_json(result.to_json()))
    run.emit(RunFinished(run_id=run.run_id, status=result.status, reason=reason))
    return result


def _champion(run: Run) -> Candidate | None:
    return tagged_champion(run.record.tags, run.loaded.space)


def told_final_look(schedule: Schedule, trials: Sequence[Trial]) -> str:
    """Return what the final look at a winner lacks, in words; nothing if it is whole.

    Args:
        schedule: of the run.
        trials: the final look; empty: there was none.
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
        return f"{n:,} of its {len(evaluations):,} cells were not asked: {reached.rstrip('.')}"
    (why, _), *_ = Counter(evaluation.error_type for evaluation in lacking).most_common()
    return f"{len(lacking):,} of its {len(evaluations):,} cells got no reward ({why})"


def _is_used_up(run: Run) -> bool:
    return run.study.schedule.is_used_up(run.spent.calls)


def _estimate_rows(
    run: Run, recommendation: Recommendation | None, trials: Sequence[Trial]
) -> list[Row]:
    """Return what is known at the end: all candidates by the search, and what was measured."""
    n_generations = run.next_generation
    winner_id = None if recommendation is None else recommendation.candidate_id
    level = run.configuration.optimization.mab.confidence_level
    final = Final.of(trials, run.loaded.cases, level)
    rows = posterior_rows(run.run_id, None, recommendation, n_generations=n_generations)
    roles: tuple[Role, ...] = ("holdout", "fresh")
    for trial in trials:
        candidate_id = trial.candidate.candidate_id
        for role in roles:
            found = final.estimate(candidate_id, role)
            if found is not None:
                rows.append(
                    measured_row(
                        run.run_id,
                        candidate_id,
                        role,
                        found,
                        n_generations=n_generations,
                        recommended=candidate_id == winner_id,
                    )
                )
    return rows


def _final_assignment(run: Run, candidate: Candidate) -> Assignment:
    quota = run.study.schedule.final_quota()
    holdout = sorted(
        (case.case_id for case in run.loaded.holdout_cases),
        key=lambda case_id: sha256_hex(f"final:{case_id}"),
    )
    chosen: list[tuple[str, int, Role]] = [
        (case_id, 0, "holdout") for case_id in holdout[: quota.n_holdout]
    ]
    # The first repeat number that the search never asks.
    repeat = run.study.schedule.repeats + run.study.schedule.n_again
    chosen += [(case_id, repeat, "fresh") for case_id in run.study.case_order[: quota.n_fresh]]
    cells = tuple(
        Cell(candidate_id=candidate.candidate_id, case_id=case_id, repeat=number, role=role)
        for case_id, number, role in chosen
    )
    label = f"finally {run.loaded.space.label(candidate.params, n=3)}"
    return Assignment(candidate=candidate, cells=cells, label=label)
