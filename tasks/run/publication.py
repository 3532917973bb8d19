"""Publication of a generation: its tables, the commit marker last."""

from collections.abc import Sequence

from convergence_core.events import GenerationFinished
from convergence_core.ports import Row
from tasks.run.run import Run, StepResult
from tasks.store.tables.rows import (
    candidate_rows,
    generation_row,
    payload_rows,
    posterior_rows,
)


def publish_generation(run: Run, step: StepResult, flow_run_id: str | None) -> GenerationFinished:
    """Publish what a generation has found and taught, move the run on, and say where it stands.

    Raises:
        StoreWriteError: the generation is not visible then; resuming the run publishes it.
    """
    generation, state = run.next_generation, step.state
    evaluations = [evaluation for trial in step.trials for evaluation in trial.evaluations]
    leader = step.recommendation if state.is_answered else None
    baseline = run.study.baseline
    tables: dict[str, Sequence[Row]] = {
        "payloads": payload_rows(run.run_id, evaluations),
        "candidates": candidate_rows(run.run_id, state.search.archive, generation),
        "evaluations": run.evaluation_rows(evaluations),
        "estimates": posterior_rows(
            run.run_id,
            generation,
            leader,
            n_generations=generation + 1,
            baseline_id=None if baseline is None else baseline.candidate_id,
        ),
        "attempts": run.journal.attempts(run.run_id, generation=generation),
        "generations": [
            generation_row(
                run.run_id,
                generation,
                evaluations,
                state.to_checkpoint(),
                recommendation=leader,
                flow_run_id=flow_run_id,
                partial=any(evaluation.status == "skipped" for evaluation in evaluations),
                fallback_us=run.record.started_us,
            )
        ],
    }
    for learned in step.learners.values():
        for name, rows in learned.tables.items():
            tables[name] = [*tables.get(name, ()), *rows]
    run.store.publish(run.run_id, generation, tables)
    run.commit(step)
    finished = GenerationFinished(
        generation=generation,
        n_evaluations=len(evaluations),
        n_failed=sum(evaluation.status not in ("ok", "skipped") for evaluation in evaluations),
        n_skipped=sum(evaluation.status == "skipped" for evaluation in evaluations),
        best_params=None if leader is None else state.params_of(leader.candidate_id),
        best_id=None if leader is None else leader.candidate_id,
        best_mean=None if leader is None else leader.mean,
        best_interval=None if leader is None else (leader.low, leader.high),
        n_calls=state.n_calls,
        cost_usd=run.journal.totals(run.run_id).cost_usd,
        warm_start=run.past.describe_agreement(state.search),
        learning=step.summaries,
    )
    run.emit(finished)
    return finished
