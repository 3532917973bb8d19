"""Mock server in a thread of this process, on a loopback port."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from convergence_core.errors import ConvergenceError
from tasks.mock.chat import chat
from tasks.mock.embeddings import embeddings
from tasks.mock.options import MockOptions
from tasks.mock.protocol import ApiError, Attempt, Payload
from tasks.mock.responder import Engine
from tasks.mock.service import Answering, ErrorBody, MockService

MODELS = ("mock-small", "mock-large")
"""Names in ``/v1/models``; the server answers any other name too."""
PREFIXES = ("/v1", "/openai/v1", "/v1beta/openai")
"""Prefixes of OpenAI's paths: its own, Groq's and Azure's undated one, Gemini's compatible one."""
_ENDPOINTS: Mapping[str, Answering] = {
    "chat/completions": chat,
    "embeddings": embeddings,
}


@dataclass(frozen=True, slots=True)
class MockEndpoint:
    """ASGI application of one path, with the server's faults, limits and counts."""

    service: MockService
    answering: Answering
    error_body: ErrorBody | None = None
    """Function that forms errors; ``None`` means OpenAI's form."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        await self.service.serve(request, send, self.answering, error_body=self.error_body)


MoreRoutes: TypeAlias = Callable[[MockService], Sequence[BaseRoute]]
"""Factory of further routes, such as another provider's protocol."""


def _make_app(service: MockService, more_routes: MoreRoutes) -> Starlette:
    def post(path: str, answering: Answering) -> Route:
        return Route(path, MockEndpoint(service, answering), methods=["POST"])

    async def stats(_request: Request) -> JSONResponse:
        return JSONResponse(service.counts.to_json())

    async def reset(_request: Request) -> JSONResponse:
        service.counts.reset()
        return JSONResponse({"reset": True})

    routes: list[BaseRoute] = [*more_routes(service)]
    for name, answering in _ENDPOINTS.items():
        routes += [post(f"{prefix}/{name}", answering) for prefix in PREFIXES]
        routes.append(post(f"/openai/deployments/{{deployment}}/{name}", _of_azure(answering)))
    routes += [Route(f"{prefix}/models", _models, methods=["GET"]) for prefix in PREFIXES]
    routes.append(Route("/mock/stats", stats, methods=["GET"]))
    routes.append(Route("/mock/reset", reset, methods=["POST"]))
    return Starlette(routes=routes, exception_handlers={404: _unknown_path})


def _of_azure(answering: Answering) -> Answering:
    """Return an endpoint whose model is the deployment in the path."""

    def answer(engine: Engine, attempt: Attempt) -> Payload:
        if "api-version" not in attempt.query:
            raise ApiError("Resource not found: `api-version` is missing.", status=404)
        return answering(
            engine,
            replace(attempt, body={**attempt.body, "model": attempt.path_params["deployment"]}),
        )

    return answer


async def _models(_request: Request) -> JSONResponse:
    listed = [
        {"id": name, "object": "model", "created": 0, "owned_by": "convergence"} for name in MODELS
    ]
    return JSONResponse({"object": "list", "data": listed})


async def _unknown_path(request: Request, _error: Exception) -> JSONResponse:
    paths = ", ".join(f"/v1/{name}" for name in _ENDPOINTS)
    error = ApiError(
        f"Unknown path {request.url.path}. This is a mock; it knows {paths}, /v1/models, "
        "/openai/deployments/NAME/…, /mock/stats.",
        status=404,
    )
    return JSONResponse(error.body, status_code=404)


HOST = "127.0.0.1"
_START_S = 30.0
_CLOSE_S = 5.0
"""Seconds for answers in flight when the server closes."""
_BACKLOG = 2048


class MockError(ConvergenceError):
    """The mock server could not start."""


class _Server(uvicorn.Server):
    """Server that signals when it listens, and in which loop."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()
        self.in_loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.in_loop = asyncio.get_running_loop()
        self.listens.set()


class MockServer:
    """Mock server that runs within its context; ``url`` is known from the start.

    ::

        with MockServer(MockOptions(rate_429=0.2)) as server:
            client = AsyncOpenAI(base_url=server.url + "/v1", api_key="none")

    Raises:
        MockError: the address is in use, or the server did not start.
    """

    def __init__(
        self,
        options: MockOptions | None = None,
        *,
        host: str = HOST,
        port: int = 0,
        more_routes: MoreRoutes = lambda _: (),
    ) -> None:
        self.options = MockOptions() if options is None else options
        self._service = MockService(self.options)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
            # An answer's second write must not wait for the first's acknowledgement; accepted
            # sockets inherit this.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            self._service.close()
            raise MockError(
                f"`port` {port} of {host} cannot be listened on: {error.strerror or error}. "
                "Choose another, or 0 for any free one."
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        """Root of all paths without a trailing slash; OpenAI's are below ``/v1``."""
        config = uvicorn.Config(
            _make_app(self._service, more_routes),
            http="h11",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            # The mock cuts answers on purpose, which uvicorn would report as application errors.
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
        """Return the server's counts, like ``GET /mock/stats``."""
        return self._service.counts.to_json()

    def reset(self) -> None:
        """Clear counts and attempts, like ``POST /mock/reset``."""
        self._service.counts.reset()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._server.listens.wait(_START_S) or self._failure is not None:
            self.close()
            raise MockError(f"the mock server did not start: {self._failure}")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish answers in flight, end those that hang, and stop; safe to call twice."""
        loop = self._server.in_loop
        if loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._service.closing.set)
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        self._service.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # noqa: BLE001 - reported by the waiting thread
            self._failure = error
        finally:
            self._server.listens.set()
