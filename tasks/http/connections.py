"""Connection pool of an HTTP client, in constant time for any size.

httpx keeps all connections in one pool, and httpcore looks through the whole of it, for each idle
one anew, whenever a request begins or ends: with 64 connections that takes several times as long
as the request itself. Here each connection is a pool of its own.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

import httpx

from tasks.http.environment import proxy_of

IDLE_S = 5.0
"""How long an idle connection is kept, as httpx does by default."""

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
