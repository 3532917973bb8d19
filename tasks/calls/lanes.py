"""One call on its way, how it may end, and the lane it waits in."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field
from typing import Literal

from convergence_core.budget.limits import Exhausted, Reservation
from convergence_core.errors import EvaluationFault
from convergence_core.ports import CallIntent, WorstCase
from convergence_core.records import Json, Reply
from tasks.calls.outcomes import Record
from tasks.calls.rate_limiter import EndpointLimiter
from tasks.calls.shared_rate import Pace

Keep = Callable[[Reply], Awaitable[Json]]
"""Turns an answer into what the journal keeps of it, where its text is not kept."""


@dataclass(slots=True, kw_only=True)
class CallOutcome:
    """How a call ended: by an answer, by a fault, or not at all."""

    record: Record | None = None
    """The account in the ledger; ``None``: nothing was asked."""
    stored: Json = None
    """What the journal keeps of an answer or of the candidate's fault."""
    reply: Reply | None = None
    """The answer as it came; ``None``: it is in ``stored``, or there is none."""
    fault: EvaluationFault | None = None
    """The infrastructure's fault that retries did not heal."""
    not_asked: tuple[Literal["budget", "stopped"], str] | None = None
    """Why nothing was asked."""


@dataclass(slots=True, eq=False, kw_only=True)
class PendingCall:
    """One call on its way."""

    lane: str
    intent: CallIntent
    worst: WorstCase
    send: Callable[[], Awaitable[Reply]]
    gate: EndpointLimiter | None
    """Of its endpoint; ``None``: nothing but the lane and its pace limit it."""
    pace: Pace | None = None
    """Of its endpoint, where it passes no gate; a gate has its own."""
    candidate_id: str = ""
    """Whose cell it is for; empty: nobody's."""
    model_choice: str = ""
    """The candidate's parameter ``model``; empty: it has none, or the call is no target's."""
    keep: Keep | None = None
    """``None``: the whole answer is kept."""
    future: "asyncio.Future[CallOutcome]"
    n_asked: int = 0
    """Attempts made by this process."""
    n_tries: int = 0
    """Those of them that count as retries after faults, and the first."""
    n_throttled: int = 0
    """How often its endpoint said that it was too much, or had it held back."""
    asked_s: float = 0.0
    """Seconds that answers asked it to wait, over all attempts."""
    n_looks: int = 0
    """How often another process was found at the same call."""
    last: CallOutcome | None = None
    """How the last try failed."""
    place: Reservation | Exhausted | None = None
    """Its place in the budget, or why there is none; ``None``: it has not been taken yet."""

    @property
    def key(self) -> str:
        """The journal's key."""
        return self.intent.call_key


@dataclass(slots=True, eq=False)
class Lane:
    """A queue of calls with so many slots."""

    limit: int
    ready: deque[PendingCall] = field(default_factory=deque)
    slots: set["asyncio.Task[None]"] = field(default_factory=set)
    gates: set[EndpointLimiter | None] = field(default_factory=set)
    """Those of all calls that were ever queued here."""

    def postpone(self, gate: EndpointLimiter, candidates: Set[str]) -> bool:
        """Move a gate's calls for these candidates behind all others; return whether it has others."""
        mine = [call for call in self.ready if call.gate is gate]
        last = {call for call in mine if call.candidate_id in candidates}
        if last:
            kept = (call for call in self.ready if call not in last)
            self.ready = deque([*kept, *(call for call in mine if call in last)])
        return len(last) < len(mine)
