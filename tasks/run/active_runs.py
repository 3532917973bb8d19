"""The living runs of this process, by id.

Flow and task parameters carry a run's id only, so that nothing heavy and no secret passes through
Prefect; ``run_of`` finds the ``Run`` behind it.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from convergence_core.errors import RunNotFoundError

if TYPE_CHECKING:
    from tasks.run.run import Run

_LIVING: dict[str, "Run"] = {}
_LOCK = threading.Lock()


def register(run: "Run") -> None:
    """Let a run be found by its id until it is struck."""
    with _LOCK:
        _LIVING[run.run_id] = run


def unregister(run_id: str) -> None:
    """Let a run be found no more; harmless if it is not enrolled."""
    with _LOCK:
        _LIVING.pop(run_id, None)


def run_of(run_id: str) -> "Run":
    """Return the living run of this process.

    Raises:
        RunNotFoundError: this process holds no such run.
    """
    with _LOCK:
        run = _LIVING.get(run_id)
    if run is None:
        raise RunNotFoundError(
            f"run {run_id} is not open in this process. "
            f"Open it with `convergence resume {run_id}`."
        )
    return run


def is_open(run_id: str) -> bool:
    """Whether this process holds the run."""
    with _LOCK:
        return run_id in _LIVING


@contextlib.contextmanager
def stopping_when_left(run_id: str) -> Iterator[None]:
    """Ask a living run to stop as soon as a signal leaves the block: its flow run was cancelled.

    Prefect's task runner waits for its threads when a flow run is left. Without this they would ask
    all of their cells first.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and is_open(run_id):
            run_of(run_id).stop()
        raise


def rlp_enabled(run_id: str) -> bool:
    """Whether somebody thinks before the next generation of a living run."""
    thinking = run_of(run_id).thinking
    return thinking is not None and thinking.disabled_reason is None


def sao_due(run_id: str) -> bool:
    """Whether a round of preferences is due before the next generation of a living run."""
    run = run_of(run_id)
    return run.preferring is not None and run.preferring.is_due(run.next_generation)
