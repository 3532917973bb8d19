"""HTTP clients: time-outs, bounded bodies, pooled connections, one exchange.

httpx keeps all connections in one pool, and httpcore looks through the whole of it, for each idle
one again, whenever a request begins or ends: with 64 connections that takes several times as long
as the request itself. Here each connection is a pool of its own.

Latency is from the first byte sent to the last byte received; waiting for a free connection and
connecting are not in it. httpx reports each step through its ``trace`` extension, and waits for
what is done there: so this is also the one place where a call can be held back at the very moment
it would leave, and where the head of every answer is seen, also of one that ends badly.
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
"""Longest wait for a connection, of any client."""
IDLE_S = 5.0
"""How long an idle connection is kept, as httpx does by default."""

_HEADERS = {"User-Agent": "convergence-optimizer", "Accept": "application/json, */*;q=0.1"}

_Origin = tuple[str, str, int | None]


class ConnectionPool(httpx.AsyncBaseTransport):
    """A transport over many transports of one connection each. For one event loop.

    The connection that was used last is used first, so that surplus ones grow old.

    Args:
        most: most requests at once; further ones wait until one has ended.
        verify: which certificates to trust.
    """

    def __init__(self, most: int, *, verify: ssl.SSLContext) -> None:
        self._slots = asyncio.Semaphore(most)
        self._verify = verify
        self._idle: dict[_Origin, deque[tuple[httpx.AsyncHTTPTransport, float]]] = {}
        """Transports and since when they are idle, oldest first."""
        self._all: set[httpx.AsyncHTTPTransport] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its connection is free again when the answer's stream is closed."""
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
        if transport in self._all:  # else all were closed meanwhile
            self._idle.setdefault(origin, deque()).append((transport, time.monotonic()))

    async def _close_old(self) -> None:
        """Close a connection that was idle for long: one for each request is enough."""
        oldest_s = time.monotonic() - IDLE_S
        for idle in self._idle.values():
            if idle and idle[0][1] < oldest_s:
                transport, _ = idle.popleft()
                self._all.discard(transport)
                await transport.aclose()
                return


class _Stream(httpx.AsyncByteStream):
    """The body of an answer, with a callback for when it has been closed."""

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
            InfrastructureFault: that takes too long; nothing was sent.
        """

    def observe(self, rate: RateInfo) -> None:
        """Take in what the head of an answer says."""


_LIMITS: ContextVar[EndpointLimits | None] = ContextVar("limits", default=None)


@contextmanager
def within_limits(limits: EndpointLimits | None) -> Iterator[None]:
    """Keep an endpoint's limits in all exchanges inside; ``None`` means none."""
    token = _LIMITS.set(limits)
    try:
        yield
    finally:
        _LIMITS.reset(token)


class Stopwatch:
    """Times one exchange and limits it; pass as the ``trace`` extension of its request.

    Args:
        deadline: what ends the exchange; entered around it without a time.
        timeout_s: from sending to the last byte of the answer.
    """

    def __init__(self, deadline: asyncio.Timeout, timeout_s: float) -> None:
        self.is_sent = False
        """Whether any byte of the request may have left."""
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._started: float | None = None
        self._end_s = 0.0

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        """Start when the request leaves, and end with its answer."""
        if event.endswith("send_request_headers.started"):
            if (limits := _LIMITS.get()) is not None:
                await limits.wait_to_send()
            now_s = asyncio.get_running_loop().time()
            if self._started is None:
                self._started = time.perf_counter()
                self._end_s = now_s + self._timeout_s
            self.is_sent = True
            if not self._deadline.expired():  # it may be ending this very exchange
                self._deadline.reschedule(self._end_s)
        elif event.endswith("receive_response_headers.complete"):
            rate = rate_of(info["return_value"][-1])
            if rate is not None and (limits := _LIMITS.get()) is not None:
                limits.observe(rate)

    def read_ms(self) -> float:
        """Return the milliseconds since sending; call it when the last byte is there."""
        assert self._started is not None  # noqa: S101 - there is an answer
        return (time.perf_counter() - self._started) * 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits of a client and of each exchange."""

    timeout_s: float = 60.0
    """From sending to the last byte."""
    n_connections: int = 100
    """Most connections at once; waiting for one is no time-out."""
    max_response_bytes: int = MAX_RESPONSE_BYTES
    """Most bytes of an answer, decoded; see ``tasks.http.bodies``."""

    @property
    def connect_s(self) -> float:
        """Longest wait for a connection."""
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
        """Return a client that never retries; its time-out is the longest silence.

        Raises:
            ConfigurationError: the environment names certificates that cannot be read.
        """
        return httpx.AsyncClient(
            headers={"Accept-Encoding": ", ".join(CODINGS), **_HEADERS},
            event_hooks={"response": [limiting(self.max_response_bytes)]},
            timeout=httpx.Timeout(self.timeout_s, connect=self.connect_s, pool=None),
            transport=ConnectionPool(self.n_connections, verify=certificates()),
            trust_env=False,  # the pool reads it
        )


class HttpClient:
    """A client that its first request opens: each exchange is timed, and its failure a fault.

    Args:
        settings: limits of the client and of each exchange.
        secret: variable that holds the key, for messages.

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
        """Send a request once; yield the head of its answer while the body can be read.

        Args:
            method: of the request.
            url: where it goes.
            shown: the URL in faults; ``None``: ``url`` without its query.
            params: joined to the query that the URL has.
            **content: headers and body, as httpx takes them.

        Raises:
            ConfigurationError: the environment names certificates that cannot be read.
            InfrastructureFault: there is no whole answer.
        """
        if self._client is None:
            self._client = self.settings.open()
        deadline = asyncio.timeout(None)
        stopwatch = Stopwatch(deadline, self.settings.timeout_s)
        trace = {"trace": stopwatch}
        whole = httpx.URL(url)
        if params:  # merging writes the whole query anew
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
            ) from None  # it holds the request, and with it the headers

    async def request(self, method: str, url: str, **content: Any) -> tuple[httpx.Response, float]:
        """Send a request once; return its answer and the milliseconds.

        Raises:
            EvaluationFault: as ``exchange``, or the answer has a status of 300 or more.
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
        """Return the fault of an exchange that got no answer, or half of one."""
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
