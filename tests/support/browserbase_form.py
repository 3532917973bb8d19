"""Browserbase sessions on a mock server, each with a local Chromium."""

import asyncio
import re
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from convergence_core.config.api_rules import session_problems
from tasks.mock.mock_server import MockEndpoint, MockServer
from tasks.mock.protocol import ApiError, Attempt, Payload, TokenUsage
from tasks.mock.responder import Engine
from tasks.mock.service import MockService
from tasks.targets.local_browser import AD_HOST, chromium_path

PATH: Final = "/v1/sessions"
QUERY: Final = re.compile(r"user_metadata\['(?P<key>[^']+)'\]:'(?P<value>[^']*)'")
# Chromium exits with its parent, even if that is killed, because its input closes.
WATCHED: Final = '"$@" <&- & cat >/dev/null; kill -9 0'


def error_body(status: int, message: str) -> Mapping[str, Any]:
    """Return an error in the provider's format."""
    return {"statusCode": status, "error": "Error", "message": message}


def start_chromium(
    settings: Mapping[str, Any], folder: str
) -> tuple["subprocess.Popen[str]", str]:
    """Start a session's browser; return it and its address once it listens."""
    sizes = settings.get("viewport") or {"width": 1288, "height": 711}
    rules = [f"--host-resolver-rules=MAP {AD_HOST} ~NOTFOUND"] if settings.get("blockAds") else []
    process = subprocess.Popen(
        [
            *("/bin/sh", "-c", WATCHED, "sh", str(chromium_path()), "--headless", "--disable-gpu"),
            *("--no-sandbox", "--no-first-run", "--disable-dev-shm-usage", "--disable-sync"),
            *("--disable-background-networking", "--mute-audio"),
            *("--remote-debugging-port=0", f"--user-data-dir={folder}", *rules),
            f"--window-size={sizes['width']},{sizes['height']}", "about:blank",
        ],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "DevTools listening on " in line:
            return process, line.partition("DevTools listening on ")[2].strip()
    raise RuntimeError("Chromium ended at once")


def stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True, eq=False, kw_only=True)
class Session:
    """One session."""

    body: Mapping[str, Any]
    starts_browser: bool
    session_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    status: str = "RUNNING"
    process: "subprocess.Popen[str] | None" = None
    address: str = "ws://127.0.0.1:9/?signingKey=none"
    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    )

    def begin(self) -> None:
        """Start the browser."""
        if self.starts_browser:
            settings = self.body.get("browserSettings") or {}
            self.process, self.address = start_chromium(settings, self.folder.name)

    def kill(self) -> None:
        """Kill the browser; safe to call twice."""
        if self.process is not None:
            assert self.process.stdin is not None
            assert self.process.stderr is not None
            self.process.stdin.close()
            self.process.wait()
            self.process.stderr.close()
        self.folder.cleanup()

    def end(self, status: str) -> None:
        """End the session, once."""
        if self.status == "RUNNING":
            self.status, self.ended_at = status, datetime.now(UTC)
            self.kill()

    def to_json(self) -> dict[str, Any]:
        """Return the session in the provider's format."""
        session = {
            "id": self.session_id,
            "createdAt": stamp(self.started_at),
            "startedAt": stamp(self.started_at),
            "updatedAt": stamp(self.ended_at or self.started_at),
            "expiresAt": stamp(self.started_at),
            "keepAlive": bool(self.body.get("keepAlive")),
            "projectId": "mock",
            "proxyBytes": 0,
            "region": self.body.get("region", "us-west-2"),
            "status": self.status,
            "userMetadata": self.body.get("userMetadata", {}),
        }
        return session if self.ended_at is None else {**session, "endedAt": stamp(self.ended_at)}


class BrowserSessions:
    """Sessions of one server by id."""

    def __init__(self, *, starts_browsers: bool) -> None:
        self._starts_browsers = starts_browsers
        self.sessions: dict[str, Session] = {}
        self.url = ""

    def routes(self, service: MockService) -> list[BaseRoute]:
        """Return the routes of the API."""
        path = f"{PATH}/{{session_id}}"
        return [
            Route(PATH, MockEndpoint(service, self._create, error_body), methods=["POST"]),
            Route(PATH, self._list, methods=["GET"]),
            Route(path, self._retrieve, methods=["GET"]),
            Route(path, self._update, methods=["POST"]),
        ]

    def _create(self, _engine: Engine, attempt: Attempt) -> Payload:
        settings = {k: value for k, value in attempt.body.items() if k != "userMetadata"}
        wrong = next(session_problems(settings), None)
        if wrong is not None:
            raise ApiError(str(wrong), status=400)
        session = Session(body=attempt.body, starts_browser=self._starts_browsers)
        session.begin()
        self.sessions[session.session_id] = session
        created = {
            **session.to_json(),
            "connectUrl": session.address,
            "seleniumRemoteUrl": "http://127.0.0.1:9/webdriver",
            "signingKey": "none",
        }
        return Payload(body=created, model="browser-session", tokens=TokenUsage())

    async def _list(self, request: Request) -> JSONResponse:
        status, match = (
            request.query_params.get("status"),
            QUERY.fullmatch(request.query_params.get("q", "")),
        )
        listed = [s.to_json() for s in self.sessions.values() if status in (None, s.status)]
        if match is not None:
            key, value = match["key"], match["value"]
            listed = [s for s in listed if s["userMetadata"].get(key) == value]
        return JSONResponse(listed)

    async def _retrieve(self, request: Request) -> JSONResponse:
        session = self.sessions.get(request.path_params["session_id"])
        if session is None:
            return JSONResponse(error_body(404, "Session not found"), status_code=404)
        return JSONResponse(session.to_json())

    async def _update(self, request: Request) -> JSONResponse:
        session = self.sessions[request.path_params["session_id"]]
        assert await request.json() == {"status": "REQUEST_RELEASE"}
        await asyncio.to_thread(session.end, "COMPLETED")
        return JSONResponse(session.to_json())


@contextmanager
def browser_server(*, starts_browsers: bool = True) -> Iterator[BrowserSessions]:
    """Serve sessions; yield the server, whose ``url`` is the endpoint."""
    sessions = BrowserSessions(starts_browsers=starts_browsers)
    with MockServer(more_routes=sessions.routes) as server:
        sessions.url = server.url
        try:
            yield sessions
        finally:
            for session in sessions.sessions.values():
                session.end("COMPLETED")
