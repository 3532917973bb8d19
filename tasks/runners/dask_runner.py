"""Runner ``dask``: workers of a Dask cluster, running or started for the run."""

import contextlib
import logging
import os
from typing import Any

from convergence_core.errors import ConfigurationError, WorkerLostError
from tasks.runners import worker

_CONNECT_S = 30.0
_SETTINGS = {
    # A candidate that ends its worker must not be tried on the next one behind our back.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.worker.daemon": False,  # functions may have processes of their own
}


class DaskRunner:
    """Work items as futures of a Dask client."""

    def __init__(self, n_workers: int, address: str | None) -> None:
        """Connect to a cluster, or start one with so many worker processes.

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
                n_workers=n_workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,
                silence_logs=50,
            )
        try:
            where = self._cluster or address
            self._client: Any = Client(where, timeout=_CONNECT_S, set_as_default=False)
        except OSError as error:
            rule = f"must be the address of a running Dask scheduler ({error})"
            fix = "Start it (`dask scheduler`), or remove the key."
            key = "optimization.execution.cluster"
            raise ConfigurationError.of(key, rule, fix, value=str(address)) from error
        self._closed = False

    def run(self, item: bytes) -> bytes:
        """Have a work item executed by a worker of the cluster; see ``Runner``."""
        from distributed import KilledWorker  # noqa: PLC0415 - an extra

        future: Any = self._client.submit(worker.execute, item, pure=False)
        try:
            result: bytes = future.result()
        except KilledWorker as error:
            raise WorkerLostError(f"a worker of the Dask cluster ended: {error}") from error
        return result

    def stop(self, session_id: str) -> None:
        """Tell all workers to start no further call."""
        self._client.run(worker.stop, session_id, on_error="ignore")

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
