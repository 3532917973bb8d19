"""Events that are kept instead of sent, by the double that Prefect ships."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.events import Event


@contextmanager
def kept_events() -> Iterator[Callable[[], "list[Event]"]]:
    """Keep the events of this process; what is given tells those emitted so far."""
    from prefect.events.clients import AssertingEventsClient
    from prefect.events.worker import EventsWorker

    # A worker from before would go on with a client that nobody looks at.
    EventsWorker.drain_all()
    AssertingEventsClient.reset()
    EventsWorker.set_client_override(AssertingEventsClient)

    def emitted() -> "list[Event]":
        EventsWorker.drain_all()
        return [event for client in AssertingEventsClient.all for event in client.events]

    try:
        yield emitted
    finally:
        EventsWorker.drain_all()
        EventsWorker.set_client_override(None)
