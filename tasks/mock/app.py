"""The ASGI application: which path is answered by what."""

from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tasks.mock import gemini
from tasks.mock.chat import chat
from tasks.mock.completions import completions
from tasks.mock.embeddings import embeddings
from tasks.mock.engine import Engine
from tasks.mock.protocol import ApiError, Payload
from tasks.mock.responses import Sender
from tasks.mock.service import Answering, Body, MockService

MODELS = ("tiny", "mock-small", "mock-large")
"""Names that ``/v1/models`` lists; any other name is answered as well."""
PREFIXES = ("/v1", "/openai/v1", "/v1beta/openai")
"""Where OpenAI's paths lie: its own, Groq's and Azure's newer one, Gemini's compatible one."""


class Endpoint:
    """One route as an ASGI application; ``make`` returns what answers a request."""

    def __init__(
        self, service: MockService, make: Callable[[Request], Answering], *, google: bool = False
    ) -> None:
        self._service = service
        self._make = make
        self._google = google

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        sender = Sender(receive, send)
        await self._service.serve(request, sender, self._make(request), google=self._google)


def make_app(service: MockService) -> Starlette:
    """Return the application of a service."""

    def post(path: str, make: Callable[[Request], Answering], *, google: bool = False) -> Route:
        return Route(path, Endpoint(service, make, google=google), methods=["POST"])

    routes = [post("/v1beta/models/{call:path}", _gemini, google=True)]
    for name, answering in _ENDPOINTS.items():
        routes += [post(f"{prefix}/{name}", _plain(answering)) for prefix in PREFIXES]
        routes.append(post(f"/openai/deployments/{{deployment}}/{name}", _azure(answering)))
    routes += [Route(f"{prefix}/models", _models, methods=["GET"]) for prefix in PREFIXES]

    async def stats(_request: Request) -> JSONResponse:
        return JSONResponse(service.counts.to_json())

    async def reset(_request: Request) -> JSONResponse:
        service.reset()
        return JSONResponse({"reset": True})

    routes.append(Route("/mock/stats", stats, methods=["GET"]))
    routes.append(Route("/mock/reset", reset, methods=["POST"]))
    return Starlette(routes=routes, exception_handlers={404: _unknown_path})


_ENDPOINTS: Mapping[str, Answering] = {
    "chat/completions": chat,
    "completions": completions,
    "embeddings": embeddings,
}


def _plain(answering: Answering) -> Callable[[Request], Answering]:
    def make(_request: Request) -> Answering:
        return answering

    return make


def _azure(answering: Answering) -> Callable[[Request], Answering]:
    """Return endpoints whose model is the deployment of the path."""

    def make(request: Request) -> Answering:
        def answer(brain: Engine, body: Body, digest: str) -> Payload:
            if "api-version" not in request.query_params:
                raise ApiError("Resource not found: `api-version` is missing.", status=404)
            return answering(brain, {**body, "model": request.path_params["deployment"]}, digest)

        return answer

    return make


def _gemini(request: Request) -> Answering:
    model, _, method = str(request.path_params["call"]).rpartition(":")

    def answer(brain: Engine, body: Body, _digest: str) -> Payload:
        if not model or method not in ("generateContent", "streamGenerateContent"):
            raise ApiError(f"Unknown method {method!r}.", status=404)
        return gemini.generate(brain, body, model, stream=method.startswith("stream"))

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
        "/openai/deployments/NAME/…, /v1beta/models/NAME:generateContent, /mock/stats.",
        status=404,
    )
    return JSONResponse(error.body, status_code=404)
