"""End of a run: final test, result, result files, promotion gate."""

from collections.abc import Sequence
from dataclasses import replace

from convergence_core.events import FinalStarted, RunFinished
from convergence_core.ports import Row
from convergence_core.records import Assignment, Candidate, Role, Trial, canonical_json
from convergence_core.result import GateReport, RunResult
from convergence_core.result.verdict import is_recommended, kind_of, outcome_of
from convergence_core.search.final_look import describe_shortage, final_status, finalists
from convergence_core.search.recommend import Recommendation
from tasks.report.candidates import Final
from tasks.report.files import write_results
from tasks.run.champions import tagged_champion
from tasks.run.promotion_gate import judge, record_verdict
from tasks.run.result import collect
from tasks.run.run import Run
from tasks.store.clock import end_us
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
        RunInterruptedError: the run was asked to stop; resuming it takes the final test again.
    """
    run.check_stop()
    loaded, study = run.loaded, run.study
    recommendation = study.recommend(run.state)
    shortage = "" if recommendation is None else describe_shortage(study.schedule, trials)
    ended = final_status(study, run.state, trials, shortage=shortage, n_calls=run.spent.calls)
    final = Final.of(trials, loaded.cases, study.confidence_level)
    found, gate, kept = _judged(run, recommendation, final)
    _publish(run, recommendation, final, recommended=kept or found)
    result = collect(
        run.store,
        replace(run.record, ended_us=end_us(run.record.started_us)),
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
    if kept is not None:
        result = replace(result, winner=result.baseline, challenger=result.winner)
    if found is not None and gate is not None:
        result = replace(result, gate=gate)
        is_adopted = record_verdict(run, result, gate, found)
        result = replace(result, gate=replace(gate, is_adopted=is_adopted))
    result = write_results(
        replace(result, final_look=shortage),
        run.store,
        run.configuration,
        loaded.base_dir,
        cases=loaded.cases,
    )
    run.finish(ended.text, canonical_json(result.to_json()))
    run.emit(
        RunFinished(
            run_id=run.run_id,
            status=result.status,
            reason=ended.text,
            outcome=outcome_of(result),
        )
    )
    return result


def _champion(run: Run) -> Candidate | None:
    return tagged_champion(run.record.tags, run.loaded.space)


def _judged(
    run: Run, recommendation: Recommendation | None, final: Final
) -> tuple[Candidate | None, GateReport | None, Candidate | None]:
    """Return the search's best, what the gate says of it, and the defaults where they are kept."""
    if recommendation is None:
        return None, None, None
    found = run.state.search.archive.members[recommendation.candidate_id].candidate
    champion, baseline = _champion(run), run.study.baseline
    gate = judge(
        run.configuration.promotion,
        final,
        found,
        champion or baseline,
        is_champion=champion is not None,
    )
    if gate is None or gate.opponent == "champion":
        return found, gate, None
    kind = kind_of(
        gate,
        usd=final.answer_usd(found.candidate_id),
        other_usd=final.answer_usd(gate.opponent_id),
    )
    return found, gate, None if is_recommended(kind) else baseline


def _publish(
    run: Run,
    recommendation: Recommendation | None,
    final: Final,
    *,
    recommended: Candidate | None,
) -> None:
    """Publish the evaluations of the final test, and what is known of all candidates after it."""
    evaluations = [evaluation for trial in final.trials for evaluation in trial.evaluations]
    n_generations = run.next_generation
    recommended_id = None if recommended is None else recommended.candidate_id
    estimates: list[Row] = posterior_rows(
        run.run_id,
        None,
        recommendation,
        n_generations=n_generations,
        recommended_id=recommended_id,
    )
    roles: tuple[Role, ...] = ("holdout", "fresh")
    for candidate_id in (trial.candidate.candidate_id for trial in final.trials):
        estimates += [
            measured_row(
                run.run_id,
                candidate_id,
                role,
                found,
                n_generations=n_generations,
                recommended=candidate_id == recommended_id,
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
