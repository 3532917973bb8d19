"""Runner ``dask``: workers of a Dask cluster, a running one or one of this machine for the run."""

import contextlib
import logging
import os
from typing import Any

from convergence_core.errors import ConfigurationError, Problem, WorkerLostError
from tasks.runners import worker

_CONNECT_S = 30.0
_SETTINGS = {
    # A candidate that ends its worker must not be tried on the next one behind our back.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.worker.daemon": False,  # functions may have processes of their own
}


class DaskRunner:
    """Orders as futures of a Dask client."""

    def __init__(self, n_places: int, address: str | None) -> None:
        """Connect to a cluster, or start one with a worker process for each place.

        Raises:
            ConfigurationError: the cluster cannot be reached.
        """
        import dask  # noqa: PLC0415 - an extra

        os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")  # for its processes
        dask.config.set(_SETTINGS)
        from distributed import Client, LocalCluster  # noqa: PLC0415 - after its settings

        for name in [n for n in logging.root.manager.loggerDict if n.startswith("distributed")]:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._cluster: Any = None
        if address is None:
            self._cluster = LocalCluster(
                n_workers=n_places,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,
                silence_logs=50,
            )
        try:
            where = self._cluster or address
            self._client: Any = Client(where, timeout=_CONNECT_S, set_as_default=False)
        except OSError as error:
            key = "optimization.execution.cluster"
            fix = "Start it (`dask scheduler`), or remove the key."
            rule = f"must be the address of a running Dask scheduler ({error})"
            problem = Problem(key=key, rule=rule, value=str(address), fix=fix)
            raise ConfigurationError([problem]) from error
        self._closed = False

    def run(self, order: bytes) -> bytes:
        """Have an order fulfilled by a worker of the cluster; see ``Runner``."""
        from distributed import KilledWorker  # noqa: PLC0415 - an extra

        future: Any = self._client.submit(worker.execute, order, pure=False)
        try:
            delivery: bytes = future.result()
        except KilledWorker as error:
            raise WorkerLostError(f"a worker of the Dask cluster ended: {error}") from error
        return delivery

    def stop(self, opening: str) -> None:
        """Tell all workers to start no further call."""
        self._client.run(worker.stop, opening, on_error="ignore")

    def close(self) -> None:
        """Let the workers go; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._client.run(worker.close, on_error="ignore")
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
