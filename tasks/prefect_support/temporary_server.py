"""Prefect server for the lifetime of one process, which never outlives it.

Prefect would start the same server, but only after importing the server's code into our process
(three seconds), and would wait for it before anything else. Ours starts while we import the flows,
and ends even if this process is killed, instead of holding its port, memory and our standard
output. A starting server migrates its database and registers its built-ins. Servers of one home
start one at a time, since together each would create the same tables.
"""

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from convergence_core.errors import PrefectServerError
from tasks.http.environment import exempt_from_proxies
from tasks.prefect_support.program import PARENT
from tasks.store.layout import locked

if TYPE_CHECKING:
    from fastapi import FastAPI


LOCK_FILE: Final = "convergence-server.lock"
"""Lock file in Prefect's home; the kernel releases a killed process's lock."""


def create_app() -> "FastAPI":
    """Return Prefect's application, which starts after those of other processes of this home."""
    from prefect.server.api.server import create_app as create  # noqa: PLC0415 - takes seconds
    from prefect.settings import PREFECT_HOME  # noqa: PLC0415 - as above

    app = create()
    started = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(served: Any) -> AsyncIterator[Any]:
        async with contextlib.AsyncExitStack() as stack:
            # It may block: until the start, this process has nothing else to do.
            with alone(Path(PREFECT_HOME.value())):
                state = await stack.enter_async_context(started(served))
            yield state

    app.router.lifespan_context = lifespan
    return app


@contextlib.contextmanager
def alone(home: Path) -> Iterator[None]:
    """Hold the lock of this home, after waiting for other processes."""
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / LOCK_FILE):
        yield


_OF_A_TEMPORARY_SERVER = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_PROFILES_PATH": os.devnull,
}
"""Variables that Prefect sets for its own temporary server; it reads no profile besides our
settings.
"""
TRAFFIC: Final[Any] = frozenset(
    """
    api.auth_string api.enable_http2 api.key api.request_timeout api.tls_insecure_skip_verify
    client.csrf_support_enabled client.max_retries results.default_storage_block server.api.auth_string
    server.api.base_path server.api.csrf_protection_enabled server.api.default_limit
    server.api.max_parameter_size server.concurrency.lease_storage server.docket.url
    server.events.messaging_broker server.events.messaging_cache server.metrics_enabled
    tasks.scheduling.default_storage_block
    """.split()  # noqa: SIM905 - as a literal it would be twenty lines
)
"""Settings between this process and its server that must keep Prefect's defaults, because the
user's values are meant for other servers.
"""
NO_TRAFFIC: Final[dict[Any, Any]] = {"api.ssl_cert_file": None, "client.custom_headers": {}}
"""Settings of that kind whose default is a function, which Prefect does not restore."""
ROOM: Final = 16 * 2**20
"""Minimum free bytes for Prefect's database; a new one takes a few megabytes."""
_STOP_S = 5.0
"""Seconds for the server to end before it is killed."""


def full_disk() -> str | None:
    """Return the fix if the disk under Prefect's home is full; ``None`` if it is not."""
    from prefect.settings import PREFECT_HOME  # noqa: PLC0415 - takes a second

    home = Path(PREFECT_HOME.value())
    try:
        free = shutil.disk_usage(home).free
    except OSError:
        return None  # there is no such folder, which its users report
    if free >= ROOM:
        return None
    return (
        f"Prefect's server keeps its database in {home}, and the disk there is full: "
        f"{free / 2**20:.1f} MB are free, and it needs {ROOM // 2**20}; fix: free some space, or set "
        "PREFECT_HOME to a folder elsewhere. Nothing paid is lost: `convergence resume` continues a run "
        "that had started"
    )


class TemporaryServer:
    """Prefect server on a free loopback port, in a separate process."""

    def __init__(self) -> None:
        """Start the server; ``wait`` returns when it answers.

        The server gets a listening socket, so no other process can take the port before its start,
        and early requests wait in the socket's queue. It has its own session: signals to the whole
        group, such as Ctrl-C in a terminal or ``timeout``, would end it before the run, which
        needs it for a clean end.
        """
        from prefect.settings import get_current_settings  # noqa: PLC0415 - takes a second

        settings = get_current_settings().copy_with_update(NO_TRAFFIC, restore_defaults=TRAFFIC)
        variables = settings.to_environment_variables(exclude_unset=True)
        inherited = {name: os.environ[name] for name in os.environ if name[:8] != "PREFECT_"}
        with socket.create_server(("127.0.0.1", 0)) as listener:
            # Answers leave in two writes, and the second must not wait for the first's
            # acknowledgement. asyncio sets this on sockets that it opens, and accepted ones
            # inherit it from this one.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            descriptor = listener.fileno()
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            exempt_from_proxies(address)
            self.api_url = f"http://{address}/api"
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own arguments
                [
                    sys.executable, "-m", "tasks.prefect_support.program", "uvicorn", "--factory",
                    "tasks.prefect_support.temporary_server:create_app",
                    "--fd", str(descriptor), "--log-level", "error", "--lifespan", "on",
                ],
                env={
                    **inherited, **variables, **_OF_A_TEMPORARY_SERVER, PARENT: str(os.getpid()),
                },
                pass_fds=[descriptor],
                start_new_session=True,
            )  # fmt: skip
        atexit.register(self.stop)

    def wait(self) -> None:
        """Wait until the server answers.

        Raises:
            PrefectServerError: it ended, or did not answer in
                ``PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS``.
        """
        import httpx  # noqa: PLC0415 - comes with Prefect's client
        from prefect.settings import PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS  # noqa: PLC0415 - takes a second

        patience = PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value()
        try:
            httpx.get(f"{self.api_url}/health", timeout=patience, trust_env=False)
        except httpx.TimeoutException as error:
            self.stop()
            raise PrefectServerError(
                f"Prefect's temporary server did not answer within {patience} s; "
                "fix: raise PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"
            ) from error
        except httpx.TransportError as error:  # its socket was closed, so it is ending
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
            code = self._process.poll()
            self.stop()
            raise PrefectServerError(
                full_disk()
                or f"Prefect's temporary server ended with exit code {code} at its start; "
                "fix: see what `prefect server start` says"
            ) from error

    @property
    def is_running(self) -> bool:
        """Whether its process is alive."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Stop the server; safe to call twice."""
        atexit.unregister(self.stop)
        if self.is_running:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


_LOCK = threading.Lock()
_servers: list[TemporaryServer] = []
"""Server of this process, once needed."""


def temporary_server() -> TemporaryServer:
    """Return this process's temporary server; start it if there is none."""
    with _LOCK:
        if _servers and not _servers[0].is_running:
            _servers.pop().stop()
        if not _servers:
            _servers.append(TemporaryServer())
        return _servers[0]


def stop_server() -> None:
    """Stop this process's temporary server, if there is one."""
    for server in _servers:
        server.stop()
