"""Execute the flow of a prepared run in this process, for the command line and for Python.

A terminal sends Ctrl-C to every process of the foreground group, also to the server that Prefect
starts beside a run. A run that ends cleanly still needs that server, so it is started while the
signal is blocked: a child inherits the mask and never sees Ctrl-C. It is ended by SIGTERM as ever,
and by a watcher should this process be killed (``convergence.watcher``).
"""

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convergence_core.result import RunResult
    from tasks.runs import Run


def execute(running: "Run", *, verbose: bool) -> "RunResult":
    """Run the flow to its end and return the result; the run is closed then, come what may.

    Args:
        running: a run that was prepared or resumed.
        verbose: let Prefect write its logs; has an effect until Prefect is first imported.

    Raises:
        RunInterruptedError: the run was asked to stop.
        KeyboardInterrupt: Ctrl-C before the run has begun; see ``convergence.cli.interrupts``.
    """
    try:
        from flows.environment import prepare  # noqa: PLC0415 - must come before Prefect

        prepare(quiet=not verbose)
        _start_prefect()
        if running.is_stopping:
            with running:  # which records how it ended
                running.check_stop()
        from flows.optimize import optimize  # noqa: PLC0415 - imports Prefect

        path = running.loaded.config_path
        with _heartbeats_for_servers_only():
            return optimize(config=None if path is None else str(path), run_id=running.run_id)
    finally:
        running.close()


def stop_server() -> None:
    """End the server that Prefect started for this process, if it did."""
    server = sys.modules.get("prefect.server.api.server")
    if server is not None:
        server.SubprocessASGIServer().stop()


def _start_prefect() -> None:
    """Import Prefect and reach its server, or start one that Ctrl-C does not reach."""
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - takes seconds
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - as above

    if not PREFECT_API_URL.value():
        from convergence.ephemeral import WatchedServer  # noqa: PLC0415 - brings the server's code

        WatchedServer()
    with _sigint_blocked(), get_client(sync_client=True) as client:
        client.hello()


@contextlib.contextmanager
def _heartbeats_for_servers_only() -> Iterator[None]:
    """Send no heartbeats to a server that ends with this process: it could act on none.

    Prefect's heartbeat thread sleeps whole seconds and is joined at the end of every flow run, so
    with it each generation lasts up to a second longer.
    """
    from prefect.settings import (  # noqa: PLC0415 - takes seconds
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    if PREFECT_API_URL.value():
        yield
        return
    with temporary_settings(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
