"""Latency of an HTTP exchange: from the first byte sent to the last byte received.

Waiting for a free connection and connecting are not in it. httpx tells of each step through its
``trace`` extension.
"""

import asyncio
import time
from typing import Any


class Stopwatch:
    """Times one exchange and limits it; pass as the ``trace`` extension of its request."""

    def __init__(self, deadline: asyncio.Timeout, timeout_s: float) -> None:
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._started: float | None = None

    async def __call__(self, event: str, info: dict[str, Any]) -> None:  # noqa: ARG002 - httpx's form
        """Start with the first request of the exchange; redirects belong to it."""
        if self._started is None and event.endswith("send_request_headers.started"):
            self._started = time.perf_counter()
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._timeout_s)

    def read_ms(self) -> float:
        """Return the milliseconds since sending; call it when the last byte is there."""
        assert self._started is not None  # noqa: S101 - there is an answer
        return (time.perf_counter() - self._started) * 1000.0
