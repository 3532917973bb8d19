"""Mock server: the stand-in in a thread of this process, on a port of loopback."""

import asyncio
import contextlib
import socket
import threading
from typing import Any, Self

import uvicorn

from convergence_core.errors import ConvergenceError
from tasks.mock.app import Forms, make_app
from tasks.mock.browserbase import SessionService
from tasks.mock.options import MockOptions
from tasks.mock.service import MockService

HOST = "127.0.0.1"
_START_S = 30.0
_CLOSE_S = 5.0
"""Seconds that answers on their way get when the server closes."""
_BACKLOG = 2048
_MESSAGE_BYTES = 2**30
"""Longest message to a browser: pictures of pages are long."""


class MockError(ConvergenceError):
    """The mock server could not start."""


class _Server(uvicorn.Server):
    """Tells when it listens, and in which loop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()
        self.in_loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.in_loop = asyncio.get_running_loop()
        self.listens.set()


class MockServer:
    """A server that runs while the context is entered; ``url`` is known from the start.

    ::

        with MockServer(MockOptions(rate_429=0.2)) as server:
            client = AsyncOpenAI(base_url=server.url + "/v1", api_key="none")

    Raises:
        ConfigurationError: the key's environment variable is not set.
        MockError: the address is taken, or the server did not start.
        OSError: the log cannot be written.
    """

    def __init__(
        self,
        options: MockOptions | None = None,
        *,
        host: str = HOST,
        port: int = 0,
        forms: Forms | None = None,
    ) -> None:
        self.options = MockOptions() if options is None else options
        self._service = MockService(self.options)
        self._sessions = SessionService(self._service)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
            # An answer's second write must not wait for word of the first: accepted sockets inherit.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            self._service.close()
            raise MockError(
                f"`port` {port} of {host} cannot be listened on: {error.strerror or error}. "
                "Choose another, or 0 for any free one."
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        """Root of all paths, without a slash at its end; OpenAI's are below ``/v1``."""
        config = uvicorn.Config(
            make_app(self._service, self._sessions, forms or {}),
            http="h11",
            ws="websockets-sansio",
            ws_max_size=_MESSAGE_BYTES,
            loop="asyncio",
            lifespan="off",
            log_config=None,
            # Answers are cut on purpose, which uvicorn would report as errors of the application.
            log_level="critical",
            access_log=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(_CLOSE_S),
            backlog=_BACKLOG,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._run, name="mock-server", daemon=True)
        self._failure: BaseException | None = None

    def stats(self) -> dict[str, Any]:
        """Return the server's own counts, as ``GET /mock/stats`` does."""
        return self._service.counts.to_json()

    def reset(self) -> None:
        """Forget counts, attempts and earlier prompts, as ``POST /mock/reset`` does."""
        self._service.reset()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._server.listens.wait(_START_S) or self._failure is not None:
            self.close()
            raise MockError(f"the mock server did not start: {self._failure}")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let answers on their way go out, end those that hang, and stop; safe to call twice."""
        loop = self._server.in_loop
        if loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                loop.call_soon_threadsafe(self._service.closing.set)
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        self._sessions.close()
        self._service.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # noqa: BLE001 - reported by the thread that waits
            self._failure = error
        finally:
            self._server.listens.set()
