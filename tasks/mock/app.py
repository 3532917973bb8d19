"""ASGI application of the stand-in: its routes."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from tasks.mock import anthropic
from tasks.mock.browserbase import SessionService
from tasks.mock.chat import chat
from tasks.mock.completions import completions
from tasks.mock.embeddings import embeddings
from tasks.mock.engine import Engine
from tasks.mock.protocol import ApiError, Attempt, Payload
from tasks.mock.service import Answering, ErrorBody, MockService

MODELS = ("tiny", "mock-small", "mock-large")
"""Names that ``/v1/models`` lists; any other name is answered as well."""
PREFIXES = ("/v1", "/openai/v1", "/v1beta/openai")
"""Where OpenAI's paths lie: its own, Groq's and Azure's newer one, Gemini's compatible one."""
_ENDPOINTS: Mapping[str, Answering] = {
    "chat/completions": chat,
    "completions": completions,
    "embeddings": embeddings,
}


Forms = Mapping[str, tuple[Answering, ErrorBody]]
"""Path → a provider's wire form: what answers, and the shape of its errors."""


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One route as an ASGI application."""

    service: MockService
    answering: Answering
    error_body: ErrorBody | None = None
    """Shape of errors; ``None``: OpenAI's."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        await self.service.serve(request, send, self.answering, error_body=self.error_body)


def make_app(service: MockService, sessions: SessionService, forms: Forms) -> Starlette:
    """Return the application of a service, its browser sessions, and further wire forms."""

    def post(path: str, answering: Answering, error_body: ErrorBody | None = None) -> Route:
        return Route(path, _Endpoint(service, answering, error_body), methods=["POST"])

    async def stats(_request: Request) -> JSONResponse:
        return JSONResponse(service.counts.to_json())

    async def reset(_request: Request) -> JSONResponse:
        service.reset()
        return JSONResponse({"reset": True})

    routes: list[BaseRoute] = [
        post("/v1/messages", anthropic.messages, anthropic.error_body),
    ]
    routes += [post(path, *form) for path, form in forms.items()]
    for name, answering in _ENDPOINTS.items():
        routes += [post(f"{prefix}/{name}", answering) for prefix in PREFIXES]
        routes.append(post(f"/openai/deployments/{{deployment}}/{name}", _of_azure(answering)))
    routes += [Route(f"{prefix}/models", _models, methods=["GET"]) for prefix in PREFIXES]
    routes.append(Route("/mock/stats", stats, methods=["GET"]))
    routes.append(Route("/mock/reset", reset, methods=["POST"]))
    routes += sessions.routes()
    return Starlette(routes=routes, exception_handlers={404: _unknown_path})


def _of_azure(answering: Answering) -> Answering:
    """Return an endpoint whose model is the deployment of the path."""

    def answer(engine: Engine, attempt: Attempt) -> Payload:
        if "api-version" not in attempt.query:
            raise ApiError("Resource not found: `api-version` is missing.", status=404)
        return answering(engine, attempt.with_field("model", attempt.path_params["deployment"]))

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
        "/v1/messages, /openai/deployments/NAME/…, /v1/sessions, /mock/stats.",
        status=404,
    )
    return JSONResponse(error.body, status_code=404)
