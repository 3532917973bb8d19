"""Browser sessions of a provider, and scripts that run in them.

It uses httpx, because the provider's SDK retries creations and so may open a second, untracked
session.
"""

import asyncio
import contextlib
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from convergence_core.errors import ConfigurationError
from convergence_core.records import Json, Params
from tasks.functions.function_results import result_json
from tasks.functions.workers import (
    LoopPool,
    WorkersHungError,
    WorkOutcome,
    WorkTimeoutError,
    failure_of,
    measured_async,
)
from tasks.http.clients import ClientSettings, HttpClient
from tasks.http.faults import bad_body_fault, bare
from tasks.json_values import mapping, mappings
from tasks.version import install_command

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Playwright, Request, Response

Script: TypeAlias = Callable[..., Awaitable[object]]
"""``async def run(page, case, parameters)`` with the session's page, the case's input and all
parameters.
"""
Ending: TypeAlias = Literal["done", "timeout", "too_large", "network", "lost", "not_connected"]

EXTRA: Final = "browserbase"
_LEAVE_S: Final = 5.0
"""Maximum seconds that a script may take to end after its cancellation."""
_SLACK_S: Final = 15.0
"""Seconds beyond connection and script, after which a script blocks its event loop and cannot be
stopped.
"""
_NETWORK = re.compile(
    r"net::ERR_(?:CONNECTION|ADDRESS|NAME|INTERNET|NETWORK|PROXY|TUNNEL|TIMED_OUT|SOCKET|EMPTY_RESPONSE)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnd:
    """End of a script."""

    ending: Ending
    """``done``: the script returned or raised; ``lost``: its browser disconnected."""
    outcome: WorkOutcome
    """Result or exception, as with functions."""
    n_bytes: int = 0
    """Decompressed bytes that its pages loaded."""


@dataclass(eq=False, repr=False)
class ScriptRunner:
    """Runner of one script in sessions, in a separate event loop.

    Args:
        script: User's script.
        connect_s: Maximum seconds to connect to the browser.
        timeout_s: Maximum seconds of the script.
        max_bytes: Maximum bytes that the pages of a session may load.
        n_workers: Maximum concurrent scripts.
    """

    script: Script
    _: KW_ONLY
    connect_s: float
    timeout_s: float
    max_bytes: int
    n_workers: int

    def __post_init__(self) -> None:
        """Prepare the loop; the driver starts with the first script."""
        self._pool = LoopPool(self.n_workers, name="browser")
        self._driver: Playwright | None = None
        self._starting: asyncio.Lock | None = None

    async def run(self, session: "RemoteBrowser", case_input: Json, params: Params) -> ScriptEnd:
        """Run the script in the browser of a session.

        Raises:
            WorkTimeoutError: the script blocks its event loop, so it cannot be stopped.
            WorkersHungError: such scripts hold all slots.
        """

        async def work() -> WorkOutcome:
            end = await self._run(session, case_input, params)
            return WorkOutcome(end, None, end.outcome.latency_ms)

        result = await self._pool.run(work, self.connect_s + self.timeout_s + _SLACK_S)
        assert isinstance(result.value, ScriptEnd)  # noqa: S101 - as above
        return result.value

    async def aclose(self) -> None:
        """End the driver and the loop; safe to call twice."""
        driver, self._driver = self._driver, None
        if driver is not None:

            async def stop() -> WorkOutcome:
                return await measured_async(driver.stop, lambda _: None)

            with contextlib.suppress(WorkTimeoutError, WorkersHungError):
                await self._pool.run(stop, _LEAVE_S)
        await self._pool.aclose()

    async def _run(self, session: "RemoteBrowser", case_input: Json, params: Params) -> ScriptEnd:
        try:
            chromium, timeout_ms = (await self._driving()).chromium, self.connect_s * 1000
            if session.launch is None:
                browser = await chromium.connect_over_cdp(session.connect_url, timeout=timeout_ms)
            else:
                browser = await chromium.launch(**session.launch, timeout=timeout_ms)
        except Exception as error:  # noqa: BLE001 - any error of the driver: no session was used
            self._driver = None
            return ScriptEnd(ending="not_connected", outcome=_failed(error))
        try:
            return await self._scripted(browser, case_input, params)
        finally:
            with contextlib.suppress(Exception):  # it may be gone; the session is released anyway
                await asyncio.wait_for(browser.close(), _LEAVE_S)

    async def _driving(self) -> "Playwright":
        from playwright.async_api import async_playwright  # noqa: PLC0415 - of an extra

        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._driver is None:
                self._driver = await async_playwright().start()
            return self._driver

    async def _scripted(self, browser: "Browser", case_input: Json, params: Params) -> ScriptEnd:
        context = browser.contexts[0] if browser.contexts else await browser.new_context()
        page = context.pages[0] if context.pages else await context.new_page()
        raised: list[BaseException] = []

        async def call() -> object:
            try:
                return await self.script(page, *deepcopy((case_input, dict(params))))
            except BaseException as error:
                raised.append(error)
                raise

        meter = _Meter(self.max_bytes)
        await meter.watch(context, page)  # first: a loading page does not answer
        task = asyncio.create_task(measured_async(call, result_json))
        meter.stop = task.cancel
        await asyncio.wait({task}, timeout=self.timeout_s)
        is_late = not task.done()
        if is_late:
            task.cancel()
            await asyncio.wait({task}, timeout=_LEAVE_S)
        outcome = (
            task.result() if task.done() and not task.cancelled() else _failed(TimeoutError())
        )
        ending = _ending_of(raised, is_connected=browser.is_connected())
        if meter.is_full:
            ending = "too_large"
        elif is_late:
            ending = "timeout"
        return ScriptEnd(ending=ending, outcome=outcome, n_bytes=meter.n_bytes)


class _Meter:
    """Meter of the bytes that a session's pages load; it stops the script above a limit.

    The first page counts as its bytes arrive. Other pages count when they finish, but their
    announced length can stop the script earlier.
    """

    def __init__(self, max_bytes: int) -> None:
        self.n_bytes = 0
        self.is_full = False
        self.stop: Callable[[], object] = bool
        """Callback when the bytes exceed the limit; called once."""
        self._max_bytes = max_bytes
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self, context: "BrowserContext", first: "Page") -> None:
        """Watch the first page, and all pages that open after it."""
        session = await context.new_cdp_session(first)
        session.on("Network.dataReceived", lambda event: self._add(int(event["dataLength"])))
        await session.send("Network.enable")

        def announced(response: "Response") -> None:
            length = response.headers.get("content-length", "")
            if not _is_of(response.request, first) and length.isdecimal():
                self._look(self.n_bytes + int(length))

        def ended(request: "Request") -> None:
            if not _is_of(request, first):
                task = asyncio.ensure_future(self._measure(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        context.on("response", announced)
        context.on("requestfinished", ended)

    async def _measure(self, request: "Request") -> None:
        with contextlib.suppress(Exception):  # its page is gone
            self._add((await request.sizes())["responseBodySize"])

    def _add(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        self._look(self.n_bytes)

    def _look(self, n_bytes: int) -> None:
        if n_bytes > self._max_bytes and not self.is_full:
            self.is_full = True
            self.stop()


def _is_of(request: "Request", page: "Page") -> bool:
    """Return whether a page made a request; those of workers and opening pages have no page."""
    try:
        return bool(request.frame.page == page)
    except Exception:  # noqa: BLE001 - Playwright's own, if there is no frame
        return False


def check_playwright() -> None:
    """Check that Playwright is installed.

    Raises:
        ConfigurationError: the extra is missing.
    """
    if find_spec("playwright") is None:
        rule = "needs Playwright, which drives the browser"
        fix = f"Run: {install_command(EXTRA)}"
        raise ConfigurationError.of("api.kind", rule, fix, value="browserbase")


def check_script(script: Script, path: str) -> None:
    """Check that a script is an ``async`` function of three arguments.

    Raises:
        ConfigurationError: it is not.
    """
    fix = "Write `async def run(page, case, parameters):`."
    if not inspect.iscoroutinefunction(script):
        rule = "must name an `async` function, since Playwright's calls are awaited"
        raise ConfigurationError.of("api.function", rule, fix, value=path)
    try:
        inspect.signature(script).bind(None, None, None)
    except TypeError:
        rule = (
            "must name a function of three arguments: the page, the case's input, the parameters"
        )
        raise ConfigurationError.of("api.function", rule, fix, value=path) from None


def _ending_of(raised: list[BaseException], *, is_connected: bool) -> Ending:
    from playwright.async_api import Error  # noqa: PLC0415 - of an extra

    if not is_connected:
        return "lost"
    error = raised[0] if raised else None
    if isinstance(error, OSError) or (isinstance(error, Error) and _NETWORK.search(str(error))):
        return "network"
    return "done"


def _failed(error: BaseException) -> WorkOutcome:
    return WorkOutcome(None, failure_of(error), 0.0)


ENDPOINT: Final = "https://api.browserbase.com"
"""Default endpoint of the provider's API; ``api.endpoint`` replaces it."""
MARK: Final = "convergence_run"
"""Key of ``userMetadata`` that holds the run, to find its sessions again."""
RECORDING: Final = "https://www.browserbase.com/sessions/"
"""URL prefix of a session's recording, before its id."""

_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_ANSWER_S: Final = 60.0
PATH: Final = "/v1/sessions"
"""Path of the sessions below the endpoint."""
_RELEASE: Final = {"status": "REQUEST_RELEASE"}
_OPEN: Final = ("RUNNING", "PENDING")
_LOOKS_S: Final = (0.0, 0.1, 0.3, 1.0, 2.0)
"""Pauses before each check whether a released session has ended, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBrowser:
    """Session as the provider reports it."""

    session_id: str
    status: str
    connect_url: str = ""
    """Address of the browser, which holds a key; empty if the provider reports none."""
    seconds: float | None = None
    """Seconds from start to end; ``None`` if it has not ended or the provider reports none."""
    proxy_bytes: int = 0
    launch: Mapping[str, Any] | None = None
    """Arguments of Playwright's ``launch`` on this machine; ``None`` means that the browser is at
    ``connect_url``.
    """

    @property
    def is_open(self) -> bool:
        """Whether the session still costs money."""
        return self.status in _OPEN

    @property
    def minutes(self) -> int | None:
        """Billed minutes, at least one; ``None`` if the session has not ended."""
        return None if self.seconds is None else billed_minutes(self.seconds)


def recording_of(session_id: str) -> str | None:
    """Return the URL of a session's recording; ``None`` if the id is malformed."""
    return RECORDING + session_id if _PLAIN_ID.fullmatch(session_id) else None


def billed_minutes(seconds: float) -> int:
    """Return the billed minutes of a session of this length, rounded up, at least one."""
    return max(1, math.ceil(seconds / 60.0))


@dataclass(eq=False, repr=False)
class SessionClient:
    """Client of the sessions' API; it sends every request once.

    Args:
        endpoint: Scheme and host.
        headers: Function that returns the headers with the key, called for each request.
        secret: Environment variable of the key, for messages.
        n_connections: Maximum concurrent connections.
    """

    endpoint: str
    _: KW_ONLY
    headers: Callable[[], Mapping[str, str]]
    secret: str | None
    n_connections: int

    def __post_init__(self) -> None:
        """Prepare the client; it connects with the first request."""
        self._url = self.endpoint.rstrip("/") + PATH
        settings = ClientSettings(timeout_s=_ANSWER_S, n_connections=self.n_connections)
        self._client = HttpClient(settings, self.secret)

    async def create(self, body: Mapping[str, Json], run_id: str) -> RemoteBrowser:
        """Open a session marked with a run; billing starts here.

        Raises:
            CandidateFault: the provider rejects these settings.
            ConfigurationError: the key's variable is not set.
            InfrastructureFault: network, time-out, rate limit, spent credit, server, rejected key,
                or an answer without a session.
        """
        marked = {**body, "userMetadata": {MARK: run_id}}
        created = await self._request("POST", self._url, json=marked)
        session = _session_of(created)
        if session is None or not session.connect_url:
            raise bad_body_fault(ValueError("it names no session"), str(created), url=self._url)
        return session

    async def release(self, session_id: str) -> RemoteBrowser:
        """End a session, and wait briefly until the provider reports its duration.

        Raises:
            ConfigurationError: the key's variable is not set.
            EvaluationFault: the request to the provider failed.
        """
        url = f"{self._url}/{session_id}"
        session = _session_of(await self._request("POST", url, json=_RELEASE))
        for pause_s in _LOOKS_S:
            if session is not None and not session.is_open and session.seconds is not None:
                break
            await asyncio.sleep(pause_s)
            session = _session_of(await self._request("GET", url))
        return session or RemoteBrowser(session_id=session_id, status="RUNNING")

    async def sweep(self, run_ids: Collection[str]) -> int:
        """Release every open session of some runs, and return their number.

        Raises:
            ConfigurationError: the key's variable is not set.
            EvaluationFault: the request to the provider failed.
        """
        query = {}
        if len(run_ids) == 1:
            query["q"] = f"user_metadata['{MARK}']:'{next(iter(run_ids))}'"
        n_released = 0
        for status in _OPEN:
            sessions = await self._request("GET", self._url, params={"status": status, **query})
            for entry in mappings(sessions):
                session = _session_of(entry)
                # The provider interprets the query; check here so that no other session is ended.
                is_ours = mapping(entry.get("userMetadata")).get(MARK) in run_ids
                if session is not None and session.is_open and is_ours:
                    await self._request("POST", f"{self._url}/{session.session_id}", json=_RELEASE)
                    n_released += 1
        return n_released

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        await self._client.aclose()

    async def _request(self, method: str, url: str, **content: Any) -> Any:
        response, _ = await self._client.request(method, url, headers=self.headers(), **content)
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise bad_body_fault(error, response.text, url=bare(url)) from error


def _session_of(entry: object) -> RemoteBrowser | None:
    """Return the session in an answer; ``None`` if there is none."""
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        return None
    begun, ended = _time_of(entry.get("startedAt")), _time_of(entry.get("endedAt"))
    n_bytes = entry.get("proxyBytes")
    return RemoteBrowser(
        session_id=entry["id"],
        status=str(entry.get("status")),
        connect_url=str(entry.get("connectUrl") or ""),
        seconds=None if begun is None or ended is None else max(0.0, (ended - begun)),
        proxy_bytes=max(0, n_bytes) if isinstance(n_bytes, int) else 0,
    )


def _time_of(value: object) -> float | None:
    try:
        moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
