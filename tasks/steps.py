"""Prefect tasks of a generation: sample, evaluate, learn, save.

One task run per candidate, never one per call: a task run costs milliseconds, a cell microseconds.
Nothing here is retried or cached by Prefect: faults that a retry heals are retried call by call,
under the run's limits, and the journal is what remembers answers.
"""

from typing import Any

from prefect import runtime, task
from prefect.cache_policies import NO_CACHE

from convergence_core.events import GenerationFinished, GenerationStarted, RunFinished
from convergence_core.ports import Row
from convergence_core.records import Assignment, Trial
from convergence_core.rlp.rows import prediction_rows, text_rows, thought_rows, update_rows
from convergence_core.search.sampler import Plan
from tasks.rlp.run_rlp import RlpStep
from tasks.run.active_runs import run_of
from tasks.run.progress import StepResult
from tasks.run.run import Run, baseline_of, has_answers
from tasks.run.sao_rounds import save_rounds
from tasks.run.sealed import Sealed
from tasks.secrets.process_redaction import redacted_errors
from tasks.store.tables.rows import (
    candidate_rows,
    generation_row,
    payload_rows,
    posterior_rows,
)


@task(task_run_name="think before generation {generation:02d}", cache_policy=NO_CACHE)
@redacted_errors()
def think(run_id: str, generation: int) -> int:  # noqa: ARG001 - names the task run
    """Write the generation's thoughts, durable before any of its outcomes; return how many.

    Faults of the model are reasons, kept with the thoughts; without a model there are none.
    """
    return sum(thought.speaks for thought in run_of(run_id).think())


@task(task_run_name="predict generation {generation:02d}", cache_policy=NO_CACHE)
@redacted_errors()
def predict(run_id: str, generation: int) -> int:  # noqa: ARG001 - names the task run
    """Read what each thought predicts of candidates chosen without it; return how many of them."""
    commitment = run_of(run_id).predict()
    return 0 if commitment is None else len(commitment.subjects)


@task(task_run_name="prefer before generation {generation:02d}", cache_policy=NO_CACHE)
@redacted_errors()
def prefer(run_id: str, generation: int) -> int:  # noqa: ARG001 - names the task run
    """Play the round of preferences before a generation; return how many pairs it kept.

    Nothing of it is visible before the generation is saved. Faults of the model are errors with a
    reason, and no rows.
    """
    played = run_of(run_id).prefer()
    return 0 if played is None else sum(pair.dropped_by is None for pair in played.pairs)


@task(task_run_name="save round {generation:02d}", cache_policy=NO_CACHE)
@redacted_errors()
def save_round(run_id: str, generation: int) -> None:  # noqa: ARG001 - names the task run
    """Publish a round that was played without an optimization.

    Raises:
        RunInterruptedError: the run was asked to stop, so the round may be incomplete.
        StoreWriteError: the round is not visible then.
    """
    run = run_of(run_id)
    run.check_stop()
    save_rounds(run, runtime.flow_run.id)


def goes_on_with_rounds(run_id: str) -> bool:
    """Whether another round of preferences is to be played without an optimization.

    Raises:
        RunInterruptedError: the run was asked to stop.
    """
    run = run_of(run_id)
    run.check_stop()
    return run.preferring is not None and run.preferring.may_go_on and run.leader() is not None


def finish_rounds(run_id: str) -> None:
    """Mark a run of rounds as done, with why it ended."""
    run = run_of(run_id)
    found = run.preferring
    why = "no preferences can be written" if found is None else found.disabled_reason
    if why is None and found is not None:
        nobody = "no run of this system has a reward yet"
        why = (
            nobody
            if run.leader() is None
            else found.state.rounds.stop_reason or "alarm of coverage"
        )
    run.save("done", why)
    run.emit(RunFinished(run_id=run_id, status="done", reason=why or ""))


@task(task_run_name="sample generation {generation:02d}", cache_policy=NO_CACHE)
@redacted_errors()
def sample_candidates(run_id: str, generation: int) -> Plan:
    """Plan the generation: draws from the posterior choose among what evolution bred."""
    run = run_of(run_id)
    plan = run.ask()
    run.emit(
        GenerationStarted(
            generation=generation, n_candidates=len(plan.assignments), n_cells=plan.n_cells
        )
    )
    return plan


@task(task_run_name="evaluate {assignment.label}", cache_policy=NO_CACHE)
@redacted_errors()
def evaluate(assignment: Assignment, run_id: str, generation: int | None) -> Trial:
    """Ask all cells of one candidate, concurrently, under the run's limits.

    Args:
        assignment: the candidate and its cells.
        run_id: the living run.
        generation: its number; ``None`` for the final re-estimation.
    """
    return run_of(run_id).evaluate(assignment, generation)


@task(task_run_name="learn from generation {generation:02d}", cache_policy=NO_CACHE)
@redacted_errors()
def learn(run_id: str, generation: int, trials: Sealed[list[Trial]]) -> StepResult:  # noqa: ARG001
    """Update the posterior and the stopper; nothing is kept before it is saved.

    Raises:
        RunInterruptedError: the run was asked to stop, so the trials may be incomplete.
    """
    run = run_of(run_id)
    run.check_stop()
    return run.learn(trials.value)


@task(task_run_name="save generation {generation:02d}", cache_policy=NO_CACHE)
@redacted_errors()
def save_generation(run_id: str, generation: int, learned: Sealed[StepResult]) -> None:
    """Publish the generation's tables, its commit marker last, and move the run on.

    Raises:
        StoreWriteError: the generation is not visible then; resuming the run publishes it.
    """
    run = run_of(run_id)
    step = learned.value
    evaluations = [evaluation for trial in step.trials for evaluation in trial.evaluations]
    believed = step.recommendation if has_answers(run, evaluations) else None
    baseline = baseline_of(run)
    tables: dict[str, Any] = {
        "payloads": [*payload_rows(run_id, evaluations), *_thought_texts(run_id, step)],
        "candidates": candidate_rows(run_id, step.progress.search.archive, generation),
        "evaluations": run.evaluation_rows(evaluations),
        "estimates": posterior_rows(
            run_id,
            generation,
            believed,
            n_generations=generation + 1,
            baseline_id=None if baseline is None else baseline.candidate_id,
        ),
        "attempts": run.journal.attempts(run_id, generation=generation),
        "generations": [
            generation_row(
                run_id,
                generation,
                evaluations,
                step.progress.to_checkpoint(),
                recommendation=believed,
                flow_run_id=runtime.flow_run.id,
                partial=any(evaluation.status == "skipped" for evaluation in evaluations),
                fallback_us=run.record.started_us,
            )
        ],
    }
    tables |= thought_tables(run_id, step.taught)
    for name, rows in preference_tables(run, generation).items():
        tables[name] = [*tables.get(name, []), *rows]
    run.store.publish(run_id, generation, tables)
    run.commit(step.progress, step.taught, step.preferred)
    leader = believed
    run.emit(
        GenerationFinished(
            generation=generation,
            n_evaluations=len(evaluations),
            n_failed=sum(evaluation.status != "ok" for evaluation in evaluations),
            best_params=None if leader is None else step.progress.params_of(leader.candidate_id),
            best_mean=None if leader is None else leader.mean,
            best_interval=None if leader is None else (leader.low, leader.high),
            n_calls=step.progress.n_calls,
            cost_usd=run.journal.totals(run_id).cost_usd,
            warm_start=run.past.learned(step.progress.search),
        )
    )


def preference_tables(run: Run, generation: int) -> dict[str, list[Row]]:
    """Return the rows of the round that was played before a generation."""
    played = None if run.preferring is None else run.preferring.round
    if played is None or played.generation != generation:
        return {}
    return dict(played.tables)


def thought_tables(run_id: str, taught: RlpStep | None) -> dict[str, list[Row]]:
    """Return the rows of what a generation taught about thoughts."""
    if taught is None:
        return {}
    commitment, lesson = taught.commitment, taught.lesson
    return {
        "thoughts": thought_rows(run_id, commitment, lesson, taught.weights),
        "predictions": prediction_rows(run_id, commitment, lesson),
        "policy_updates": update_rows(run_id, commitment, lesson, taught.before, taught.after),
    }


def _thought_texts(run_id: str, step: StepResult) -> list[Row]:
    return [] if step.taught is None else text_rows(run_id, step.taught.commitment.thoughts)
