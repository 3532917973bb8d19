"""A run that is told to end leaves no subflow that waits for good."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

pytestmark = pytest.mark.prefect


class Told(BaseException):
    """Stands for a signal."""


@contextmanager
def pending_subflows() -> Iterator[dict[str, UUID]]:
    """Within a flow run, make subflows that never begin: ours, another run's, and one on its own."""
    from prefect import flow, runtime, task
    from prefect.client.orchestration import get_client
    from prefect.states import Pending

    @flow
    def inner(run_id: str) -> None:
        """Never begins."""

    @task
    def stand_in() -> None:
        """Is what the page shows of a subflow in its parent."""

    made = {}
    with get_client(sync_client=True) as client:
        for name, run_id in (("own", "R1"), ("another's", "R2"), ("on its own", "R1")):
            parent = None
            if name != "on its own":
                own = UUID(str(runtime.flow_run.id))
                parent = client.create_task_run(stand_in, own, name).id
            made[name] = client.create_flow_run(
                inner, parameters={"run_id": run_id}, state=Pending(), parent_task_run_id=parent
            ).id
        yield made


def states_of(made: dict[str, UUID]) -> dict[str, str | None]:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return {name: client.read_flow_run(i).state_name for name, i in made.items()}


@pytest.fixture
def made() -> Iterator[dict[str, UUID]]:
    from prefect.client.orchestration import get_client

    found: dict[str, UUID] = {}
    yield found
    with get_client(sync_client=True) as client:
        for i in found.values():
            client.delete_flow_run(i)


@pytest.mark.parametrize("error", [Told, pytest.param(ValueError, marks=pytest.mark.slow)])
def test_a_signal_cancels_what_was_made_and_never_began_and_nothing_else(error, made):
    from prefect import flow

    from tasks.prefect_support.orphans import cancelling_pending_subflows

    @flow
    def outer() -> None:
        with cancelling_pending_subflows("R1"), pending_subflows() as found:
            made.update(found)
            raise error

    with pytest.raises(error):
        outer()
    own = "Cancelled" if error is Told else "Pending"
    assert states_of(made) == {"own": own, "another's": "Pending", "on its own": "Pending"}


def test_what_a_killed_process_had_made_is_cancelled_by_whoever_goes_on_with_its_run(made):
    from prefect import flow

    from tasks.prefect_support.orphans import cancelling_pending_subflows

    @flow
    def killed() -> None:
        with pending_subflows() as found:
            made.update(found)

    killed()
    with cancelling_pending_subflows("R1"):
        states = states_of(made)
    assert states == {"own": "Cancelled", "another's": "Pending", "on its own": "Pending"}


def test_subflows_whose_parent_is_over_are_cancelled_and_others_are_not(made):
    from prefect import flow

    from tasks.prefect_support.orphans import cancel_orphans

    during = {}

    @flow
    def parent() -> None:
        with pending_subflows() as found:
            made.update(found)
        assert cancel_orphans() == 0
        during.update(states_of(made))

    parent()
    assert set(during.values()) == {"Pending"}
    assert cancel_orphans() == 2
    assert states_of(made) == {
        "own": "Cancelled", "another's": "Cancelled", "on its own": "Pending",
    }  # fmt: skip
