"""Names and tags of flow runs, so that Prefect's pages read like a story."""

import contextlib
from collections.abc import Iterator

from prefect import runtime
from prefect.context import FlowRunContext, TagsContext

from tasks.run.active_runs import is_open, run_of


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
def task_runs_have_no_tags() -> Iterator[None]:
    """Keep the tags of a flow run from the task runs of the block.

    Before a task run with tags begins, Prefect asks its server whether a limit is set on one of
    them: 10 to 20 ms apiece, one after the other. A task run is found through its flow run.
    """
    with TagsContext(current_tags=set()):
        yield


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
