"""HTTP clients: time-outs, bounded bodies, pooled connections, one exchange."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

import httpx

from convergence_core.config.api import RequestConfig
from convergence_core.errors import InfrastructureFault
from tasks.http.bodies import CODINGS, MAX_RESPONSE_BYTES, limiting
from tasks.http.connections import ConnectionPool
from tasks.http.environment import certificates
from tasks.http.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits of a client and of each exchange."""

    timeout_s: float = 60.0
    """From sending to the last byte."""
    connect_s: float | None = None
    """Longest wait for a connection; ``None``: ``timeout_s``."""
    first_byte_s: float | None = None
    """From sending to the head of the answer; ``None``: ``timeout_s``."""
    n_connections: int = 100
    """Most connections at once; waiting for one is no time-out."""
    max_response_bytes: int = MAX_RESPONSE_BYTES
    """Most bytes of an answer, decoded; see ``tasks.http.bodies``."""

    @classmethod
    def of(cls, request: RequestConfig, n_connections: int) -> Self:
        """Return the settings under ``api.request``."""
        return cls(
            timeout_s=request.timeout_seconds,
            connect_s=request.connect_seconds,
            first_byte_s=request.first_byte_seconds,
            n_connections=n_connections,
            max_response_bytes=request.max_response_bytes,
        )

    def open(self) -> httpx.AsyncClient:
        """Return a client that never retries; its time-out is the longest silence.

        Raises:
            ConfigurationError: the environment names certificates that cannot be read.
        """
        n, connect_s = self.n_connections, self.connect_s or self.timeout_s
        return httpx.AsyncClient(
            headers={"Accept-Encoding": ", ".join(CODINGS)},
            event_hooks={"response": [limiting(self.max_response_bytes)]},
            timeout=httpx.Timeout(self.timeout_s, connect=connect_s, pool=None),
            transport=ConnectionPool(n, verify=certificates()),
            trust_env=False,  # the pool reads it
        )

    @asynccontextmanager
    async def timed(self) -> AsyncIterator[Stopwatch]:
        """Time the exchange inside, and end it by its limits."""
        deadline = asyncio.timeout(None)
        stopwatch = Stopwatch(deadline, self.timeout_s, first_byte_s=self.first_byte_s)
        async with deadline:
            yield stopwatch

    def fault(
        self, error: BaseException, *, url: str, stopwatch: Stopwatch
    ) -> InfrastructureFault:
        """Return the fault that a failed exchange means: it never got an answer, or half of one.

        Args:
            error: what httpx, the loop or the endpoint's limits raised.
            url: what was called, without its query.
            stopwatch: of the exchange; tells how far it came.
        """
        if isinstance(error, InfrastructureFault):
            return error  # of the endpoint's limits
        if isinstance(error, httpx.ConnectTimeout):
            limit_s = self.timeout_s if self.connect_s is None else self.connect_s
            text, kind = f"no connection to {url} within {limit_s:g} s", "connect_timeout"
        elif not isinstance(error, (httpx.TimeoutException, TimeoutError)):
            text = f"no answer from {url}: {str(error) or type(error).__name__}"
            kind = "network"
        elif stopwatch.missed_head and self.first_byte_s is not None:
            text = f"no answer from {url} within {self.first_byte_s:g} s"
            kind = "first_byte_timeout"
        else:
            text = f"no complete answer from {url} within {self.timeout_s:g} s"
            kind = "timeout"
        return InfrastructureFault(text, error_type=kind, may_be_billed=stopwatch.is_sent)
