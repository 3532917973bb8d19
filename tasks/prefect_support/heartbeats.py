"""Heartbeats of subflows.

Prefect sends each flow run's heartbeats from a thread that sleeps whole seconds and is joined at
the end, so each generation would last up to a second longer. A worker's outermost run uses it; all
others use ours, which ends immediately. An automation handles missing heartbeats
(``deployments.nightly.deploy``).
"""

import contextlib
import contextvars
import threading
from collections.abc import Iterator

from prefect import runtime
from prefect.events import emit_event
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

BEAT = "prefect.flow-run.heartbeat"
_interval_s: contextvars.ContextVar[float | None] = contextvars.ContextVar(
    "interval_s", default=None
)


@contextlib.contextmanager
def flows_beat_themselves() -> Iterator[None]:
    """Disable Prefect's heartbeats for the block's flow runs; ``beating`` sends them instead."""
    token = _interval_s.set(PREFECT_FLOWS_HEARTBEAT_FREQUENCY.value() or _interval_s.get())
    try:
        with temporary_settings(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield
    finally:
        _interval_s.reset(token)


@contextlib.contextmanager
def beating() -> Iterator[None]:
    """Send heartbeats for the current flow run within the block, inside ``flows_beat_themselves``.

    The interval is Prefect's setting at the start of ``flows_beat_themselves``.
    """
    interval_s = _interval_s.get()
    if interval_s is None:
        yield
        return
    resource = {
        "prefect.resource.id": f"prefect.flow-run.{runtime.flow_run.id}",
        "prefect.resource.name": str(runtime.flow_run.name),
    }
    ended = threading.Event()

    def beat() -> None:
        emit_event(event=BEAT, resource=resource)
        while not ended.wait(interval_s):
            emit_event(event=BEAT, resource=resource)

    # With this context, because a bare thread lacks the settings with the server's address.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(beat,), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
