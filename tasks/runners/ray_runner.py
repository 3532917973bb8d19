"""Runner ``ray``: actors of a Ray cluster, existing or started for the run."""

import os
import queue
from typing import Any

from convergence_core.errors import ConfigurationError, WorkerLostError
from tasks.runners.worker import Worker

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class RayRunner:
    """Actors with two threads each, so that they can receive a stop."""

    def __init__(self, n_workers: int, address: str | None) -> None:
        """Connect to a cluster or start a local one, and start the actors.

        Raises:
            ConfigurationError: the cluster is unreachable.
        """
        os.environ.update(_QUIET)  # before the import: no telemetry
        import ray  # noqa: PLC0415 - an extra

        self._ray: Any = ray
        try:
            ray.init(
                address=address,
                num_cpus=None if address is not None else n_workers,
                include_dashboard=False if address is None else None,
                log_to_driver=False,
                logging_level="critical",
                namespace="convergence",
                ignore_reinit_error=True,
            )
        except ConnectionError as error:
            rule = f"must be the address of a running Ray cluster ({error})"
            fix = "Start it (`ray start --head`), or remove the key."
            key = "optimization.execution.cluster"
            raise ConfigurationError.of(key, rule, fix, value=str(address)) from error
        # One thread of the actor executes a work item, the other a stop.
        self._actor_class: Any = ray.remote(num_cpus=1, max_concurrency=2, max_restarts=0)(Worker)
        self._actors = [self._actor_class.remote() for _ in range(n_workers)]
        self._free: queue.LifoQueue[Any] = queue.LifoQueue()
        for actor in self._actors:
            self._free.put(actor)
        self._closed = False

    def run(self, item: bytes) -> bytes:
        """Execute a work item on a free actor; see ``Runner``."""
        actor = self._free.get()
        try:
            result: bytes = self._ray.get(actor.execute.remote(item))
        except self._ray.exceptions.RayActorError as error:
            lost = actor
            actor = self._actor_class.remote()
            self._actors = [actor if running is lost else running for running in self._actors]
            raise WorkerLostError(f"an actor of the Ray cluster ended: {error}") from error
        finally:
            self._free.put(actor)
        return result

    def stop(self, session_id: str) -> None:
        """Tell all actors to start no further calls."""
        self._ray.get([actor.stop.remote(session_id) for actor in self._actors])

    def close(self) -> None:
        """Stop the actors, and the cluster if the run started it; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        for actor in self._actors:
            self._ray.kill(actor)
        self._ray.shutdown()
