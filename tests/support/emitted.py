"""Events recorded instead of sent, with Prefect's test double."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.events import Event


@contextmanager
def kept_events() -> Iterator[Callable[[], "list[Event]"]]:
    """Record this process's events; yield a function that returns those emitted so far."""
    from prefect.events.clients import AssertingEventsClient
    from prefect.events.worker import EventsWorker

    # An earlier worker would keep using a client that the test does not read.
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
