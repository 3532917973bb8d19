"""Work items and results between a run's process and its workers."""

import pickle
from dataclasses import dataclass

from convergence_core.budget.limits import Spent
from convergence_core.errors import ConvergenceError
from convergence_core.ports import RunRecord
from convergence_core.records import Assignment, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Data that a worker needs to evaluate a run's candidates, without secrets."""

    record: RunRecord
    """Run's row when its process opened the run; the worker has the same files in its folder."""
    session_id: str
    """Id of this process's work on the run, so that an earlier stop does not stop a resumed run.
    """
    store_path: str
    mock_url: str | None
    n_workers: int
    """Number of workers that share the configuration's limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """Candidate to evaluate."""

    spec: RunSpec
    assignment: Assignment
    generation: int | None
    start: Spent
    """Initial spending of the worker's budget."""
    kept: tuple[float, int]
    """Share and calls to keep back; see ``Budget.keep_back``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    """Outcome of a work item."""

    trial: Trial | None
    """Trial; ``None`` if it failed."""
    used: Spent
    """Spending from the item's part of the budget."""
    error: BaseException | None = None


def packed(thing: WorkItem | WorkResult) -> bytes:
    """Serialize an item or result for ``unpacked``."""
    return pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> WorkItem | WorkResult:
    """Deserialize bytes from another process of this run."""
    thing = pickle.loads(data)  # noqa: S301 - from a process that we started, or our own cluster's
    assert isinstance(thing, WorkItem | WorkResult)  # noqa: S101 - as packed
    return thing


def portable(error: BaseException) -> BaseException:
    """Return an error that survives pickling: itself, or one with its message."""
    try:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - just made
    except Exception:  # noqa: BLE001 - any error of pickling; the message can be sent instead
        again = None
    if type(again) is type(error) and str(again) == str(error):
        return error
    return ConvergenceError(f"{type(error).__name__}: {error}")
