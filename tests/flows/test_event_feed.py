"""Feed of events of Prefect's server: of task runs only what went wrong."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tasks.prefect_support.event_feed import is_server
from tests.support.children import run_python

WAIT_S = 60.0
"""Only ends what hangs."""


def run_two_tasks(environment: dict[str, Any]) -> str:
    """Run a flow of one task that goes well and one that does not; return the flow run's id."""
    return run_python("-m", "tests.support.two_tasks", **environment).stdout.strip()


def events(api_url: str, **wanted: Any) -> list[dict[str, Any]]:
    body = {"filter": wanted, "limit": 50}
    answer = httpx.post(f"{api_url}/events/filter", json=body, trust_env=False).raise_for_status()
    found: list[dict[str, Any]] = answer.json()["events"]
    return found


def feed(api_url: str, **wanted: Any) -> Counter[str]:
    """Return how often the feed has which event."""
    return Counter(event["event"] for event in events(api_url, **wanted))


def of_flow_run(api_url: str, flow_run: str) -> Counter[str]:
    """Return the same of a flow run and its task runs, without signs of life."""
    found = feed(api_url, any_resource={"id": [f"prefect.flow-run.{flow_run}"]})
    del found["prefect.flow-run.heartbeat"]
    return found


def states(api_url: str, flow_run: str) -> dict[str, list[str]]:
    """Return task → states of its run, as the server's tables have them."""
    body = {"flow_runs": {"id": {"any_": [flow_run]}}}
    runs = httpx.post(f"{api_url}/task_runs/filter", json=body, trust_env=False).json()
    found = {}
    for run in runs:
        asked = {"task_run_id": run["id"]}
        told = httpx.get(f"{api_url}/task_run_states/", params=asked, trust_env=False).json()
        found[run["name"].rsplit("-", 1)[0]] = sorted(state["name"] for state in told)
    return found


ALL_STATES = {
    "goes_well": ["Completed", "Pending", "Running"],
    "goes_wrong": ["Failed", "Pending", "Running"],
}
FLOW_RUN = {f"prefect.flow-run.{state}": 1 for state in ("Pending", "Running", "Completed")}


def becomes(look: Callable[[], object], wanted: object) -> None:
    """Wait until what is seen is what is wanted: the server writes in batches."""
    deadline = time.monotonic() + WAIT_S
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, f"{found} is not {wanted}"
        time.sleep(0.2)


@pytest.mark.prefect
def test_the_feed_has_flow_runs_and_what_went_wrong_and_no_more(prefect_server: str):
    flow_run = run_two_tasks({})
    becomes(lambda: states(prefect_server, flow_run), ALL_STATES)
    wanted = Counter({**FLOW_RUN, "prefect.task-run.Failed": 1})
    becomes(lambda: of_flow_run(prefect_server, flow_run), wanted)
    # Events of task runs name the flow run, and leave its tags to it.
    resources = {"id": [f"prefect.flow-run.{flow_run}"]}

    def related(event: str) -> set[str]:
        return {
            resource["prefect.resource.id"]
            for found in events(prefect_server, any_resource=resources)
            if found["event"] == event
            for resource in found["related"]
        }

    tag = "prefect.tag.of-the-flow-run"
    becomes(lambda: tag in related("prefect.flow-run.Completed"), True)
    of_task_run = related("prefect.task-run.Failed")
    assert f"prefect.flow-run.{flow_run}" in of_task_run
    assert not any(name.startswith("prefect.tag.") for name in of_task_run)


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("prefect server start --host 127.0.0.1", True),
        ("uvicorn --factory prefect.server.api.server:create_app --fd 3", True),
        ("uvicorn --factory tasks.prefect_support.temporary_server:create_app --fd 3", True),
        ("prefect worker start --pool local", False),
        ("prefect server database upgrade", False),
    ],
)
def test_only_servers_have_a_feed(command: str, is_one: bool):
    assert is_server(command.split()) is is_one
