"""Orphans: pending subflows of a run that was ended from outside.

A cancelled flow run ends its subflows, except one that was just created: nothing runs it, and it
never sent a heartbeat, so it would stay pending forever. A killed process may leave such a subflow
too. The process that resumes the run cancels it, and so does ``maintain``.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentTaskRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterId,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import PrefectException
from prefect.states import Cancelled

_LOGGER = logging.getLogger(__name__)


_OVER: Final = (
    StateType.COMPLETED, StateType.CRASHED, StateType.FAILED, StateType.CANCELLED,
)  # fmt: skip
_PENDING_SUBFLOWS: Final = FlowRunFilter(
    state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING])),
    parent_task_run_id=FlowRunFilterParentTaskRunId(is_null_=False),
)


@contextlib.contextmanager
def cancelling_pending_subflows(run_id: str) -> Iterator[None]:
    """Cancel a run's pending subflows: earlier ones on entry, ours if a signal ends the block."""
    _cancel_pending_of(run_id)
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            _cancel_pending_of(run_id)
        raise


def cancel_orphans() -> int:
    """Cancel pending subflows whose parent has ended; return their number.

    A killed process's parent run ends when the server misses its heartbeats.
    """
    n_cancelled = 0
    with _client() as client:
        for flow_run in client.read_flow_runs(flow_run_filter=_PENDING_SUBFLOWS):
            parents = client.read_flow_runs(
                flow_run_filter=FlowRunFilter(
                    state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_OVER)))
                ),
                task_run_filter=TaskRunFilter(
                    id=TaskRunFilterId(
                        any_=[flow_run.parent_task_run_id] if flow_run.parent_task_run_id else []
                    )
                ),
            )
            if parents:
                _cancel(client, flow_run)
                n_cancelled += 1
    return n_cancelled


def _cancel_pending_of(run_id: str) -> None:
    with _client() as client:
        for flow_run in client.read_flow_runs(flow_run_filter=_PENDING_SUBFLOWS):
            if flow_run.parameters.get("run_id") == run_id:
                _cancel(client, flow_run)


@contextlib.contextmanager
def _client() -> Iterator[SyncPrefectClient]:
    """Yield a client; its errors are logged, so that the run does not fail."""
    try:
        with get_client(sync_client=True) as client:
            yield client
    except (httpx.HTTPError, PrefectException) as trouble:  # the server may also be ending
        _LOGGER.warning("pending subflows could not be cancelled: %s", trouble)


def _cancel(client: SyncPrefectClient, flow_run: FlowRun) -> None:
    message = "The run ended before this started."
    client.set_flow_run_state(flow_run.id, Cancelled(message=message), force=True)
