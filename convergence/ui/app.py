"""ASGI application of the pages: static files, data as JSON and CSV, events."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from convergence.service.problems import ProblemResponse, RequestRefusedError, error_handler
from convergence.ui.guard import NO_WRITES, ROOT, SESSION
from convergence.ui.queries import READS, WRITES
from convergence.ui.watch import StoreWatch
from convergence_core.errors import (
    AdapterNotFoundError,
    AdapterRefusedError,
    ConfigurationError,
    InteractionNotFoundError,
    QueryError,
    RunNotFoundError,
    StoreError,
)
from convergence_core.feedback.records import LABELS
from tasks.pages.source import PageFile, PageSource
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.version import code_version

STATIC = Path(__file__).parent / "static"
_INDEX = "index.html"
_AT_ONCE = 2
"""Maximum concurrent reads of pages' data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedChat:
    """Chat that the same server offers below ``/v1``."""

    roles: tuple[str, ...]
    user: str
    """Default user of a question."""
    note: str | None = None
    """Notice about its answers; ``None`` if there is none."""
    labels: tuple[str, ...] = tuple(LABELS.values())
    """Rating scale in words, worst first."""


def make_app(
    source: PageSource,
    *,
    can_write: bool,
    chat: ServedChat | None = None,
    ends: Callable[[], bool] = lambda: False,
) -> Starlette:
    """Return the application, which belongs behind a ``UiGuard``.

    Args:
        source: pages of the store.
        can_write: whether any token may write.
        chat: chat behind the chat page; ``None`` if there is none.
        ends: returns whether the server shuts down, which ends event streams.
    """
    watch = StoreWatch(source.store.path, ends)
    handlers = _Handlers(source, watch, can_write=can_write, chat=chat)
    routes = [
        Route(ROOT, handlers.root),
        Route(f"{ROOT}/api/session", handlers.session),
        Route(f"{ROOT}/api/events", handlers.events),
        *(Route(f"{ROOT}/api/{path}", handlers.read(work)) for path, work in READS.items()),
        *(
            Route(f"{ROOT}/api/{path}", handlers.write(work), methods=["POST"])
            for path, work in WRITES.items()
        ),
        Route(f"{ROOT}/api/{{rest:path}}", _nothing),
        Route(f"{ROOT}/static/{{name:path}}", handlers.file),
        Route(f"{ROOT}/{{rest:path}}", handlers.index),
    ]
    statuses: dict[type[Exception], int] = {
        **dict.fromkeys((QueryError, ConfigurationError), 400),
        **dict.fromkeys((RunNotFoundError, InteractionNotFoundError, AdapterNotFoundError), 404),
        AdapterRefusedError: 409,
    }
    answers: dict[Any, Callable[[Any], ProblemResponse]] = {
        **{kind: partial(_refusal, status) for kind, status in statuses.items()},
        RequestRefusedError: lambda e: ProblemResponse(e.status, e.detail, e.headers),
        StoreError: lambda _: ProblemResponse(503, "The store cannot be read; see the log."),
        HTTPException: lambda e: ProblemResponse(e.status_code, str(e.detail)),
        Exception: lambda _: ProblemResponse(500, "The server failed; see its log."),
    }
    logged = {StoreError, Exception}
    return Starlette(
        routes=routes,
        exception_handlers={
            kind: error_handler(answer, is_logged=kind in logged)
            for kind, answer in answers.items()
        },
    )


class _Handlers:
    """Route handlers."""

    def __init__(
        self, source: PageSource, watch: StoreWatch, *, can_write: bool, chat: ServedChat | None
    ) -> None:
        self._source, self._watch, self._can_write = source, watch, can_write
        self._chat = chat
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._files = {
            str(path.relative_to(STATIC)): path for path in STATIC.rglob("*") if path.is_file()
        }

    async def root(self, _: Request) -> Response:
        return RedirectResponse(f"{ROOT}/", 308)

    async def session(self, request: Request) -> Response:
        session = request.scope[SESSION]
        return _answer(
            {
                "csrf": None if session is None else session.csrf,
                "can_write": self._can_write,
                "why_not": None if self._can_write else NO_WRITES,
                "chat": None if self._chat is None else asdict(self._chat),
                "store": str(self._source.store.path),
                "version": code_version(),
            }
        )

    async def events(self, _: Request) -> Response:
        return StreamingResponse(self._watch.events(), media_type="text/event-stream")

    def read(self, work: Callable[[PageSource, Request], Any]) -> Callable[[Request], Any]:
        """Return the handler of a page's data or of a file."""

        async def handle(request: Request) -> Response:
            async with self._slots:
                return await asyncio.to_thread(lambda: _answer(work(self._source, request)))

        return handle

    def write(
        self, work: Callable[[PageSource, Request, Mapping[str, Any]], str]
    ) -> Callable[[Request], Any]:
        """Return the handler of a request that writes."""

        async def handle(request: Request) -> Response:
            try:
                body = orjson.loads(await request.body())
            except orjson.JSONDecodeError:
                body = None
            if not isinstance(body, dict):
                raise RequestRefusedError(422, "The body must be a JSON object.")
            return _answer(
                {"sentence": await asyncio.to_thread(work, self._source, request, body)}
            )

        return handle

    async def file(self, request: Request) -> Response:
        """Serve a file by its name in a fixed list, so that no name leaves the folder."""
        content = self._files.get(request.path_params["name"])
        if content is None:
            return ProblemResponse(404, "There is no such file.")
        return FileResponse(content, headers={"Cache-Control": "no-cache"})

    async def index(self, request: Request) -> Response:
        """Serve the page itself, which decides by its address what to show."""
        content = self._files.get(_INDEX)
        if content is None or "." in request.path_params["rest"].partition("/")[0]:
            return ProblemResponse(404, "There is no such file.")
        return FileResponse(content, headers={"Cache-Control": "no-cache"})


async def _nothing(_: Request) -> Response:
    return ProblemResponse(404, "There is no such page.")


def _answer(value: Any) -> Response:
    """Return a file for download, or any other value as JSON."""
    if isinstance(value, PageFile):
        headers = {"Content-Disposition": f'attachment; filename="{value.name}"'}
        return Response(value.content, media_type=value.media_type, headers=headers)
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    return Response(orjson.dumps(value, option=option), media_type="application/json")


def _refusal(status: int, error: Exception) -> ProblemResponse:
    return ProblemResponse(status, one_line(str(error), 2_000, redacted_text))
