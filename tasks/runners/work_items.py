"""Work items and results that travel between a run's process and its workers."""

import pickle
from dataclasses import dataclass

from convergence_core.budget.limits import Spent
from convergence_core.errors import ConvergenceError
from convergence_core.ports import RunRecord
from convergence_core.records import Assignment, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All that a worker needs to evaluate candidates of a run; no secret is in it."""

    record: RunRecord
    """The run's row as its process opened the run; the worker has the same files in its folder."""
    session_id: str
    """Of this process's work on the run: a resumed run is not stopped by what stopped the last."""
    store_path: str
    mock_url: str | None
    n_workers: int
    """Workers that share the limits of the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One candidate to be evaluated."""

    spec: RunSpec
    assignment: Assignment
    generation: int | None
    start: Spent
    """What the worker's budget begins with."""
    kept: tuple[float, int]
    """What it keeps back: see ``Budget.keep_back``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    """The outcome of a work item."""

    trial: Trial | None
    """``None`` if it failed."""
    used: Spent
    """Of the item's part of the budget."""
    error: BaseException | None = None


def packed(thing: WorkItem | WorkResult) -> bytes:
    """Return bytes that ``unpacked`` reads."""
    return pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> WorkItem | WorkResult:
    """Read what another process of this run has packed."""
    thing = pickle.loads(data)  # noqa: S301 - from a process that we started, or our own cluster's
    assert isinstance(thing, WorkItem | WorkResult)  # noqa: S101 - as packed
    return thing


def portable(error: BaseException) -> BaseException:
    """Return an error that survives pickling: itself, or its words where it does not."""
    try:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - just made
    except Exception:  # noqa: BLE001 - whatever keeps it from travelling, its words can
        again = None
    if type(again) is type(error) and str(again) == str(error):
        return error
    return ConvergenceError(f"{type(error).__name__}: {error}")
