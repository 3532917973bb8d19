"""Calls per second that all processes keep together, when requests are sent.

Each request takes a send slot from the journal's database (``tasks.store.journal.rates``) and waits
for it. One that comes to it late, since the machine was busy, takes another: late ones would leave
in a bunch.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from convergence_core.records import RateInfo
from tasks.store.journal.rates import Rates

_MOST_LATE_S: Final = 0.05
"""And half of the time between two slots, where that is longer."""
_QUEUE_S: Final = 120.0
"""How far ahead slots are taken at most: a claim in the journal does not last for ever."""


@dataclass(frozen=True, slots=True)
class EndpointRate:
    """The send slots of one host; a ``tasks.http.stopwatch.EndpointLimits``."""

    rates: Rates
    host: str
    per_second: float

    @property
    def max_in_flight(self) -> int:
        """Calls that may wait for their slots at the same time."""
        return max(1, int(self.per_second * _QUEUE_S))

    async def wait_to_send(self) -> None:
        """Wait for a slot.

        Raises:
            StoreError: the slots' database cannot be used.
        """
        loop = asyncio.get_running_loop()
        most_late_s = max(_MOST_LATE_S, 0.5 / self.per_second)
        is_late = True
        while is_late:
            asked_s = loop.time()
            wait_s = await asyncio.to_thread(self.rates.take, self.host, self.per_second)
            # The slot was counted from somewhere between asking and now: the later one is safe.
            due_s = loop.time() + wait_s
            await asyncio.sleep(wait_s)
            is_late = loop.time() - min(due_s, asked_s + wait_s) > most_late_s

    def observe(self, rate: RateInfo) -> None:
        """Take in what the head of an answer says: nothing here."""


class SharedRates:
    """The rates of one process; closed with its session.

    Args:
        rates: shared with other processes; closed with this.
        per_second: host, with its port where the URL has one → calls per second.
    """

    def __init__(self, rates: Rates, per_second: Mapping[str, float]) -> None:
        self._rates = rates
        self._hosts = {host: EndpointRate(rates, host, rate) for host, rate in per_second.items()}

    def of(self, endpoint: str | None) -> EndpointRate | None:
        """Return the rate of an endpoint (scheme and host); ``None``: nothing limits it."""
        return self._hosts.get((endpoint or "").partition("://")[2].lower())

    def close(self) -> None:
        """Free the database; safe to call twice."""
        self._rates.close()
