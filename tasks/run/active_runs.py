"""Runs that this process holds open, by id.

Flow and task parameters carry a run's id only, so that nothing heavy and no secret passes through
Prefect; ``run_of`` finds the ``Run`` behind it.
"""

import threading

from convergence_core.errors import RunNotFoundError
from tasks.run.run import Run

_ACTIVE: dict[str, Run] = {}
_LOCK = threading.Lock()


def register(run: Run) -> None:
    """Let a run be found by its id until it is closed."""
    with _LOCK:
        _ACTIVE[run.run_id] = run
    run.held.callback(_unregister, run.run_id)


def _unregister(run_id: str) -> None:
    with _LOCK:
        _ACTIVE.pop(run_id, None)


def run_of(run_id: str) -> Run:
    """Return an open run of this process.

    Raises:
        RunNotFoundError: this process holds no such run.
    """
    with _LOCK:
        run = _ACTIVE.get(run_id)
    if run is None:
        raise RunNotFoundError(
            f"run {run_id} is not open in this process. "
            f"Open it with `convergence resume {run_id}`."
        )
    return run


def is_open(run_id: str) -> bool:
    """Whether this process holds the run."""
    with _LOCK:
        return run_id in _ACTIVE
