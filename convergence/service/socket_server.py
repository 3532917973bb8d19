"""Server of one listening socket, in this thread or in a new one."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import uvicorn

from convergence_core.errors import ConvergenceError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_BACKLOG = 2048
_START_S = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ServiceError(ConvergenceError):
    """The service could not start."""


class SocketServer:
    """Server of a socket: ``run`` or ``with`` starts it, a signal or ``stop`` ends it."""

    def __init__(
        self, app: "ASGIApp", listening: socket.socket, *, name: str, **settings: Any
    ) -> None:
        """Prepare to serve.

        Args:
            app: the application.
            listening: the socket; closed at the end.
            name: name of the thread, also used in errors.
            settings: further arguments of ``uvicorn.Config``.
        """
        config = uvicorn.Config(
            app,
            **settings,
            ws="none",
            loop="asyncio",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        self._server, self._socket, self._name = _SignalServer(config), listening, name
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def is_ending(self) -> bool:
        """Whether the server accepts no new requests."""
        return self._server.should_exit

    def run(self) -> None:
        """Serve until SIGTERM, SIGHUP or Ctrl-C, and finish the answers in progress."""
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._socket.close()

    def stop(self) -> None:
        """End ``run`` as a signal does."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        """Serve in a new thread.

        Raises:
            ServiceError: the server did not start.
        """
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        if not self._server.listens.wait(_START_S) or self._failure is not None:
            self.stop()
            raise ServiceError(f"the {self._name} did not start: {self._failure}")
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the answers in progress and stop the server."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - reported by the waiting thread
            self._failure = error
        finally:
            self._server.listens.set()


class _SignalServer(uvicorn.Server):
    """uvicorn server that signals when it listens and does not raise a signal again."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then set ``listens``."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)
        self.listens.set()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a generator there
        """Let a signal only end the server; uvicorn would also raise it again."""
        return signals_handled(self.handle_exit)


@contextlib.contextmanager
def signals_handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call a function on Ctrl-C, SIGTERM and SIGHUP within the block, in the main thread only."""
    is_main = threading.current_thread() is threading.main_thread()
    # An ignored signal stays ignored, such as SIGHUP under nohup.
    numbers = [n for n in _SIGNALS if is_main and signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    It names its protocol, since asyncio disables Nagle's algorithm only for TCP sockets. With that
    algorithm, an answer in two parts waits 40 ms for the client's acknowledgement.

    Raises:
        ServiceError: the server cannot listen on the address.
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


def url_of(host: str, listening: socket.socket) -> str:
    """Return the root URL of a socket, without a trailing slash."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"
