"""Subflows beat by themselves, end at once, and the outermost run's beats are Prefect's."""

import time
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.prefect


@pytest.fixture
def seen() -> Iterator[list[tuple[str, str]]]:
    """Collect (event, resource) instead of sending them."""
    from prefect.events.clients import AssertingEventsClient
    from prefect.events.worker import EventsWorker

    found: list[tuple[str, str]] = []
    AssertingEventsClient.reset()
    EventsWorker.set_client_override(AssertingEventsClient)
    try:
        yield found
    finally:
        EventsWorker.set_client_override(None)


def test_a_subflow_beats_by_itself_and_takes_no_second_longer(seen: list[tuple[str, str]]):
    from prefect import flow
    from prefect.events.clients import AssertingEventsClient
    from prefect.events.worker import EventsWorker
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.heartbeats import BEAT, beating, flows_beat_themselves

    settings = []

    @flow
    def inner() -> str:
        from prefect import runtime

        with beating():
            settings.append(PREFECT_FLOWS_HEARTBEAT_FREQUENCY.value())
            return str(runtime.flow_run.id)

    @flow
    def outer() -> str:
        with flows_beat_themselves():
            return inner()

    with temporary_settings(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: 30}):
        inner_id = outer()
    EventsWorker.drain_all()
    beats = [
        event.resource.id
        for client in AssertingEventsClient.all
        for event in client.events
        if event.event == BEAT
    ]
    assert settings == [None]
    assert beats.count(f"prefect.flow-run.{inner_id}") == 1
    assert len(beats) == 2


def test_within_the_block_the_outermost_run_beats_by_itself_too_and_task_runs_have_no_tags(
    seen: list[tuple[str, str]],
):
    from prefect import flow, tags
    from prefect.context import TagsContext
    from prefect.events.clients import AssertingEventsClient
    from prefect.events.worker import EventsWorker

    from flows.heartbeats import BEAT, beating, flows_beat_themselves
    from flows.naming import task_runs_have_no_tags

    @flow
    def inner() -> tuple[str, set[str], set[str]]:
        from prefect import runtime

        with beating(), task_runs_have_no_tags():
            of_task_runs = TagsContext.get().current_tags
            return str(runtime.flow_run.id), set(runtime.flow_run.tags), of_task_runs

    @flow
    def outer() -> tuple[str, set[str], set[str]]:
        with beating(), flows_beat_themselves(), tags("system:s"):
            return inner()

    with flows_beat_themselves():
        inner_id, of_flow_run, of_task_runs = outer()
    EventsWorker.drain_all()
    beats = [
        event.resource.id
        for client in AssertingEventsClient.all
        for event in client.events
        if event.event == BEAT
    ]
    assert (beats.count(f"prefect.flow-run.{inner_id}"), len(beats)) == (1, 2)
    assert (of_flow_run, of_task_runs) == ({"system:s"}, set())


def test_without_heartbeats_nobody_beats(seen: list[tuple[str, str]]):
    from flows.heartbeats import beating, flows_beat_themselves

    with flows_beat_themselves(), beating():
        time.sleep(0)
