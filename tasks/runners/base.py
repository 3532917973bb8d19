"""Runners by name, and what a runner is."""

import importlib.util
import os
from typing import Protocol

from convergence_core.config import Configuration
from convergence_core.config.optimization import ExecutionConfig
from convergence_core.errors import ConfigurationError, Problem

_NEEDS = {"dask": "distributed", "ray": "ray"}
"""Runner → package that it cannot do without; the extra has the runner's name."""


class Runner(Protocol):
    """Carries packed orders to workers and brings their deliveries. Thread-safe."""

    def run(self, order: bytes) -> bytes:
        """Have an order fulfilled; blocks.

        Raises:
            WorkerLostError: the worker ended meanwhile.
        """
        ...

    def stop(self, opening: str) -> None:
        """Tell all workers to start no further call of a run; see ``Recipe``."""
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
        raise _refused(
            execution,
            f"needs the package {package}, which is not installed",
            f"Install it: pip install 'convergence-optimizer[{execution.runner}]'.",
        )
    if execution.runner != "threads" and not is_by_name:
        raise _refused(
            execution,
            "needs a function that other processes can import, not a callable of this one",
            "Put the function into a file and name it: `api.function: path/file.py:name`.",
        )


def places_of(execution: ExecutionConfig) -> int:
    """Return how many candidates are evaluated at the same time in processes of their own."""
    if execution.processes is not None:
        return execution.processes
    return min(os.cpu_count() or 1, execution.parallel_workers)


def make_runner(execution: ExecutionConfig) -> Runner | None:
    """Return the runner that a configuration names, its workers starting; ``None``: threads.

    Raises:
        ConfigurationError: the cluster cannot be reached.
    """
    n_places = places_of(execution)
    if execution.runner == "processes":
        from tasks.runners.processes import ProcessRunner  # noqa: PLC0415 - only where it is asked for

        return ProcessRunner(n_places)
    if execution.runner == "dask":
        from tasks.runners.dask_runner import DaskRunner  # noqa: PLC0415 - an extra

        return DaskRunner(n_places, execution.cluster)
    if execution.runner == "ray":
        from tasks.runners.ray_runner import RayRunner  # noqa: PLC0415 - an extra

        return RayRunner(n_places, execution.cluster)
    return None


def _refused(execution: ExecutionConfig, rule: str, fix: str) -> ConfigurationError:
    key = "optimization.execution.runner"
    return ConfigurationError([Problem(key=key, rule=rule, value=execution.runner, fix=fix)])
