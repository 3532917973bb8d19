"""End of a run: final look, result, result files, promotion gate."""

from collections.abc import Sequence
from dataclasses import replace

from convergence_core.events import FinalStarted, RunFinished
from convergence_core.ports import Row
from convergence_core.records import Assignment, Candidate, Role, Trial, canonical_json
from convergence_core.result import RunResult
from convergence_core.search.final_look import describe_shortage, final_status, finalists
from convergence_core.search.recommend import Recommendation
from tasks.report.candidates import Final
from tasks.report.files import write_results
from tasks.run.champions import tagged_champion
from tasks.run.promotion_gate import judge, record_verdict
from tasks.run.result import collect
from tasks.run.run import Run
from tasks.store.clock import wall_clock_us
from tasks.store.tables.rows import measured_row, payload_rows, posterior_rows

FINAL = -1
"""Number under which the final re-estimation is published."""


def choose_finalists(run: Run) -> list[Assignment]:
    """Return the winner, with the user's defaults and the champion beside it, and their cells.

    Raises:
        RunInterruptedError: the run was asked to stop.
    """
    run.check_stop()
    run.begin_final()
    held_out = [case.case_id for case in run.loaded.holdout_cases]
    assignments = finalists(run.study, run.state, held_out, _champion(run))
    if assignments:
        run.emit(FinalStarted(n_cells=sum(len(one.cells) for one in assignments)))
    return assignments


def conclude(run: Run, trials: Sequence[Trial]) -> RunResult:
    """Publish the final evaluations, write the result files and mark the run as done.

    Raises:
        RunInterruptedError: the run was asked to stop; resuming it takes the final look again.
    """
    run.check_stop()
    loaded, study = run.loaded, run.study
    recommendation = study.recommend(run.state)
    shortage = "" if recommendation is None else describe_shortage(study.schedule, trials)
    ended = final_status(study, run.state, trials, shortage=shortage, n_calls=run.spent.calls)
    final = Final.of(trials, loaded.cases, study.confidence_level)
    _publish(run, recommendation, final)
    result = collect(
        run.store,
        replace(run.record, ended_us=wall_clock_us()),
        loaded,
        run.state.search,
        recommendation,
        totals=run.journal.totals(run.run_id),
        status=ended.status,
        reason=ended.text,
        past=run.past,
        final=final,
        n_maybe_paid=len(run.maybe_paid),
    )
    if recommendation is not None:
        champion = _champion(run)
        winner = run.state.search.archive.members[recommendation.candidate_id].candidate
        gate = judge(
            run.configuration.promotion,
            final,
            winner,
            champion or study.baseline,
            is_champion=champion is not None,
        )
        if gate is not None:
            result = replace(result, gate=gate)
            record_verdict(run, result, gate, winner)
    result = write_results(
        replace(result, final_look=shortage),
        run.store,
        run.configuration,
        loaded.base_dir,
        cases=loaded.cases,
    )
    run.finish(ended.text, canonical_json(result.to_json()))
    run.emit(RunFinished(run_id=run.run_id, status=result.status, reason=ended.text))
    return result


def _champion(run: Run) -> Candidate | None:
    return tagged_champion(run.record.tags, run.loaded.space)


def _publish(run: Run, recommendation: Recommendation | None, final: Final) -> None:
    """Publish the evaluations of the final look, and what is known of all candidates after it."""
    evaluations = [evaluation for trial in final.trials for evaluation in trial.evaluations]
    n_generations = run.next_generation
    winner_id = None if recommendation is None else recommendation.candidate_id
    estimates: list[Row] = [
        *posterior_rows(run.run_id, None, recommendation, n_generations=n_generations)
    ]
    roles: tuple[Role, ...] = ("holdout", "fresh")
    for candidate_id in (trial.candidate.candidate_id for trial in final.trials):
        estimates += [
            measured_row(
                run.run_id,
                candidate_id,
                role,
                found,
                n_generations=n_generations,
                recommended=candidate_id == winner_id,
            )
            for role in roles
            if (found := final.estimate(candidate_id, role)) is not None
        ]
    run.store.publish(
        run.run_id,
        FINAL,
        {
            "payloads": payload_rows(run.run_id, evaluations),
            "evaluations": run.evaluation_rows(evaluations),
            "estimates": estimates,
            "attempts": run.journal.attempts(run.run_id, generation=None),
        },
    )
