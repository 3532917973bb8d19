"""Subflows beat by themselves, end at once, and the outermost run's beats are Prefect's."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.emitted import kept_events

pytestmark = pytest.mark.prefect


@pytest.fixture
def emitted() -> Iterator[Callable[[], list[Any]]]:
    with kept_events() as told:
        yield told


@pytest.mark.slow
def test_a_subflow_beats_by_itself_and_takes_no_second_longer(emitted: Callable[[], list[Any]]):
    from prefect import flow
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from tasks.prefect_support.heartbeats import BEAT, beating, flows_beat_themselves

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
    beats = [event.resource.id for event in emitted() if event.event == BEAT]
    assert settings == [None]
    assert beats.count(f"prefect.flow-run.{inner_id}") == 1
    assert len(beats) == 2


def test_within_the_block_the_outermost_run_beats_by_itself_too_and_task_runs_have_no_tags(
    emitted: Callable[[], list[Any]],
):
    from prefect import flow, tags
    from prefect.context import TagsContext

    from tasks.prefect_support.flow_runs import task_runs_have_no_tags
    from tasks.prefect_support.heartbeats import BEAT, beating, flows_beat_themselves

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
    beats = [event.resource.id for event in emitted() if event.event == BEAT]
    assert (beats.count(f"prefect.flow-run.{inner_id}"), len(beats)) == (1, 2)
    assert (of_flow_run, of_task_runs) == ({"system:s"}, set())
