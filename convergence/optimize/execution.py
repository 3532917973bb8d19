"""Execution of a prepared run: its flow on a configured or a temporary server."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from convergence_core.errors import ConvergenceError, PrefectServerError
from tasks.prefect_support.settings import (
    NO_TELEMETRY,
    SERVER_PROFILE,
    check_prefect_settings,
    prepare,
)

if TYPE_CHECKING:
    from convergence_core.result import RunResult
    from tasks.run.run import Run


def execute(running: "Run", *, verbose: bool) -> "RunResult":
    """Execute the run's flow and return the result; always closes the run.

    Args:
        running: a prepared or resumed run.
        verbose: let Prefect write its logs; only effective before Prefect is first imported.

    Raises:
        RunInterruptedError: a signal or the caller stopped the run.
        KeyboardInterrupt: Ctrl-C before the run has begun; see ``convergence.cli.interrupts``.
        PrefectServerError: Prefect's server cannot be reached or started.
    """
    try:
        prepare(quiet=not verbose)
        check_prefect_settings()
        with _prefect_server():
            if running.is_stopping:
                with running:  # exiting records the end
                    running.check_stop()
            from flows.optimize import optimize  # noqa: PLC0415 - imports Prefect

            path = running.loaded.config_path
            return optimize(config=None if path is None else str(path), run_id=running.run_id)
    finally:
        running.close()


@contextlib.contextmanager
def _prefect_server() -> Iterator[None]:
    """Connect to the server of Prefect's settings, or start a temporary one.

    Flow runs send heartbeats to a configured server only: a temporary server ends with this process and
    cannot act on them.
    """
    from httpx import HTTPError  # noqa: PLC0415 - comes with Prefect's client
    from prefect.settings import (  # noqa: PLC0415 - takes a second
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_SERVER_EPHEMERAL_ENABLED,
        temporary_settings,
    )

    if PREFECT_API_URL.value() or not PREFECT_SERVER_EPHEMERAL_ENABLED.value():
        greet(PREFECT_API_URL.value())
        from tasks.prefect_support.heartbeats import flows_beat_themselves  # noqa: PLC0415 - imports Prefect

        with flows_beat_themselves():
            yield
        return
    from tasks.prefect_support.temporary_server import (  # noqa: PLC0415 - only if needed
        NO_TRAFFIC,
        TRAFFIC,
        full_disk,
        temporary_server,
    )

    server = temporary_server()
    _import_run_modules()  # while the server starts
    server.wait()
    with temporary_settings(
        updates={
            **NO_TRAFFIC,
            PREFECT_API_URL: server.api_url,
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        },
        restore_defaults=TRAFFIC,
    ):
        try:
            yield
        except ConvergenceError:
            raise
        except Exception as error:
            # A server that cannot write answers with another error, which does not mention the
            # disk.
            problem = full_disk()
            if problem is None and isinstance(error, HTTPError):
                problem = (
                    f"Prefect's temporary server fails: {error}; fix: unset the variables "
                    f"{', '.join(_variables()) or 'of Prefect'}, or see what `prefect server start` says"
                )
            if problem is None:
                raise
            raise PrefectServerError(problem) from error


def _import_run_modules() -> None:
    import flows.optimize  # noqa: F401, PLC0415 - takes seconds
    from tasks.report.figures import import_matplotlib  # noqa: PLC0415 - only for runs

    import_matplotlib()


def greet(api_url: str | None) -> None:
    """Raise unless the server of Prefect's settings answers."""
    import httpx  # noqa: PLC0415 - comes with Prefect's client
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - takes seconds

    if not api_url:
        raise PrefectServerError(
            "PREFECT_API_URL: must be the address of a running Prefect server, because Prefect's settings "
            "(PREFECT_SERVER_EPHEMERAL_ENABLED) forbid a temporary one; fix: set it, or allow that"
        )
    try:
        with get_client(sync_client=True) as client:
            client.hello()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PrefectServerError(
            f"PREFECT_API_URL: must be the address of a running Prefect server; "
            f"{_without_password(api_url or '')}: {error}; fix: start that server, or "
            "`prefect config unset PREFECT_API_URL` to run with a temporary one"
        ) from error


def _variables() -> list[str]:
    """Return the names of Prefect's variables that this program did not set."""
    variables = {*SERVER_PROFILE, *NO_TELEMETRY}
    return sorted(name for name in os.environ if name[:8] == "PREFECT_" and name not in variables)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
