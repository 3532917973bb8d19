"""Scripts in Browserbase sessions as targets: run, always released, priced."""

import asyncio
import logging
import math
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from convergence_core.budget.prices import PriceTable
from convergence_core.config import ApiConfig
from convergence_core.config.api_rules import MAX_SESSION_S, MIN_SESSION_S, session_problems
from convergence_core.errors import (
    Billed,
    CandidateFault,
    ConfigurationError,
    EndpointDownError,
    EvaluationFault,
    InfrastructureFault,
)
from convergence_core.ports import WorstCase
from convergence_core.records import NO_USAGE, Case, Json, Params, Reply
from tasks.functions.function_results import reply_of
from tasks.functions.workers import WorkersHungError, WorkTimeoutError
from tasks.http.authentication import request_headers
from tasks.http.clients import CONNECT_S
from tasks.http.request_templates import Values
from tasks.json_values import mapping
from tasks.secrets.redaction import Secrets, secret_name
from tasks.targets.browser import (
    ENDPOINT,
    PATH,
    RemoteBrowser,
    ScriptEnd,
    ScriptRunner,
    SessionClient,
    billed_minutes,
    recording_of,
)
from tasks.targets.local_browser import LocalSessions

_LOG = logging.getLogger(__name__)
_MARGIN_S: Final = 30.0
"""Seconds that a session may last beyond connection and script: creation, return, release."""
_RELEASES_S: Final = (0.0, 0.5, 2.0)
"""Pauses before each attempt to release a session, seconds."""
_ENDING_S: Final = 5.0
"""Billed seconds that the provider may take to end a timed-out session; part of the reservation.
"""
_BYTES_MARGIN: Final = 2
"""Factor on ``api.request.max_response_bytes`` in the proxy reservation: pages load on until the
script stops.
"""
_GB: Final = 1e9
_KEYS = re.compile(r"((?:signingKey|apiKey)=)[^&\s\"']+")


@dataclass(eq=False, repr=False)
class BrowserbaseTarget:
    """Target that runs a script in a new session for each call.

    A call costs the session's minutes, rounded up and at least one, by
    ``prices.browserbase.minute``, its proxy traffic by ``proxy_gb``, and the cost that the script
    reports. ``bind`` must be called before the first call. Offline, a local Chromium replaces each
    session.
    """

    provider = "browserbase"

    api: ApiConfig
    runner: ScriptRunner
    _: KW_ONLY
    secrets: Secrets
    workers: int
    prices: PriceTable | None = None
    is_offline: bool = False

    def __post_init__(self) -> None:
        """Look up the prices of a session."""
        prices = self.prices
        price = None if prices is None else prices.find(self.provider, None)
        self._minute_usd = None if price is None else price.minute
        self._proxy_gb_usd = None if price is None else price.proxy_gb
        self._price_version = None if prices is None else prices.version_of(self.provider, None)
        self._run_id = ""
        self._open: set[str] = set()
        """Sessions that this target opened and has not released."""
        self._client: SessionClient | LocalSessions | None = None

    def bind(self, run_id: str) -> None:
        """Mark the sessions of all later calls with a run."""
        self._run_id = run_id

    def request(self, params: Params, case: Case) -> Json:
        """Return script, input, parameters and session settings, without secrets.

        Raises:
            CandidateFault: the case lacks an input of the session's template, or the session
                breaks a rule.
        """
        return {
            "url": (self.api.endpoint or ENDPOINT).rstrip("/") + PATH,
            "script": self.api.function,
            "session": self._session(params, case),
            "input": case.input,
            "params": dict(params),
        }

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        """Return the cost of a session that lasts until its time-out.

        Raises:
            CandidateFault: as ``request``.
        """
        return WorstCase(usd=self._most_usd(self._session(params, case), _ENDING_S))

    async def call(self, params: Params, case: Case) -> Reply:
        """Open a session, run the script in it, release it.

        Raises:
            CandidateFault: the script raised, took too long, loaded too much or outlived its
                session, or the provider rejects the session's settings.
            ConfigurationError: the key's variable is not set.
            EndpointDownError: every script blocks its event loop, and none ended in time.
            InfrastructureFault: network, rate limit, spent credit, server, or a lost browser.
        """
        settings = self._session(params, case)
        client = self._sessions()
        began_s = time.monotonic()
        session = await client.create(settings, self._run_id)
        self._open.add(session.session_id)
        try:
            end: ScriptEnd | EvaluationFault = await self._scripted(session, params, case)
        finally:
            # A cancelled call releases its session, too.
            release = asyncio.ensure_future(self._release(session.session_id))
            released = await asyncio.shield(release)
        seconds = time.monotonic() - began_s
        return self._judged(end, self._bill(released, settings, seconds), session, released)

    def sweep(self, run_ids: Iterable[str]) -> None:
        """Release the open sessions of abandoned runs; blocks.

        Failures are logged: a session that stays open ends by its time-out.
        """
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may have a running event loop
            thread.submit(asyncio.run, self._swept(frozenset(run_ids))).result()

    async def aclose(self) -> None:
        """Release open sessions, and close driver and connections; safe to call twice."""
        for session_id in tuple(self._open):
            await self._release(session_id)
        await self.runner.aclose()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # -- the session

    def _session(self, params: Params, case: Case) -> dict[str, Json]:
        values = Values(params, case.input)
        body = values.fill(self.api.request.body)
        problem = next(session_problems(body), None)
        if problem is not None:
            raise CandidateFault(
                f"the session that these parameters ask for: {problem}",
                error_type="invalid_session",
            )
        settings = dict(mapping(body))
        needed_s = math.ceil(CONNECT_S + self.api.request.timeout_seconds + _MARGIN_S)
        settings.setdefault("timeout", min(max(needed_s, MIN_SESSION_S), MAX_SESSION_S))
        return settings

    def _sessions(self) -> SessionClient | LocalSessions:
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> SessionClient | LocalSessions:
        if self.is_offline:
            return LocalSessions()
        return SessionClient(
            self.api.endpoint or ENDPOINT,
            headers=lambda: request_headers(self.api, self.secrets),
            secret=secret_name(self.api),
            n_connections=self.workers + 2,
        )

    async def _swept(self, run_ids: frozenset[str]) -> None:
        client = self._new_client()
        try:
            n_released = await client.sweep(run_ids)
        except (ConfigurationError, EvaluationFault) as error:
            _LOG.warning("open browser sessions could not be looked for: %s", error)
        else:
            if n_released:
                _LOG.warning("released %d browser sessions that were left open", n_released)
        finally:
            await client.aclose()

    async def _release(self, session_id: str) -> RemoteBrowser | None:
        """Release a session; ``None`` if all attempts fail, so that its time-out ends it."""
        for pause_s in _RELEASES_S:
            await asyncio.sleep(pause_s)
            try:
                session = await self._sessions().release(session_id)
            except EvaluationFault as error:
                _LOG.warning("session %s is not released yet: %s", session_id, error)
                continue
            self._open.discard(session_id)
            return session
        return None

    # -- the script

    async def _scripted(
        self, session: RemoteBrowser, params: Params, case: Case
    ) -> ScriptEnd | EvaluationFault:
        """Run the script, and return how it ended.

        Raises:
            EndpointDownError: every script blocks its event loop.
        """
        timeout_s = self.api.request.timeout_seconds
        try:
            return await self.runner.run(session, case.input, params)
        except WorkTimeoutError:
            return CandidateFault(
                f"{self.api.function} took longer than api.request.timeout_seconds={timeout_s:g} and holds its "
                "event loop. Await Playwright's calls, and `asyncio.sleep` in place of `time.sleep`.",
                error_type="timeout",
            )
        except WorkersHungError as error:
            raise EndpointDownError(
                f"all {error} scripts of {self.api.function} hang and cannot be stopped, so no further call "
                "is possible. Await what takes time. Paid answers are kept; `convergence resume` continues."
            ) from None

    def _judged(
        self,
        end: ScriptEnd | EvaluationFault,
        billed: Billed,
        session: RemoteBrowser,
        released: RemoteBrowser | None,
    ) -> Reply:
        """Return the reply of a script, or raise its fault with the session's bill.

        Raises:
            EvaluationFault: see ``call``.
        """
        fault = end if isinstance(end, EvaluationFault) else self._fault_of(end, released)
        if fault is None and isinstance(end, ScriptEnd):
            try:
                reply = reply_of(end.outcome, provider=self.provider)
            except CandidateFault as reported:
                fault = reported
            else:
                priced = self._priced(reply, end, billed, released)
                return replace(priced, recording_url=self._recording(session))
        assert fault is not None  # noqa: S101 - one of the two
        session_usd = None if fault.billed is None else fault.billed.cost_usd
        fault.billed = replace(billed, cost_usd=_sum(billed.cost_usd, session_usd))
        recording = self._recording(session)
        message = f"{fault}" if recording is None else f"{fault} (recording: {recording})"
        fault.args = (_cleaned(message, session),)
        fault.details = _cleaned(fault.details, session)
        raise fault

    def _recording(self, session: RemoteBrowser) -> str | None:
        """Return the URL of the session's recording; ``None`` for a local browser."""
        return None if self.is_offline else recording_of(session.session_id)

    def _fault_of(self, end: ScriptEnd, released: RemoteBrowser | None) -> EvaluationFault | None:
        """Return the fault of a script's end or exception; ``None`` if there is none."""
        request, name = self.api.request, self.api.function
        failure = end.outcome.failure
        message = "" if failure is None else f"{failure.error_type}: {failure.message}"
        details = "" if failure is None else failure.details
        if end.ending == "timeout":
            limit = f"api.request.timeout_seconds={request.timeout_seconds:g}"
            return CandidateFault(f"{name} took longer than {limit}", error_type="timeout")
        if end.ending == "too_large":
            limit = f"api.request.max_response_bytes={request.max_response_bytes}"
            return CandidateFault(f"its pages load more than {limit}", error_type="too_large")
        if end.ending == "lost" and released is not None and released.status == "TIMED_OUT":
            text = f"the session ended by its own `timeout` before {name} did"
            return CandidateFault(text, error_type="session_timeout", details=details)
        if end.ending in ("lost", "not_connected", "network"):
            error_type = {"lost": "browser_lost", "network": "network"}.get(
                end.ending, "no_browser"
            )
            return InfrastructureFault(message, error_type=error_type, details=details)
        return None if failure is None else failure.fault()

    # -- the bill

    def _most_usd(self, session: Mapping[str, Json], ending_s: float = 0.0) -> float | None:
        timeout, uses_proxies = session["timeout"], bool(session.get("proxies"))
        assert isinstance(timeout, int)  # noqa: S101 - checked with the session
        n_bytes = self.api.request.max_response_bytes * _BYTES_MARGIN if uses_proxies else 0
        return self._usd(billed_minutes(timeout + ending_s), n_bytes)

    def _usd(self, minutes: int, proxy_bytes: int) -> float | None:
        if self._minute_usd is None or (proxy_bytes and self._proxy_gb_usd is None):
            return None
        return minutes * self._minute_usd + proxy_bytes / _GB * (self._proxy_gb_usd or 0.0)

    def _bill(
        self, released: RemoteBrowser | None, settings: Mapping[str, Json], seconds: float
    ) -> Billed:
        """Return the bill of a session; an unreleased one is billed up to its time-out."""
        if released is None:
            usd = self._most_usd(settings)
        else:
            minutes = released.minutes or billed_minutes(seconds)
            usd = self._usd(minutes, released.proxy_bytes)
        return Billed(usage=NO_USAGE, cost_usd=usd, price_version=self._price_version)

    def _priced(
        self, reply: Reply, end: ScriptEnd, billed: Billed, released: RemoteBrowser | None
    ) -> Reply:
        measured = {"loaded_bytes": float(end.n_bytes)}
        if released is not None and released.seconds is not None:
            measured["session_seconds"] = released.seconds
        return replace(
            reply,
            cost_usd=_sum(billed.cost_usd, reply.cost_usd),
            price_version=billed.price_version,
            extra={**measured, **reply.extra},
        )


def _sum(of_session: float | None, of_script: float | None) -> float | None:
    """Return the sum of both costs; unknown if the session's is unknown."""
    return None if of_session is None else of_session + (of_script or 0.0)


def _cleaned(text: str, session: RemoteBrowser) -> str:
    """Redact the browser's address, which holds a key."""
    if session.connect_url:
        text = text.replace(session.connect_url, "the session's address")
    return _KEYS.sub(r"\1[hidden]", text)
