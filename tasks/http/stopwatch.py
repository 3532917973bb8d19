"""Stopwatch of an HTTP exchange, with its deadline and the endpoint's limits.

Latency is from the first byte sent to the last byte received; waiting for a free connection and
connecting are not in it. httpx reports each step through its ``trace`` extension, and waits for
what is done there: so this is also the one place where a call can be held back at the very moment
it would leave, and where the head of every answer is seen, also of one that ends badly.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from convergence_core.records import RateInfo
from tasks.http.retries import rate_of


class EndpointLimits(Protocol):
    """Limits of an endpoint; see ``tasks.calls.rate_limiter.EndpointLimiter``."""

    async def wait_to_send(self) -> None:
        """Wait until a request may leave.

        Raises:
            InfrastructureFault: that takes too long; nothing was sent.
        """
        ...

    def observe(self, rate: RateInfo) -> None:
        """Take in what the head of an answer says."""
        ...


_LIMITS: ContextVar[EndpointLimits | None] = ContextVar("limits", default=None)


@contextmanager
def within_limits(limits: EndpointLimits | None) -> Iterator[None]:
    """Keep an endpoint's limits in all exchanges inside; ``None``: none."""
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
        first_byte_s: from sending to the head of the answer; ``None``: ``timeout_s``.
    """

    def __init__(
        self, deadline: asyncio.Timeout, timeout_s: float, *, first_byte_s: float | None = None
    ) -> None:
        self.is_sent = False
        """Whether any byte of the request may have left."""
        self.awaits_head = False
        """Whether the request was sent and no answer has begun."""
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._first_byte_s = timeout_s if first_byte_s is None else first_byte_s
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
            self.is_sent = self.awaits_head = True
            self._end_at(min(self._end_s, now_s + self._first_byte_s))
        elif event.endswith("receive_response_headers.complete"):
            self.awaits_head = False
            self._end_at(self._end_s)
            rate = rate_of(info["return_value"][-1])
            if rate is not None and (limits := _LIMITS.get()) is not None:
                limits.observe(rate)

    @property
    def missed_head(self) -> bool:
        """Whether the exchange ended because no answer began, well before its own limit."""
        return self.awaits_head and self._first_byte_s < self._timeout_s

    def read_ms(self) -> float:
        """Return the milliseconds since sending; call it when the last byte is there."""
        assert self._started is not None  # noqa: S101 - there is an answer
        return (time.perf_counter() - self._started) * 1000.0

    def _end_at(self, when_s: float) -> None:
        if not self._deadline.expired():  # it may be ending this very exchange
            self._deadline.reschedule(when_s)
