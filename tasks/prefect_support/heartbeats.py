"""Signs of life of subflows.

Prefect beats for every flow run in a thread that sleeps whole seconds and is joined when the run
ends, so with it each generation would last up to a second longer. The outermost run of a worker
beats by that; all others by ours, which ends at once. What the server makes of silence is an
automation (``deployments.nightly.deploy``).
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
    """Take Prefect's heartbeats from the flow runs of the block; they beat by ``beating``."""
    token = _interval_s.set(PREFECT_FLOWS_HEARTBEAT_FREQUENCY.value() or _interval_s.get())
    try:
        with temporary_settings(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield
    finally:
        _interval_s.reset(token)


@contextlib.contextmanager
def beating() -> Iterator[None]:
    """Beat for the flow run in progress while the block lasts, if it is to beat by itself.

    As often as Prefect's setting says where ``flows_beat_themselves`` began.
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

    # With this context: a bare thread would not know which server the settings name.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(beat,), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
