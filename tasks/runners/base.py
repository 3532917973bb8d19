"""Runners by name; ``processes``: worker processes of this machine."""

import importlib.util
import os
from typing import Final, Protocol

from convergence_core.config import Configuration
from convergence_core.config.optimization import ExecutionConfig
from convergence_core.errors import ConfigurationError, WorkerLostError
from tasks.functions.processes import ChildEndedError, Parent, ProcessPool
from tasks.version import install_command

_PATIENCE_S: Final = 15.0
"""What a worker process has to end by itself: its calls in flight, and its journal."""
_KEY = "optimization.execution.runner"
_NEEDS = {"ray": "ray"}
"""Runner → package that it cannot do without; the extra has the runner's name."""


class Runner(Protocol):
    """Carries packed work items to workers and brings their results. Thread-safe."""

    def run(self, item: bytes) -> bytes:
        """Have a work item executed; blocks.

        Raises:
            WorkerLostError: the worker ended meanwhile.
        """
        ...

    def stop(self, session_id: str) -> None:
        """Tell all workers to start no further call of a session; see ``RunSpec``."""
        ...

    def close(self) -> None:
        """Free the workers; safe to call twice."""
        ...


def check_runner(configuration: Configuration, *, is_by_name: bool) -> None:
    """Refuse a runner that cannot work here, before anything else is done.

    Args:
        configuration: with its runner.
        is_by_name: whether target and evaluator can be imported by another process.

    Raises:
        ConfigurationError: its package is missing, or a callable cannot travel.
    """
    execution = configuration.optimization.execution
    package = _NEEDS.get(execution.runner)
    if package is not None and importlib.util.find_spec(package) is None:
        rule = f"needs the package {package}, which is not installed"
        fix = f"Install it: {install_command(execution.runner)}"
        raise ConfigurationError.of(_KEY, rule, fix, value=execution.runner)
    if execution.runner != "threads" and not is_by_name:
        rule = "needs a function that other processes can import, not a callable of this one"
        fix = "Put the function into a file and name it: `api.function: path/file.py:name`."
        raise ConfigurationError.of(_KEY, rule, fix, value=execution.runner)


def n_workers_of(execution: ExecutionConfig) -> int:
    """Return how many candidates are evaluated at the same time in processes of their own."""
    if execution.processes is not None:
        return execution.processes
    return min(os.cpu_count() or 1, execution.parallel_workers)


def make_runner(execution: ExecutionConfig) -> Runner | None:
    """Return the runner that a configuration names, its workers starting; ``None``: threads.

    Raises:
        ConfigurationError: the cluster cannot be reached.
    """
    n_workers = n_workers_of(execution)
    match execution.runner:
        case "processes":
            return ProcessRunner(n_workers)
        case "ray":
            from tasks.runners.ray_runner import RayRunner  # noqa: PLC0415 - an extra

            return RayRunner(n_workers, execution.cluster)
        case "threads":
            return None


class ProcessRunner:
    """Worker processes of this machine, started at once; see ``Runner``."""

    def __init__(self, n_workers: int) -> None:
        self._pool = ProcessPool("tasks.runners.base")
        self._pool.start(n_workers)

    @property
    def pids(self) -> frozenset[int]:
        """Numbers of the worker processes."""
        return self._pool.pids

    def run(self, item: bytes) -> bytes:
        """Have a work item executed by an idle worker."""
        try:
            result: bytes = self._pool.call(item)
        except ChildEndedError as error:
            raise WorkerLostError(
                "a worker process ended while it evaluated a candidate; what it was paid for is "
                "in the journal. Look at what it wrote: was it killed, e.g. for memory?"
            ) from error
        return result

    def stop(self, session_id: str) -> None:
        """Tell all workers to start no further call."""
        self._pool.notify(session_id)

    def close(self) -> None:
        """Let the workers end; safe to call twice."""
        self._pool.close(_PATIENCE_S)


def main() -> None:
    """Execute work items in a child until its parent sends no more."""
    parent = Parent()
    from tasks.runners.worker import Worker  # noqa: PLC0415 - the parent may die meanwhile

    worker = Worker()
    parent.serve(worker.execute, on_notice=worker.stop)
    worker.close()
