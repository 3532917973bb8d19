"""Browserbase's sessions at the mock, with a Chromium behind each.

Region, proxies, stealth and captcha solving are accepted and change nothing here; viewport, ``blockAds``,
``keepAlive`` and ``timeout`` do what they do at the provider.
"""

import asyncio
import contextlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from convergence_core.config.api_rules import REGIONS, session_problems
from tasks.mock.chromium import BrowserForm, BrowserPool, Chromium, ChromiumError, connect
from tasks.mock.engine import Engine
from tasks.mock.protocol import ApiError, Attempt, Payload, TokenUsage
from tasks.mock.service import MockService
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

_MODEL: Final = "browser-session"
"""Name under which sessions are counted beside the models."""
_DEFAULT_S: Final = 300
_QUERY: Final = re.compile(r"user_metadata\['(?P<key>[^']+)'\]:'(?P<value>[^']*)'")
_REASONS: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    429: "Too Many Requests",
}


def error_body(status: int, message: str) -> Mapping[str, Any]:
    """Return an error in the provider's form."""
    reason = _REASONS.get(status, "Internal Server Error")
    return {"statusCode": status, "error": reason, "message": message}


@dataclass(slots=True, eq=False, kw_only=True)
class _Session:
    """One session, from its creation on."""

    session_id: str
    body: Mapping[str, Any]
    key: str
    """What the connection must show."""
    started_at: datetime
    status: str = "RUNNING"
    ended_at: datetime | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None

    @property
    def timeout_s(self) -> int:
        return int(self.body.get("timeout", _DEFAULT_S))

    @property
    def keeps_alive(self) -> bool:
        return bool(self.body.get("keepAlive"))

    @property
    def form(self) -> BrowserForm:
        settings = self.body.get("browserSettings") or {}
        sizes = settings.get("viewport") or {}
        return BrowserForm(
            width=int(sizes.get("width", BrowserForm().width)),
            height=int(sizes.get("height", BrowserForm().height)),
            blocks_ads=bool(settings.get("blockAds")),
        )

    def end(self, status: str) -> None:
        """End the session, once."""
        if self.status == "RUNNING":
            self.status, self.ended_at = status, datetime.now(UTC)
            self.ended.set()
            if self.timer is not None:
                self.timer.cancel()

    def to_json(self) -> dict[str, Any]:
        """Return the session as the provider tells it."""
        session = {
            "id": self.session_id,
            "createdAt": _stamp(self.started_at),
            "startedAt": _stamp(self.started_at),
            "updatedAt": _stamp(self.ended_at or self.started_at),
            "expiresAt": _stamp(self.started_at + timedelta(seconds=self.timeout_s)),
            "keepAlive": self.keeps_alive,
            "projectId": self.body.get("projectId", "stand-in"),
            "proxyBytes": 0,
            "region": self.body.get("region", REGIONS[0]),
            "status": self.status,
            "userMetadata": self.body.get("userMetadata", {}),
        }
        return session if self.ended_at is None else {**session, "endedAt": _stamp(self.ended_at)}


class SessionService:
    """The sessions of one server; all of it belongs to the server's event loop, but for ``close``."""

    def __init__(self, service: MockService) -> None:
        self._service = service
        self._sessions: dict[str, _Session] = {}
        self._pool = BrowserPool()

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the API, and of the browsers' connections."""
        path = "/v1/sessions/{session_id}"
        return [
            Route("/v1/sessions", _Creation(self), methods=["POST"]),
            Route("/v1/sessions", self._list, methods=["GET"]),
            Route(path, self._retrieve, methods=["GET"]),
            Route(path, self._update, methods=["POST"]),
            WebSocketRoute("/browser/{session_id}", self._connected),
        ]

    def expire(self, session_id: str) -> None:
        """End a session as its time-out does."""
        self._sessions[session_id].end("TIMED_OUT")

    def close(self) -> None:
        """End all browsers; safe to call twice."""
        self._pool.close()

    async def serve_creation(self, request: Request, send: Send) -> None:
        """Answer the creation of a session, through the mock's faults and counts."""

        def answer(_engine: Engine, attempt: Attempt) -> Payload:
            created = self._created(attempt.body, request.url.netloc)
            return Payload(body=created, model=_MODEL, tokens=TokenUsage())

        await self._service.serve(request, send, answer, error_body=error_body)

    def _created(self, body: Mapping[str, Any], netloc: str) -> dict[str, Any]:
        settings = {name: value for name, value in body.items() if name != "userMetadata"}
        wrong = next(session_problems(settings), None)
        if wrong is not None:
            raise ApiError(str(wrong), status=400)
        session = _Session(
            session_id=secrets.token_hex(16),
            body=body,
            key=secrets.token_urlsafe(24),
            started_at=datetime.now(UTC),
        )
        self._sessions[session.session_id] = session
        loop = asyncio.get_running_loop()
        session.timer = loop.call_later(session.timeout_s, session.end, "TIMED_OUT")
        address = f"{netloc}/browser/{session.session_id}?signingKey={session.key}"
        return {
            **session.to_json(),
            "connectUrl": f"ws://{address}",
            "seleniumRemoteUrl": f"http://{netloc}/webdriver",
            "signingKey": session.key,
        }

    async def _list(self, request: Request) -> JSONResponse:
        status, query = request.query_params.get("status"), request.query_params.get("q")
        match = None if query is None else _QUERY.fullmatch(query)
        if query is not None and match is None:
            return _refused(400, "q must be of the form user_metadata['key']:'value'")
        sessions = [
            session for session in self._sessions.values() if status in (None, session.status)
        ]
        if match is not None:
            key, value = match["key"], match["value"]
            sessions = [
                session
                for session in sessions
                if session.to_json()["userMetadata"].get(key) == value
            ]
        return self._answer(request, [session.to_json() for session in sessions])

    async def _retrieve(self, request: Request) -> JSONResponse:
        session = self._sessions.get(request.path_params["session_id"])
        if session is None:
            return _refused(404, "Session not found")
        return self._answer(request, session.to_json())

    async def _update(self, request: Request) -> JSONResponse:
        session = self._sessions.get(request.path_params["session_id"])
        if session is None:
            return _refused(404, "Session not found")
        if await request.json() != {"status": "REQUEST_RELEASE"}:
            return _refused(400, "status must be REQUEST_RELEASE")
        session.end("COMPLETED")
        return self._answer(request, session.to_json())

    def _answer(self, request: Request, content: Any) -> JSONResponse:
        if not self._service.admits(request):
            return _refused(401, "Unauthorized")
        return JSONResponse(content)

    async def _connected(self, socket: WebSocket) -> None:
        """Connect a client with a browser until one of them, or the session, ends."""
        session = self._sessions.get(socket.path_params["session_id"])
        shown = socket.query_params.get("signingKey", "")
        is_right = session is not None and secrets.compare_digest(shown, session.key)
        if session is None or not is_right or session.status != "RUNNING":
            await socket.close(code=4404)
            return
        try:
            browser = await self._pool.take(session.form)
        except (ChromiumError, TimeoutError) as error:
            session.end("ERROR")
            await socket.close(code=1011, reason=one_line(str(error), 120, redacted_text))
            return
        try:
            await socket.accept()
            await _relayed(socket, browser, session)
        finally:
            if not session.keeps_alive:
                session.end("COMPLETED")
            await self._pool.give_back(browser)


class _Creation:
    """Route that creates sessions, as an ASGI application."""

    def __init__(self, sessions: SessionService) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._sessions.serve_creation(Request(scope, receive), send)


async def _relayed(socket: WebSocket, browser: Chromium, session: _Session) -> None:
    connection = await connect(browser.address)

    async def to_browser() -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await connection.send(await socket.receive_text())

    async def to_client() -> None:
        async for message in connection:
            await socket.send_text(message)

    ways = [asyncio.create_task(way) for way in (to_browser(), to_client(), session.ended.wait())]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await connection.close()
        with contextlib.suppress(RuntimeError):  # the client has closed it
            await socket.close()


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse(error_body(status, message), status_code=status)


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
