"""A run that is told to end leaves no subflow that waits for good."""

from uuid import UUID

import pytest

pytestmark = pytest.mark.prefect


class Told(BaseException):
    """Stands for a signal."""


@pytest.mark.parametrize("error", [Told, ValueError])
def test_a_signal_cancels_what_was_made_and_never_began_and_nothing_else(error):
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.states import Pending

    from flows.leaving import cancelling_what_never_began

    made = {}

    @flow
    def inner(run_id: str) -> None:
        """Never begins."""

    @flow
    def outer() -> None:
        from prefect import runtime, task

        @task
        def stand_in() -> None:
            """Is what the page shows of a subflow in its parent."""

        with get_client(sync_client=True) as client:
            for name, run_id in (("own", "R1"), ("another's", "R2"), ("on its own", "R1")):
                parent = None
                if name != "on its own":
                    own = UUID(str(runtime.flow_run.id))
                    parent = client.create_task_run(stand_in, own, name).id
                made[name] = client.create_flow_run(
                    inner,
                    parameters={"run_id": run_id},
                    state=Pending(),
                    parent_task_run_id=parent,
                ).id
        with cancelling_what_never_began("R1"):
            raise error

    with pytest.raises(error):
        outer()
    with get_client(sync_client=True) as client:
        states = {name: client.read_flow_run(i).state_name for name, i in made.items()}
        for i in made.values():
            client.delete_flow_run(i)
    own = "Cancelled" if error is Told else "Pending"
    assert states == {"own": own, "another's": "Pending", "on its own": "Pending"}
