"""Pending calls: their intents, how they may end, and the lanes they wait in.

No secret and no clock is in it. The epoch is: a nightly run that was fed last night's answers
would never see drift, so by default answers are used again within their run alone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field
from typing import Literal

from convergence_core.budget.limits import Exhausted, Reservation
from convergence_core.config import CacheConfig
from convergence_core.errors import EvaluationFault, EvaluatorFault, InfrastructureFault
from convergence_core.ports import CallIntent
from convergence_core.records import Cell, Json, Reply, canonical_json, sha256_hex
from tasks.calls.metric_calls import PaidCall
from tasks.calls.outcomes import AttemptRecord, Redact, fault_of, reply_of
from tasks.calls.rate_limiter import EndpointLimiter
from tasks.http.clients import EndpointLimits
from tasks.secrets.redaction import redact_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Who shares answers with whom."""

    run_id: str
    cache: CacheConfig
    run_started_us: int
    """Ages are counted back from the beginning of the run, so a resume finds the same answers."""
    world: str = ""
    """Whose answers these are: the mock's never mix with those of real models."""

    def name(self, eval_id: str) -> str:
        """Return what goes into the keys of one evaluation's calls."""
        if self.cache.shared:
            return f"shared/{self.world}" if self.world else "shared"
        return self.run_id if self.cache.epoch == "run" else f"{self.run_id}/{eval_id}"

    @property
    def fresh_since_us(self) -> int | None:
        """End of the oldest answer that may be used; ``None`` for any age."""
        age_s = self.cache.max_age_s
        return None if age_s is None else self.run_started_us - int(age_s * 1e6)


def call_key(
    *, provider: str, request: Json, cell: Cell, purpose: str, vote: int, epoch: str
) -> str:
    """Return the journal's key of a call made for a cell.

    Fresh cells have keys of their own: an answer that the search has seen is no fresh one.

    Args:
        provider: short name, as in the tables.
        request: everything that is sent, base URL and model included, secrets not.
        cell: its case and its repeat are part of the key.
        purpose: the role that pays.
        vote: number of the vote of a judge; 0 for all others.
        epoch: see ``Epoch.name``.
    """
    return sha256_hex(
        canonical_json(
            {
                "provider": provider,
                "request": request,
                "case": cell.case_id,
                "repeat": [cell.repeat, vote] if vote else cell.repeat,
                "epoch": epoch,
                "purpose": f"{purpose}/fresh" if cell.role == "fresh" else purpose,
            }
        )
    )


TARGET_LANE = "evaluation"
JUDGE_LANE = "judge"
AGENT_LANE = "agent"
"""Calls that an evaluation makes while it holds a slot of the target's lane."""
THOUGHT_LANE = "thought"

LEASE_MARGIN_S = 180.0
"""How much longer than two time-outs (connecting, answering) a claim is held: a process may have to
start first."""

Keep = Callable[[Reply], Awaitable[Json]]
"""Turns an answer into what the journal keeps of it, where its text is not kept."""


@dataclass(slots=True, kw_only=True)
class CallOutcome:
    """How a call ended: by an answer, by a fault, or not at all."""

    record: AttemptRecord | None = None
    """The account in the ledger; ``None`` if no call was made."""
    stored: Json = None
    """What the journal keeps of an answer or of the candidate's fault."""
    reply: Reply | None = None
    """The answer as it came; ``None`` if it is in ``stored``, or there is none."""
    fault: EvaluationFault | None = None
    """The infrastructure's fault that retries did not heal."""
    unsent_reason: tuple[Literal["budget", "stopped"], str] | None = None

    def answer(self) -> Reply:
        """Return the answer.

        Raises:
            EvaluationFault: there is none.
        """
        if self.unsent_reason is not None:
            kind, reason = self.unsent_reason
            fault = EvaluatorFault if kind == "budget" else InfrastructureFault
            raise fault(reason, error_type=kind)
        if self.fault is not None:
            raise self.fault
        reply = self.reply or reply_of(self.stored)
        if reply is None:
            raise fault_of(self.stored)
        return reply


@dataclass(slots=True, eq=False, kw_only=True)
class PendingCall:
    """One call on its way."""

    lane: str
    paid: PaidCall
    intent: CallIntent
    request_text: str
    candidate_id: str = ""
    """Whose cell it is for; empty: no candidate's."""
    model_choice: str = ""
    """The candidate's parameter ``model``; empty: it has none, or the call is no target's."""
    is_control: bool = False
    """Whether it only shows that its endpoint answers; see ``Breaker``."""
    send: Callable[[], Awaitable[Reply]]
    keep: Keep | None = None
    """``None`` if the whole answer is kept."""
    future: "asyncio.Future[CallOutcome]" = field(init=False)
    """Done when the call has ended; made when it is queued."""
    limiter: EndpointLimiter | None = None
    """Of its endpoint; ``None`` if the call leaves no process, or passes none."""
    limits: EndpointLimits | None = None
    """What each of its requests waits for before it is sent; ``None``: nothing."""
    n_sent: int = 0
    """Attempts made by this process."""
    n_tries: int = 0
    """Those of them that count as retries after faults, and the first."""
    n_throttled: int = 0
    """How often its endpoint said that it was too much, or had it held back."""
    waits_s: float = 0.0
    """Seconds of requested waits (`Retry-After`), over all attempts."""
    n_busy: int = 0
    """How often another process was found at the same call."""
    last: CallOutcome | None = None
    """How the last try failed."""
    reservation: Reservation | Exhausted | None = None
    """Its part of the budget, or why there is none; ``None`` before the reservation."""

    @property
    def key(self) -> str:
        """The journal's key."""
        return self.intent.call_key

    @property
    def is_composed(self) -> bool:
        """Whether calls of its own pay for it."""
        return self.paid.compose is not None

    @property
    def endpoint(self) -> str | None:
        """Scheme and host of its request; see ``endpoint_of``."""
        return endpoint_of(self.paid.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The run of a session, and whether its texts are kept. Makes pending calls, in any thread."""

    run_id: str
    """Part of every call's key."""
    label: str | None = None
    """What `convergence resume` is to be given, for messages."""
    epoch: Epoch
    """Which stored answers are used again."""
    redact: Redact
    """Takes secrets out of a text; runs before anything is stored or scored."""
    keep_text: bool
    """Whether requests and answers are stored; without, only their metrics are."""

    def pending(
        self, paid: PaidCall, cell: Cell, *, lane: str, eval_id: str, generation: int | None
    ) -> PendingCall:
        """Return a call with its intent.

        Args:
            paid: the call.
            cell: its case and repeat are part of the key.
            lane: where it waits.
            eval_id: of the evaluation that pays.
            generation: whose ledger it stands in.
        """
        text = canonical_json(redact_json(paid.request, self.redact))
        key = call_key(
            provider=paid.provider,
            request=paid.request,
            cell=cell,
            # Answers of the target are shared, whoever asks for them.
            purpose=TARGET_LANE if lane == TARGET_LANE else paid.purpose,
            vote=paid.repeat,
            epoch=self.epoch.name(eval_id),
        )
        intent = CallIntent(
            call_key=key,
            run_id=self.run_id,
            generation=generation,
            eval_id=eval_id,
            purpose=paid.purpose,
            provider=paid.provider,
            model=paid.model,
            request_sha256=sha256_hex(text),
            lease_s=2 * paid.timeout_s + LEASE_MARGIN_S,
            max_usd=paid.worst.usd,
            max_tokens=paid.worst.tokens,
            fresh_since_us=self.epoch.fresh_since_us,
        )
        return PendingCall(
            lane=lane,
            paid=paid,
            intent=intent,
            request_text=text,
            candidate_id=cell.candidate_id,
            send=paid.send,
        )


def endpoint_of(request: Json) -> str | None:
    """Return where a request goes: scheme and host; ``None`` if it leaves no process."""
    url = (request.get("base_url") or request.get("url")) if isinstance(request, dict) else None
    if not isinstance(url, str):
        return None
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.split('/', 1)[0].split('?', 1)[0]}"


@dataclass(slots=True, eq=False)
class Lane:
    """A queue of calls with a number of slots."""

    n_slots: int
    ready: deque[PendingCall] = field(default_factory=deque)
    slots: set["asyncio.Task[None]"] = field(default_factory=set)
    limiters: set[EndpointLimiter | None] = field(default_factory=set)
    """Those of all calls that were ever queued here."""

    def postpone(self, limiter: EndpointLimiter, candidates: Set[str]) -> bool:
        """Move these candidates' calls of an endpoint to the end; return whether others wait."""
        waiting = [call for call in self.ready if call.limiter is limiter]
        last = [call for call in waiting if call.candidate_id in candidates]
        if last:
            moved = set(last)
            self.ready = deque([*(call for call in self.ready if call not in moved), *last])
        return len(last) < len(waiting)
