"""User scripts in a browser session, driven by Playwright over DevTools."""

import asyncio
import contextlib
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

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
from tasks.version import install_command

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Playwright, Request, Response

Script: TypeAlias = Callable[..., Awaitable[object]]
"""``async def run(page, case, parameters)``: the session's page, the case's input, all parameters."""
Ending: TypeAlias = Literal["done", "timeout", "too_large", "network", "lost", "not_connected"]

EXTRA: Final = "browserbase"
_LEAVE_S: Final = 5.0
"""How long a script may take to end once it is told to."""
_SLACK_S: Final = 15.0
"""Beyond connection and script: after this a script holds its event loop and cannot be ended."""
_NETWORK = re.compile(
    r"net::ERR_(?:CONNECTION|ADDRESS|NAME|INTERNET|NETWORK|PROXY|TUNNEL|TIMED_OUT|SOCKET|EMPTY_RESPONSE)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnd:
    """How a script ended."""

    ending: Ending
    """``done``: it returned or raised; ``lost``: the browser went away under it."""
    outcome: WorkOutcome
    """Its result or exception, as with functions."""
    n_bytes: int = 0
    """Bytes that its pages loaded, decompressed."""


class ScriptRunner:
    """Runs one script in sessions, in an event loop of its own.

    Args:
        script: the user's.
        connect_s: longest wait for the browser.
        timeout_s: longest duration of the script.
        max_bytes: most bytes that the pages of a session may load.
        n_workers: scripts at once.
    """

    def __init__(
        self,
        script: Script,
        *,
        connect_s: float,
        timeout_s: float,
        max_bytes: int,
        n_workers: int,
    ) -> None:
        self._script = script
        self._connect_s = connect_s
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._pool = LoopPool(n_workers, name="browser")
        self._driver: Playwright | None = None
        self._starting: asyncio.Lock | None = None

    async def run(self, connect_url: str, case_input: Json, params: Params) -> ScriptEnd:
        """Run the script in the browser at an address.

        Raises:
            WorkTimeoutError: it holds its event loop, so that nothing can end it.
            WorkersHungError: all slots are held by such scripts.
        """

        async def work() -> WorkOutcome:
            end = await self._run(connect_url, case_input, params)
            return WorkOutcome(end, None, end.outcome.latency_ms)

        found = await self._pool.run(work, self._connect_s + self._timeout_s + _SLACK_S)
        assert isinstance(found.value, ScriptEnd)  # noqa: S101 - as above
        return found.value

    async def aclose(self) -> None:
        """End the driver and the loop; safe to call twice."""
        driver, self._driver = self._driver, None
        if driver is not None:

            async def stop() -> WorkOutcome:
                return await measured_async(driver.stop, lambda _: None)

            with contextlib.suppress(WorkTimeoutError, WorkersHungError):
                await self._pool.run(stop, _LEAVE_S)
        await self._pool.aclose()

    async def _run(self, connect_url: str, case_input: Json, params: Params) -> ScriptEnd:
        try:
            driver = await self._driving()
            browser = await driver.chromium.connect_over_cdp(
                connect_url, timeout=self._connect_s * 1000
            )
        except Exception as error:  # noqa: BLE001 - of the driver, whatever it is: no session was used
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
                return await self._script(page, case_input, dict(params))
            except BaseException as error:
                raised.append(error)
                raise

        meter = _Meter(self._max_bytes)
        await meter.watch(context, page)  # first: while a page is loading, it is not answered
        task = asyncio.create_task(measured_async(call, result_json))
        meter.stop = task.cancel
        await asyncio.wait({task}, timeout=self._timeout_s)
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
    """Counts what the pages of a session load, and ends what loads too much.

    The first page is counted as its bytes come; further ones by the length that a response announces, and
    when it has ended.
    """

    def __init__(self, max_bytes: int) -> None:
        self.n_bytes = 0
        self.is_full = False
        self.stop: Callable[[], object] = bool
        """Called once when there are too many."""
        self._max_bytes = max_bytes
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self, context: "BrowserContext", first: "Page") -> None:
        """Watch the first page, and all that are opened after it."""
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
    """Whether a page made a request; those of workers and of pages that are opening are of none."""
    try:
        return bool(request.frame.page == page)
    except Exception:  # noqa: BLE001 - Playwright's own, where there is no frame
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
    """Check that a function is a script of three arguments that awaits.

    Raises:
        ConfigurationError: it is none.
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
