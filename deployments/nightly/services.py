"""Prefect's server and a worker of one machine, in the background.

A file in Prefect's home holds each started process's number and start, so that no other process is
ever stopped by mistake. Both outlive the terminal.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from convergence_core.errors import PrefectServerError
from tasks.prefect_support.settings import NO_TELEMETRY, SERVER_PROFILE
from tasks.store.journal.process_marks import ProcessMark, is_dead, process
from tasks.store.layout import create_file, make_folder, write_file

START_S: Final = 120.0
"""Maximum seconds until the server answers."""
STOP_S: Final = 20.0
"""Seconds that a process has to stop before it is killed."""
_LOOK_S: Final = 0.1
Release: TypeAlias = Literal["released", "nobody", "unreachable"]
"""Result of resuming a flow run; ``nobody`` if it does not wait, or no server is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Server and worker started by this command."""

    url: str
    """URL of the server's page."""
    pool: str
    server: ProcessMark
    worker: ProcessMark

    @property
    def api_url(self) -> str:
        """Value for ``PREFECT_API_URL``."""
        return f"{self.url}/api"

    @property
    def are_alive(self) -> bool:
        """Whether both are running."""
        return not (is_dead(self.server) or is_dead(self.worker))


def home() -> Path:
    """Return Prefect's home folder from its settings, without starting anything."""
    from prefect.settings import PREFECT_HOME  # noqa: PLC0415 - takes a second

    return Path(PREFECT_HOME.value())


def running(folder: Path) -> Services | None:
    """Return the services started from this home and not stopped; ``None`` if there are none."""
    try:
        state = json.loads((folder / "convergence.json").read_text("utf-8"))
        return Services(
            url=state["url"],
            pool=state["pool"],
            server=ProcessMark(**state["server"]),
            worker=ProcessMark(**state["worker"]),
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def api_url() -> str | None:
    """Return the API URL of the configured server, else of the one from ``up``."""
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - takes a second

    url: str | None = PREFECT_API_URL.value()
    if url:
        return url
    services = running(home())
    return services.api_url if services is not None and services.are_alive else None


def release(flow_run_id: str) -> Release:
    """Resume a flow run that waits for an adoption already made."""
    from tasks.prefect_support.settings import prepare  # noqa: PLC0415 - must come before Prefect

    prepare(quiet=True)
    url = api_url()
    if url is None:
        return "nobody"
    import httpx  # noqa: PLC0415 - comes with Prefect's client
    from prefect.exceptions import ObjectNotFound  # noqa: PLC0415 - takes seconds
    from prefect.settings import PREFECT_API_URL, temporary_settings  # noqa: PLC0415 - as above

    from tasks.run.approval import release as release_there  # noqa: PLC0415 - as above

    with temporary_settings(updates={PREFECT_API_URL: url}):
        try:
            return "released" if release_there(flow_run_id) else "nobody"
        except ObjectNotFound:  # it belongs to another server
            return "nobody"
        except httpx.TransportError:
            return "unreachable"


def up(folder: Path, *, host: str, port: int, pool: str) -> Services:
    """Start a server and a worker, and return when the server answers.

    If one of the two is running, e.g. after a crash of the other, only the missing one is started.
    They write to ``convergence-server.log`` and ``convergence-worker.log`` in the home.

    Args:
        folder: Prefect's home.
        host: address that the server listens on.
        port: port of the server.
        pool: work pool of the worker, created if missing.

    Raises:
        PrefectServerError: something else answers at that address, or the server does not start.
    """
    before = running(folder)
    if before is not None and before.are_alive:
        return before
    url = f"http://{host}:{port}"
    if before is not None and (before.url, before.pool) != (url, pool):
        end(before.worker)  # half of another pair whose other half is dead
        end(before.server)
        before = None
    server, worker = (None, None) if before is None else (before.server, before.worker)
    started = None
    if server is None or is_dead(server):
        server = started = _start_server(url, host, port, folder)
    if worker is None or is_dead(worker):
        try:
            worker = _start_worker(url, pool, folder)
        except BaseException:
            if started is not None:
                end(started)
            raise
    services = Services(url=url, pool=pool, server=server, worker=worker)
    write_file(folder / "convergence.json", json.dumps(asdict(services)))
    return services


def _start_server(url: str, host: str, port: int, folder: Path) -> ProcessMark:
    """Start a server and return when it answers."""
    if _answers(url):
        raise PrefectServerError(
            f"port: must be free, but something answers at {url}; fix: stop it, or choose another "
            "with `--port`"
        )
    log = folder / "convergence-server.log"
    started = start_detached(
        [*_PREFECT, "server", "start", "--host", host, "--port", str(port)],
        {**SERVER_PROFILE, **NO_TELEMETRY, **_PAGE},
        log,
    )
    mark = process(started.pid)
    try:
        _wait(url, started, log)
    except BaseException:
        end(mark)
        raise
    return mark


def _start_worker(url: str, pool: str, folder: Path) -> ProcessMark:
    started = start_detached(
        [*_PREFECT, "worker", "start", "--pool", pool, "--type", "process"],
        {**NO_TELEMETRY, "PREFECT_API_URL": f"{url}/api"},
        folder / "convergence-worker.log",
    )
    return process(started.pid)


def down(folder: Path) -> Services | None:
    """Stop the services of ``up``, the worker first; return them, ``None`` if there were none.

    A running run stops as by Ctrl-C: paid answers are kept, and it can resume.
    """
    services = running(folder)
    if services is None:
        return None
    end(services.worker)
    end(services.server)
    (folder / "convergence.json").unlink(missing_ok=True)
    return services


_PAGE: Final[Mapping[str, str]] = {
    # Otherwise the page would call port 4200 of this machine instead of its own server.
    "PREFECT_SERVER_UI_API_URL": "/api",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}


_PREFECT: Final = ("-m", "tasks.prefect_support.program", "prefect")


def start_detached(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    """Start this interpreter in a new session, with its output appended to a log."""
    make_folder(log.parent)
    with contextlib.suppress(FileExistsError):
        create_file(log)
    with log.open("ab") as out:
        return subprocess.Popen(  # noqa: S603 - this interpreter and our own arguments
            [sys.executable, *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def _wait(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not _answers(url):
        if server.poll() is not None:
            raise PrefectServerError(
                f"Prefect's server ended with exit code {server.returncode}; fix: read {log}"
            )
        if time.monotonic() > deadline:
            raise PrefectServerError(
                f"Prefect's server did not answer at {url} within {START_S:.0f} s; fix: read {log}"
            )
        time.sleep(_LOOK_S)


def _answers(url: str) -> bool:
    import httpx  # noqa: PLC0415 - only for a server's start

    try:
        return httpx.get(f"{url}/api/health", timeout=5.0, trust_env=False).status_code > 0
    except httpx.TransportError:
        return False


def end(mark: ProcessMark) -> None:
    """End a process and its children, which share its session."""
    for number, patience in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
        if is_dead(mark):
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(mark.pid, number)
        deadline = time.monotonic() + patience
        while not is_dead(mark) and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(mark.pid, os.WNOHANG)  # if it is our child
            time.sleep(_LOOK_S)


def as_json(services: Services) -> dict[str, Any]:
    """Return services as JSON for scripts."""
    return {
        "url": services.url,
        "api_url": services.api_url,
        "pool": services.pool,
        "server_pid": services.server.pid,
        "worker_pid": services.worker.pid,
    }
