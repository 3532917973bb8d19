"""Client of Browserbase's sessions: created with a mark, released, swept, billed.

The API is spoken with httpx and not with the provider's SDK, which tries a creation again by itself
and so may open a second session that nobody knows of.
"""

import asyncio
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from convergence_core.records import Json
from tasks.http.clients import ClientSettings
from tasks.http.faults import bad_body_fault, bare, header_fault, status_fault

ENDPOINT: Final = "https://api.browserbase.com"
"""Where the provider's API is unless ``api.endpoint`` says otherwise."""
MARK: Final = "convergence_run"
"""Key of ``userMetadata`` that holds the run, by which its sessions are found again."""
RECORDING: Final = "https://www.browserbase.com/sessions/"
"""Where people watch a session's recording, before its id."""

_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_ANSWER_S: Final = 60.0
PATH: Final = "/v1/sessions"
"""Of the sessions, below the endpoint."""
_RELEASE: Final = {"status": "REQUEST_RELEASE"}
_OPEN: Final = ("RUNNING", "PENDING")
_LOOKS_S: Final = (0.0, 0.1, 0.3, 1.0, 2.0)
"""Pauses before each look whether a released session has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBrowser:
    """A session as the provider tells it."""

    session_id: str
    status: str
    connect_url: str = ""
    """Address of the browser; it holds a key. Empty: not told."""
    seconds: float | None = None
    """From its start to its end; ``None``: it has not ended, or the provider does not say."""
    proxy_bytes: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it is still paid for."""
        return self.status in _OPEN

    @property
    def minutes(self) -> int | None:
        """Minutes that are billed, one at least; ``None``: it has not ended."""
        return None if self.seconds is None else billed_minutes(self.seconds)


def recording_of(session_id: str) -> str | None:
    """Return where a session's recording is watched; ``None``: its id is none of the provider's."""
    return RECORDING + session_id if _PLAIN_ID.fullmatch(session_id) else None


def billed_minutes(seconds: float) -> int:
    """Return the minutes that a session of this length is billed for: begun ones whole, one at least."""
    return max(1, math.ceil(seconds / 60.0))


class SessionClient:
    """Speaks the sessions' API; every request is sent once.

    Args:
        endpoint: scheme and host.
        headers: returns the headers with the key, read anew for each request.
        secret: environment variable of the key, for messages.
        connect_s: longest wait for a connection.
        n_connections: at once.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Callable[[], Mapping[str, str]],
        secret: str | None,
        connect_s: float,
        n_connections: int,
    ) -> None:
        self._url = endpoint.rstrip("/") + PATH
        self._headers = headers
        self._secret = secret
        self._settings = ClientSettings(
            timeout_s=_ANSWER_S, connect_s=min(connect_s, _ANSWER_S), n_connections=n_connections
        )
        self._client: httpx.AsyncClient | None = None

    async def create(self, body: Mapping[str, Json], run_id: str) -> RemoteBrowser:
        """Open a session with the mark of a run; what is paid begins here.

        Raises:
            CandidateFault: the provider refuses these settings.
            ConfigurationError: the key's variable is not set.
            InfrastructureFault: network, time-out, rate limit, spent credit, server, refused key, or an
                answer that names no session.
        """
        marked = {**body, "userMetadata": {MARK: run_id}}
        found = await self._asked("POST", self._url, json=marked)
        session = _session_of(found)
        if session is None or not session.connect_url:
            raise bad_body_fault(ValueError("it names no session"), str(found), url=self._url)
        return session

    async def release(self, session_id: str) -> RemoteBrowser:
        """End a session, and wait a little until the provider says how long it was.

        Raises:
            ConfigurationError: the key's variable is not set.
            EvaluationFault: the provider could not be told.
        """
        url = f"{self._url}/{session_id}"
        session = _session_of(await self._asked("POST", url, json=_RELEASE))
        for pause_s in _LOOKS_S:
            if session is not None and not session.is_open and session.seconds is not None:
                break
            await asyncio.sleep(pause_s)
            session = _session_of(await self._asked("GET", url))
        return session or RemoteBrowser(session_id=session_id, status="RUNNING")

    async def sweep(self, run_ids: Collection[str]) -> int:
        """Release every open session of some runs, and return how many there were.

        Raises:
            ConfigurationError: the key's variable is not set.
            EvaluationFault: the provider could not be asked.
        """
        query = {}
        if len(run_ids) == 1:
            query["q"] = f"user_metadata['{MARK}']:'{next(iter(run_ids))}'"
        n_released = 0
        for status in _OPEN:
            found = await self._asked("GET", self._url, params={"status": status, **query})
            for told in found if isinstance(found, list) else ():
                session = _session_of(told)
                metadata = told.get("userMetadata") if isinstance(told, dict) else None
                # What a query means is the provider's: no session of others may be ended by it.
                is_ours = isinstance(metadata, dict) and metadata.get(MARK) in run_ids
                if session is not None and session.is_open and is_ours:
                    await self._asked("POST", f"{self._url}/{session.session_id}", json=_RELEASE)
                    n_released += 1
        return n_released

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _asked(self, method: str, url: str, **content: Any) -> object:
        if self._client is None:
            self._client = self._settings.open()
        stopwatch = None
        try:
            headers = {"User-Agent": "convergence-optimizer", **self._headers()}
            async with self._settings.timed() as stopwatch:
                response = await self._client.request(
                    method,
                    url,
                    headers=headers,
                    extensions={"trace": stopwatch},
                    **content,
                )
        except UnicodeError as error:
            raise header_fault(error, self._secret) or error from None
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            assert stopwatch is not None  # noqa: S101 - made before anything can fail
            raise header_fault(error, self._secret) or self._settings.fault(
                error, url=bare(url), stopwatch=stopwatch
            ) from None  # it holds the request, and with it the key
        if response.status_code >= 300:
            raise status_fault(
                response.status_code,
                response.text,
                response.headers,
                url=bare(url),
                secret=self._secret,
            )
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise bad_body_fault(error, response.text, url=bare(url)) from error


def _session_of(told: object) -> RemoteBrowser | None:
    """Return the session that an answer tells of; ``None``: none."""
    if not isinstance(told, dict) or not isinstance(told.get("id"), str):
        return None
    begun, ended = _time_of(told.get("startedAt")), _time_of(told.get("endedAt"))
    n_bytes = told.get("proxyBytes")
    return RemoteBrowser(
        session_id=told["id"],
        status=str(told.get("status")),
        connect_url=str(told.get("connectUrl") or ""),
        seconds=None if begun is None or ended is None else max(0.0, (ended - begun)),
        proxy_bytes=max(0, n_bytes) if isinstance(n_bytes, int) else 0,
    )


def _time_of(told: object) -> float | None:
    try:
        found = datetime.fromisoformat(str(told).replace("Z", "+00:00"))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
