"""Flow runs: their names and tags, and what is seen to while they last."""

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
    """Return the run's label, e.g. ``support_bot-7f3a``, or the flow's name before it is open.

    A flow run that opens its run itself gets the label as soon as it has one.
    """
    run_id = (runtime.flow_run.parameters or {}).get("run_id")
    if isinstance(run_id, str) and is_open(run_id):
        return run_of(run_id).label
    return "optimize"


def label_of_round() -> str:
    """Return before which generation a round is played, or that it is played alone."""
    generation = (runtime.flow_run.parameters or {}).get("generation")
    return "sao" if generation is None else f"sao before generation {int(generation):02d}"


@contextlib.contextmanager
def attended() -> Iterator[None]:
    """Keep secrets out of a flow run's errors, give signs of life, and collect garbage rarely."""
    with redacted_errors(), beating(), collecting_rarely():
        yield


@contextlib.contextmanager
def attended_run(run: Run) -> Iterator[None]:
    """Enter a run whose subflows beat themselves, and leave none of them pending."""
    with cancelling_pending_subflows(run.run_id), run, flows_beat_themselves():
        yield


@contextlib.contextmanager
def attended_generation(run_id: str) -> Iterator[None]:
    """Attend the subflow of a generation: stopped when it is left, its task runs without tags."""
    with (
        attended(),
        stopping_when_left(run_id),
        task_runs_have_no_tags(),
        task_run_events_have_no_tags(),
    ):
        yield


@contextlib.contextmanager
def stopping_when_left(run_id: str) -> Iterator[None]:
    """Ask an open run to stop as soon as a signal leaves the block: its flow run was cancelled.

    Prefect's task runner waits for its threads when a flow run is left. Without this they would ask
    all of their cells first.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and is_open(run_id):
            run_of(run_id).stop()
        raise


def task_runs_have_no_tags() -> TagsContext:
    """Keep the tags of a flow run from the task runs of the block.

    Before a task run with tags begins, Prefect asks its server whether a limit is set on one of
    them: 10 to 20 ms apiece, one after the other. A task run is found through its flow run.
    """
    return TagsContext(current_tags=set())


@contextlib.contextmanager
def task_run_events_have_no_tags() -> Iterator[None]:
    """Keep the tags of a flow run from the events of its task runs, three for each.

    They are resources of an event, which client and server check anew in each of its stations: without the
    two of a generation a run takes a tenth less CPU of both. The events name the flow run, which has them;
    within the block ``runtime.flow_run.tags`` tells none.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:  # called without Prefect
        yield
        return
    flow_run = context.flow_run.model_copy(update={"tags": []})
    with context.model_copy(update={"flow_run": flow_run}):
        yield


def quoted(value: T) -> T:
    """Return a value for a task that Prefect hands over as it is.

    Prefect walks every other task input in search of futures; a generation's trials hold tens of
    thousands of values and no future.
    """
    return cast("T", quote(value))
