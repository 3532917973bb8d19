"""What a run that is ended from outside leaves on Prefect's page.

A flow run that is told to end ends its subflows as it is left, but for one that was only just made: it
would stay pending for good, since nobody runs it any more and it never gave a sign of life.
"""

import contextlib
import logging
from collections.abc import Iterator

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentTaskRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import PrefectException
from prefect.states import Cancelled

_LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def cancelling_what_never_began(run_id: str) -> Iterator[None]:
    """Cancel the pending subflows of a run when a signal leaves the block."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            try:
                _cancel_pending(run_id)
            except (httpx.HTTPError, PrefectException) as trouble:  # the server may be ending, too
                _LOGGER.warning("pending subflows could not be cancelled: %s", trouble)
        raise


def _cancel_pending(run_id: str) -> None:
    pending_subflows = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING])),
        parent_task_run_id=FlowRunFilterParentTaskRunId(is_null_=False),
    )
    with get_client(sync_client=True) as client:
        for found in client.read_flow_runs(flow_run_filter=pending_subflows):
            if found.parameters.get("run_id") == run_id:
                client.set_flow_run_state(
                    found.id, Cancelled(message="The run was ended before this began."), force=True
                )
