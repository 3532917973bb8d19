"""Server process of the service, which ends without losing an answer.

On SIGTERM, SIGHUP or Ctrl-C nothing new is accepted, requests on their way are answered, and what is in
line is committed. What was acknowledged is on the disk at every moment, so a kill loses nothing
either but answers on their way.
"""

import asyncio
import contextlib
import functools
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from convergence.service.app import make_app
from convergence.service.auth import AuthMiddleware
from convergence.service.connections import (
    ACCEPTED_AT_ONCE,
    GuardedProtocol,
    ServiceConnections,
    most_connections,
)
from convergence.service.metrics import Metrics
from convergence.service.tokens import TokenRegistry
from convergence_core.errors import ConvergenceError
from tasks.serving.committer import Committer
from tasks.serving.systems import Systems
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.version import code_version

_BACKLOG = 2048
_START_S = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DOCS = ("/docs", "/openapi.json")


class ServiceError(ConvergenceError):
    """The service could not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Options of the service."""

    host: str = "127.0.0.1"
    port: int = 8700
    """0: any free one."""
    max_body: int = 65_536
    """Longest body, in bytes."""
    rate: float | None = 2_000.0
    """Requests a second of each token; ``None``: no limit."""
    most_waiting: int = 10_000
    """Requests in line for their commit; further ones are refused."""
    grace_s: int = 30
    """Seconds that requests on their way get when it ends."""
    connections: int | None = None
    """Open at once; ``None``: 1,000, or as many as the limit of open files allows."""
    step_s: float = 10.0
    """Seconds for a request's head to arrive, for the rest of a refused body, and for an answer to
    be read."""
    has_docs: bool = False
    """Whether ``/docs`` and ``/openapi.json`` are open to all."""


class SignalServer(uvicorn.Server):
    """Tells when it listens, and ends by a signal as by a wish."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(_BACKLOG)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let a signal end the server, and nothing else: uvicorn would raise it again after."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # One that is ignored stays so, as SIGHUP under nohup.
        wanted = [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, self.handle_exit) for one in wanted}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


class Service:
    """The service of one store, in this thread (``run``) or in one of its own (``with``)."""

    def __init__(
        self,
        store: RuntimeStore,
        tokens: TokenRegistry,
        options: ServiceOptions | None = None,
        pages: Callable[[str, int], ASGIApp] | None = None,
    ) -> None:
        """Listen; serve from ``run`` or ``with`` on.

        Args:
            store: the runtime state.
            tokens: those that are known.
            options: of the service.
            pages: makes the application below ``/ui`` of host and port, which guards itself; ``None``:
                there is none.

        Raises:
            ConnectionLimitError: more connections are asked for than files may be open.
            ServiceError: the address cannot be listened on.
        """
        self.options = options or ServiceOptions()
        most = most_connections(self.options.connections)
        self._socket = listening(self.options.host, self.options.port)
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        self.url = f"http://{host}:{self._socket.getsockname()[1]}"
        """Root of all paths, without a slash at its end."""
        self._committer = Committer(store, most_waiting=self.options.most_waiting)
        metrics = Metrics(lambda: self._committer.n_waiting, lambda: len(connections))
        connections = ServiceConnections(most, self.options.step_s, metrics.closed)
        has_docs = self.options.has_docs
        app = make_app(
            Systems(store), self._committer, metrics, version=code_version(), has_docs=has_docs
        )
        guarded = AuthMiddleware(
            app,
            tokens=tokens,
            metrics=metrics,
            max_body=self.options.max_body,
            rate=self.options.rate,
            open_paths=DOCS if has_docs else (),
        )
        served: ASGIApp = guarded
        if pages is not None:
            port = self._socket.getsockname()[1]
            served = _Mounted(guarded, pages(self.options.host, port))
        self._server = SignalServer(_configuration(served, connections, self.options.grace_s))
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Serve until SIGTERM, SIGHUP or Ctrl-C; every answer that was begun is given."""
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._committer.close()
            self._socket.close()

    @property
    def is_ending(self) -> bool:
        """Whether nothing new is accepted any more."""
        return self._server.should_exit

    def stop(self) -> None:
        """End ``run`` as a signal would."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        """Serve in a thread of its own.

        Raises:
            ServiceError: it did not start.
        """
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self._thread.start()
        if not self._server.listens.wait(_START_S) or self._failure is not None:
            self.stop()
            raise ServiceError(f"the service did not start: {self._failure}")
        return self

    def __exit__(self, *_: object) -> None:
        """End, every answer that was begun given."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - reported by the thread that waits
            self._failure = error
        finally:
            self._server.listens.set()


class _Mounted:
    """Gives requests below ``/ui`` to the pages, which have a guard of their own."""

    def __init__(self, app: ASGIApp, pages: ASGIApp) -> None:
        self._app, self._pages = app, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        is_page = scope["type"] == "http" and f"{scope['path']}/".startswith("/ui/")
        await (self._pages if is_page else self._app)(scope, receive, send)


def _configuration(app: ASGIApp, connections: ServiceConnections, grace_s: int) -> uvicorn.Config:
    protocol: Any = functools.partial(GuardedProtocol, connections=connections)
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=True,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=grace_s,
        # asyncio accepts as many at once, past any limit; the queue is made longer at the start.
        backlog=ACCEPTED_AT_ONCE,
    )


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Its protocol is named, for asyncio turns Nagle's algorithm off only where it sees TCP: with it, an
    answer in two parts waits 40 ms for the other side's acknowledgement.

    Raises:
        ServiceError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise ServiceError(
            f"`--port` {port} of {host} cannot be listened on: {error.strerror or error}. Choose "
            "another, or 0 for any free one."
        ) from error
    return made


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
