"""Flow runs: names, tags, heartbeats and clean-up."""

import contextlib
from collections.abc import Iterator
from typing import TypeVar, cast

from prefect import runtime
from prefect.context import FlowRunContext, TagsContext
from prefect.utilities.annotations import quote

from tasks.prefect_support.heartbeats import beating, flows_beat_themselves
from tasks.prefect_support.orphans import cancelling_pending_subflows
from tasks.prefect_support.program import collecting_rarely
from tasks.run.run import Run, is_open, run_of
from tasks.secrets.process_redaction import redacted_errors

T = TypeVar("T")


def label_of_flow_run() -> str:
    """Return the run's label, e.g. ``support_bot-7f3a``; the flow's name until it is open.

    A flow run that opens its run itself gets the label as soon as the run has one.
    """
    run_id = (runtime.flow_run.parameters or {}).get("run_id")
    if isinstance(run_id, str) and is_open(run_id):
        return run_of(run_id).label
    return "optimize"


def label_of_round() -> str:
    """Return the name of a round, with the generation that it precedes, if any."""
    generation = (runtime.flow_run.parameters or {}).get("generation")
    return "sao" if generation is None else f"sao before generation {int(generation):02d}"


@contextlib.contextmanager
def attended() -> Iterator[None]:
    """Redact a flow run's errors, send heartbeats, and collect garbage rarely."""
    with redacted_errors(), beating(), collecting_rarely():
        yield


@contextlib.contextmanager
def attended_run(run: Run) -> Iterator[None]:
    """Enter a run whose subflows send their own heartbeats, and cancel pending ones on exit."""
    with cancelling_pending_subflows(run.run_id), run, flows_beat_themselves():
        yield


@contextlib.contextmanager
def attended_generation(run_id: str) -> Iterator[None]:
    """Attend a generation's subflow: stop it on cancellation, remove its task runs' tags."""
    with (
        attended(),
        stopping_when_left(run_id),
        task_runs_have_no_tags(),
        task_run_events_have_no_tags(),
    ):
        yield


@contextlib.contextmanager
def stopping_when_left(run_id: str) -> Iterator[None]:
    """Stop an open run when a signal leaves the block, because its flow run was cancelled.

    Prefect's task runner waits for its threads at the end of a flow run. Without the stop, they
    would first evaluate all their cells.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and is_open(run_id):
            run_of(run_id).stop()
        raise


def task_runs_have_no_tags() -> TagsContext:
    """Return a context that removes the flow run's tags from task runs.

    Before each task run with tags, Prefect asks its server for limits on them: 10 to 20 ms each,
    sequentially. The flow run identifies its task runs anyway.
    """
    return TagsContext(current_tags=set())


@contextlib.contextmanager
def task_run_events_have_no_tags() -> Iterator[None]:
    """Remove the tags of a flow run from the events of its task runs, three for each.

    Tags are resources of an event, which client and server validate at each step: without a
    generation's two tags, both use a tenth less CPU. The events name the flow run, which has the
    tags; within the block, ``runtime.flow_run.tags`` is empty.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:  # called without Prefect
        yield
        return
    flow_run = context.flow_run.model_copy(update={"tags": []})
    with context.model_copy(update={"flow_run": flow_run}):
        yield


def quoted(value: T) -> T:
    """Return a value that Prefect passes to a task unchanged.

    Prefect searches every other task input for futures; a generation's trials hold tens of
    thousands of values and no future.
    """
    return cast("T", quote(value))
