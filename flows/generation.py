"""One generation: think, sample, evaluate in parallel, learn, save."""

from prefect import flow, unmapped
from prefect.task_runners import ThreadPoolTaskRunner

from tasks.artifacts import show_standing
from tasks.prefect_support.flow_run_names import (
    task_run_events_have_no_tags,
    task_runs_have_no_tags,
)
from tasks.prefect_support.heartbeats import beating
from tasks.run.active_runs import rlp_enabled, stopping_when_left
from tasks.run.sealed import Sealed
from tasks.secrets.process_redaction import redacted_errors
from tasks.steps import evaluate, learn, predict, sample_candidates, save_generation, think

MAX_CANDIDATES_AT_ONCE = 256
"""Threads that wait for candidates; calls in flight are limited by ``parallel_workers`` alone."""


@flow(
    name="generation",
    flow_run_name="generation {generation:02d}",
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_CANDIDATES_AT_ONCE),  # type: ignore[arg-type]  # its result type is invariant
    validate_parameters=False,
)
def run_generation(run_id: str, generation: int) -> None:
    """Run one generation of an open run and commit it.

    Args:
        run_id: the living run.
        generation: its number, from 0.
    """
    with (
        redacted_errors(),
        stopping_when_left(run_id),
        beating(),
        task_runs_have_no_tags(),
        task_run_events_have_no_tags(),
    ):
        if rlp_enabled(run_id):
            think(run_id, generation)
            predict(run_id, generation)
        plan = sample_candidates(run_id, generation)
        asked = evaluate.map(
            plan.assignments, run_id=unmapped(run_id), generation=unmapped(generation)
        )
        show_standing(run_id)  # which takes a while, in which there is nothing to do but wait
        learned = learn(run_id, generation, Sealed(asked.result()))
        save_generation(run_id, generation, Sealed(learned))
