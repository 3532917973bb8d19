"""Publication of a generation: its tables, the commit marker last."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from convergence_core.events import GenerationFinished
from convergence_core.ports import Row
from convergence_core.records import Candidate, Evaluation
from convergence_core.result.verdict import n_unpriced
from convergence_core.search.study_state import StudyState
from tasks.report.evidence import costs_of
from tasks.run.run import Run, StepResult
from tasks.store.layout import FINAL_GENERATION
from tasks.store.tables.rows import candidate_rows, generation_row, payload_rows, posterior_rows


def generation_tables(
    run: Run,
    generation: int,
    learned: Iterable[Mapping[str, Sequence[Row]]],
    *,
    candidates: Iterable[Candidate] = (),
    evaluations: Sequence[Evaluation] = (),
    state: StudyState | None = None,
    **marked: Any,
) -> dict[str, Sequence[Row]]:
    """Return the tables of a generation, including those of its learners.

    Args:
        run: run whose journal holds the attempts.
        generation: number of the generation.
        learned: tables of each learner.
        candidates: candidates first evaluated in the generation.
        evaluations: outcomes of its cells.
        state: state after the generation; ``None`` means the run's current state.
        marked: further arguments of ``generation_row``, e.g. ``flow_run_id``.
    """
    marker = generation_row(
        run.run_id,
        generation,
        evaluations,
        (run.state if state is None else state).to_checkpoint(),
        fallback_us=run.record.started_us,
        **marked,
    )
    tables: dict[str, Sequence[Row]] = {
        "payloads": payload_rows(run.run_id, evaluations),
        "candidates": candidate_rows(run.run_id, generation, candidates),
        "evaluations": run.evaluation_rows(evaluations),
        "attempts": run.journal.attempts(run.run_id, generation=generation),
        "generations": [marker],
    }
    for more in learned:
        for name, rows in more.items():
            tables[name] = [*tables.get(name, ()), *rows]
    return tables


def publish_final(run: Run, evaluations: Sequence[Evaluation], **more: Sequence[Row]) -> None:
    """Publish the evaluations after the last generation, and rows of further tables.

    Raises:
        StoreWriteError: the rows are not visible; resuming the run publishes them.
    """
    tables = {
        "payloads": payload_rows(run.run_id, evaluations),
        "evaluations": run.evaluation_rows(evaluations),
        "attempts": run.journal.attempts(run.run_id, generation=None),
    }
    run.store.publish(run.run_id, FINAL_GENERATION, {**tables, **more})


def publish_generation(run: Run, step: StepResult, flow_run_id: str | None) -> GenerationFinished:
    """Publish a generation, advance the run, and return its summary.

    Raises:
        StoreWriteError: the generation is not visible; resuming the run publishes it.
    """
    generation, state = run.next_generation, step.state
    evaluations = [evaluation for trial in step.trials for evaluation in trial.evaluations]
    leader = step.recommendation if state.is_answered else None
    baseline = run.study.baseline
    estimates = posterior_rows(
        run.run_id,
        generation,
        leader,
        n_generations=generation + 1,
        baseline_id=None if baseline is None else baseline.candidate_id,
    )
    members = state.search.archive
    tables = generation_tables(
        run,
        generation,
        [{"estimates": estimates}, *(learned.tables for learned in step.learners.values())],
        candidates=[member.candidate for member in members if member.generation == generation],
        evaluations=evaluations,
        state=state,
        recommendation=leader,
        flow_run_id=flow_run_id,
        partial=any(evaluation.status == "skipped" for evaluation in evaluations),
    )
    run.store.publish(run.run_id, generation, tables)
    run.commit(step)
    run.save("running")
    best_params = best_name = None
    if leader is not None:
        best_params = state.search.archive.members[leader.candidate_id].candidate.params
        best_name = run.study.space.names({leader.candidate_id: best_params})[leader.candidate_id]
    finished = GenerationFinished(
        generation=generation,
        n_evaluations=len(evaluations),
        n_failed=sum(evaluation.status not in ("ok", "skipped") for evaluation in evaluations),
        n_skipped=sum(evaluation.status == "skipped" for evaluation in evaluations),
        best_params=best_params,
        best_name=best_name,
        best_mean=None if leader is None else leader.mean,
        best_interval=None if leader is None else (leader.low, leader.high),
        n_calls=state.n_calls,
        cost_usd=run.journal.totals(run.run_id).cost_usd,
        n_unpriced=n_unpriced(costs_of(run.store, run.run_id)),
        warm_start=run.past.describe_agreement(state.search),
        learning=tuple(s.summary for s in step.learners.values() if s.summary is not None),
    )
    run.emit(finished)
    return finished
