"""A tagged flow of one task run that goes well and one that does not; prints the flow run's id.

A program of its own: Prefect's client sends events to the first server of its process.
"""

from prefect import flow, runtime, tags, task

from tasks.prefect_support.flow_runs import (
    task_run_events_have_no_tags,
    task_runs_have_no_tags,
)


@task
def goes_well() -> None:
    """Do so."""


@task
def goes_wrong() -> None:
    """Do so."""
    raise ValueError("as it should")


@flow
def two() -> str:
    """Run both; return the flow run's id."""
    with task_runs_have_no_tags(), task_run_events_have_no_tags():
        goes_well()
        goes_wrong(return_state=True)
    return str(runtime.flow_run.id)


if __name__ == "__main__":
    with tags("of-the-flow-run"):
        print(two())  # noqa: T201 - for the parent
