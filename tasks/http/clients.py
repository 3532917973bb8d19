"""HTTP clients: time-outs, bounded bodies, pooled connections, timed exchanges.

httpx keeps all connections in one pool. At the beginning and end of each request, httpcore scans
the whole pool once per idle connection: with 64 connections that takes several times as long as
the request. Here each connection has its own pool.

Latency runs from the first byte sent to the last byte received, without the waits for a free
connection and for connecting. httpx reports each step through its ``trace`` extension and awaits
the callback. So this is the one place that can delay a call just before it leaves, and that sees
the headers of every answer, even of failed ones.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, Self

import httpx

from convergence_core.config.api import RequestConfig
from convergence_core.errors import InfrastructureFault
from convergence_core.records import RateInfo
from tasks.http.bodies import CODINGS, MAX_RESPONSE_BYTES, limiting
from tasks.http.environment import certificates, proxy_of
from tasks.http.faults import bare, header_fault, status_fault
from tasks.http.retries import rate_of

CONNECT_S = 10.0
"""Maximum seconds to connect, of any client."""
IDLE_S = 5.0
"""Seconds that an idle connection stays open, as by default in httpx."""

_HEADERS = {"User-Agent": "convergence-optimizer", "Accept": "application/json, */*;q=0.1"}

_Origin = tuple[str, str, int | None]


class ConnectionPool(httpx.AsyncBaseTransport):
    """Transport over many transports of one connection each, for one event loop.

    The most recently used connection is used first, so that surplus ones expire.

    Args:
        most: Maximum concurrent requests; further ones wait.
        verify: Trusted certificates.
    """

    def __init__(self, most: int, *, verify: ssl.SSLContext) -> None:
        self._slots = asyncio.Semaphore(most)
        self._verify = verify
        self._idle: dict[_Origin, deque[tuple[httpx.AsyncHTTPTransport, float]]] = {}
        """Idle transports with the time since when they are idle, oldest first."""
        self._all: set[httpx.AsyncHTTPTransport] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; closing the answer's stream frees its connection."""
        await self._close_old()
        await self._slots.acquire()
        origin = (request.url.scheme, request.url.host, request.url.port)
        transport = self._take(origin)
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            self._give_back(origin, transport)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - of an asynchronous transport
        response.stream = _Stream(response.stream, lambda: self._give_back(origin, transport))
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        transports = [*self._all]
        self._all.clear()
        self._idle.clear()
        for transport in transports:
            await transport.aclose()

    def _take(self, origin: _Origin) -> httpx.AsyncHTTPTransport:
        if idle := self._idle.get(origin):
            return idle.pop()[0]
        limits = httpx.Limits(
            max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE_S
        )
        transport = httpx.AsyncHTTPTransport(
            verify=self._verify, limits=limits, proxy=proxy_of(*origin)
        )
        self._all.add(transport)
        return transport

    def _give_back(self, origin: _Origin, transport: httpx.AsyncHTTPTransport) -> None:
        self._slots.release()
        if transport in self._all:  # otherwise `aclose` closed all meanwhile
            self._idle.setdefault(origin, deque()).append((transport, time.monotonic()))

    async def _close_old(self) -> None:
        """Close one connection that was idle for too long; one per request is enough."""
        oldest_s = time.monotonic() - IDLE_S
        for idle in self._idle.values():
            if idle and idle[0][1] < oldest_s:
                transport, _ = idle.popleft()
                self._all.discard(transport)
                await transport.aclose()
                return


class _Stream(httpx.AsyncByteStream):
    """Body of an answer, with a callback on closing."""

    def __init__(self, stream: httpx.AsyncByteStream, on_close: Callable[[], None]) -> None:
        self._stream = stream
        self._on_close = on_close
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._stream.aclose()
        finally:
            self._on_close()


class EndpointLimits(Protocol):
    """Limits of an endpoint; see ``tasks.calls.rate_limiter.EndpointLimiter``."""

    async def wait_to_send(self) -> None:
        """Wait until a request may leave.

        Raises:
            InfrastructureFault: the wait would be too long; nothing was sent.
        """

    def observe(self, rate: RateInfo) -> None:
        """Update the limits from an answer's headers."""


_LIMITS: ContextVar[EndpointLimits | None] = ContextVar("limits", default=None)


@contextmanager
def within_limits(limits: EndpointLimits | None) -> Iterator[None]:
    """Apply an endpoint's limits to all exchanges inside; ``None`` means no limits."""
    token = _LIMITS.set(limits)
    try:
        yield
    finally:
        _LIMITS.reset(token)


class Stopwatch:
    """Timer and time limit of one exchange; pass it as the request's ``trace`` extension.

    Args:
        deadline: Time-out of the exchange, entered around it without a time.
        timeout_s: Maximum seconds from sending to the last byte of the answer.
    """

    def __init__(self, deadline: asyncio.Timeout, timeout_s: float) -> None:
        self.is_sent = False
        """Whether any byte of the request may have left."""
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._started: float | None = None
        self._end_s = 0.0

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        """Start when the request leaves, and read the answer's limits."""
        if event.endswith("send_request_headers.started"):
            if (limits := _LIMITS.get()) is not None:
                await limits.wait_to_send()
            now_s = asyncio.get_running_loop().time()
            if self._started is None:
                self._started = time.perf_counter()
                self._end_s = now_s + self._timeout_s
            self.is_sent = True
            if not self._deadline.expired():  # it may be ending this exchange right now
                self._deadline.reschedule(self._end_s)
        elif event.endswith("receive_response_headers.complete"):
            rate = rate_of(info["return_value"][-1])
            if rate is not None and (limits := _LIMITS.get()) is not None:
                limits.observe(rate)

    def read_ms(self) -> float:
        """Return the milliseconds since sending; call it at the last byte."""
        assert self._started is not None  # noqa: S101 - there is an answer
        return (time.perf_counter() - self._started) * 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits of a client and of each exchange."""

    timeout_s: float = 60.0
    """Maximum seconds from sending to the last byte."""
    n_connections: int = 100
    """Maximum concurrent connections; the time-out excludes waiting for one."""
    max_response_bytes: int = MAX_RESPONSE_BYTES
    """Maximum decoded bytes of an answer; see ``tasks.http.bodies``."""

    @property
    def connect_s(self) -> float:
        """Maximum seconds to connect."""
        return min(CONNECT_S, self.timeout_s)

    @classmethod
    def of(cls, request: RequestConfig, n_connections: int) -> Self:
        """Return the settings under ``api.request``."""
        return cls(
            timeout_s=request.timeout_seconds,
            n_connections=n_connections,
            max_response_bytes=request.max_response_bytes,
        )

    def open(self) -> httpx.AsyncClient:
        """Return a client that never retries; its time-out limits each silence.

        Raises:
            ConfigurationError: the environment names unreadable certificates.
        """
        return httpx.AsyncClient(
            headers={"Accept-Encoding": ", ".join(CODINGS), **_HEADERS},
            event_hooks={"response": [limiting(self.max_response_bytes)]},
            timeout=httpx.Timeout(self.timeout_s, connect=self.connect_s, pool=None),
            transport=ConnectionPool(self.n_connections, verify=certificates()),
            trust_env=False,  # the pool reads the environment
        )


class HttpClient:
    """Client that opens on its first request, times each exchange and maps failures to faults.

    Args:
        settings: Limits of the client and of each exchange.
        secret: Environment variable of the key, for messages.

    Example:
        >>> client = HttpClient(ClientSettings(timeout_s=5.0))
        >>> response, latency_ms = await client.request("GET", "https://api.example.com/models")
    """

    def __init__(self, settings: ClientSettings, secret: str | None = None) -> None:
        self.settings = settings
        self.secret = secret
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        url: str,
        *,
        shown: str | None = None,
        params: Any = None,
        **content: Any,
    ) -> AsyncIterator[tuple[httpx.Response, Stopwatch]]:
        """Send a request once; yield its answer with an unread body.

        Args:
            method: HTTP method.
            url: Request URL.
            shown: URL in faults; ``None`` means ``url`` without its query.
            params: Parameters added to the URL's query.
            **content: Headers and body, as in httpx.

        Raises:
            ConfigurationError: the environment names unreadable certificates.
            InfrastructureFault: there is no complete answer.
        """
        if self._client is None:
            self._client = self.settings.open()
        deadline = asyncio.timeout(None)
        stopwatch = Stopwatch(deadline, self.settings.timeout_s)
        trace = {"trace": stopwatch}
        whole = httpx.URL(url)
        if params:  # merging rewrites the whole query
            whole = whole.copy_merge_params(params)
        try:
            async with (
                deadline,
                self._client.stream(method, whole, extensions=trace, **content) as response,
            ):
                yield response, stopwatch
        except (httpx.HTTPError, httpx.StreamError, OSError, UnicodeError) as error:
            raise header_fault(error, self.secret) or self._fault(
                error, shown or bare(url), stopwatch
            ) from None  # the cause holds the request, and with it the headers

    async def request(self, method: str, url: str, **content: Any) -> tuple[httpx.Response, float]:
        """Send a request once; return its answer and the milliseconds.

        Raises:
            EvaluationFault: as ``exchange``, or the answer's status is 300 or more.
        """
        async with self.exchange(method, url, **content) as (response, stopwatch):
            await response.aread()
            latency_ms = stopwatch.read_ms()
        if response.status_code >= 300:
            status, text, headers = response.status_code, response.text, response.headers
            raise status_fault(status, text, headers, url=bare(url), secret=self.secret)
        return response, latency_ms

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _fault(self, error: Exception, url: str, stopwatch: Stopwatch) -> InfrastructureFault:
        """Return the fault of an exchange without a complete answer."""
        if isinstance(error, httpx.ConnectTimeout):
            limit_s = self.settings.connect_s
            text, kind = f"no connection to {url} within {limit_s:g} s", "connect_timeout"
        elif not isinstance(error, (httpx.TimeoutException, TimeoutError)):
            text = f"no answer from {url}: {str(error) or type(error).__name__}"
            kind = "network"
        else:
            text = f"no complete answer from {url} within {self.settings.timeout_s:g} s"
            kind = "timeout"
        return InfrastructureFault(text, error_type=kind, may_be_billed=stopwatch.is_sent)
