"""Pending calls: their intents, their outcomes and their lanes.

Call keys contain no secret and no clock, but an epoch. By default only evaluations of the same run
share answers: a nightly run with last night's answers would never see drift.
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
from convergence_core.records import Cell, Json, Reply, canonical_json, fields_of, sha256_hex
from tasks.calls.metric_calls import PaidCall
from tasks.calls.outcomes import AttemptRecord, Redact, fault_of, reply_of
from tasks.calls.rate_limiter import EndpointLimiter
from tasks.http.clients import EndpointLimits
from tasks.secrets.redaction import redact_json

TARGET_LANE = "evaluation"
JUDGE_LANE = "judge"
AGENT_LANE = "agent"
"""Lane of calls that an evaluation makes while it holds a slot of the target's lane."""
THOUGHT_LANE = "thought"

LEASE_MARGIN_S = 180.0
"""Seconds of a claim beyond two time-outs (connecting, answering), since a process may have to
start first.
"""

Keep = Callable[[Reply], Awaitable[Json]]
"""Converts an answer to its journal entry if its content is not kept."""


@dataclass(slots=True, kw_only=True)
class CallOutcome:
    """Outcome of a call: an answer, a fault, or no call."""

    record: AttemptRecord | None = None
    """Account in the ledger; ``None`` if no call was made."""
    stored: Json = None
    """Journal entry of an answer or of the candidate's fault."""
    reply: Reply | None = None
    """The original answer; ``None`` if it is only in ``stored``, or there is none."""
    fault: EvaluationFault | None = None
    """Infrastructure or evaluator fault after all retries."""
    unsent_reason: tuple[Literal["budget", "stopped"], str] | None = None

    def answer(self) -> Reply:
        """Return the answer.

        Raises:
            EvaluationFault: there is no answer.
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
    """A queued or running call."""

    lane: str
    paid: PaidCall
    intent: CallIntent
    request_text: str
    candidate_id: str = ""
    """Candidate of the cell. Empty if there is none."""
    model_choice: str = ""
    """The candidate's parameter ``model``. Empty if it has none, or the call is not the target's.
    """
    is_control: bool = False
    """Whether the call only tests that its endpoint answers; see ``Breaker``."""
    send: Callable[[], Awaitable[Reply]]
    keep: Keep | None = None
    """Conversion of the answer for the journal; ``None`` keeps the whole answer."""
    future: "asyncio.Future[CallOutcome]" = field(init=False)
    """Completes with the call; created when it is queued."""
    limiter: EndpointLimiter | None = None
    """Limiter of its endpoint; ``None`` if the call stays within the process, or needs none."""
    limits: EndpointLimits | None = None
    """Limits that each of its requests waits for; ``None`` if there are none."""
    n_sent: int = 0
    """Attempts made by this process."""
    n_tries: int = 0
    """The first attempt and the retries after faults."""
    n_throttled: int = 0
    """Number of rate limits and holds by its endpoint."""
    waits_s: float = 0.0
    """Seconds of requested waits (`Retry-After`), over all attempts."""
    n_busy: int = 0
    """Number of times that another process held the same call."""
    last: CallOutcome | None = None
    """Outcome of the last failed attempt."""
    reservation: Reservation | Exhausted | None = None
    """Reservation in the budget, or why there is none; ``None`` before the reservation."""

    @property
    def key(self) -> str:
        """The journal's key."""
        return self.intent.call_key

    @property
    def is_composed(self) -> bool:
        """Whether inner calls pay for it."""
        return self.paid.compose is not None

    @property
    def endpoint(self) -> str | None:
        """Scheme and host of its request; see ``endpoint_of``."""
        return endpoint_of(self.paid.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Run of a session and its privacy settings. Creates pending calls in any thread."""

    run_id: str
    """Run of the calls in the ledger."""
    label: str | None = None
    """Run for `convergence resume` in messages."""
    cache: CacheConfig
    """Rules of reusable answers."""
    payer: tuple[str, int]
    """Id and start (in microseconds) of the run whose answers are shared. Ages are measured from that
    start, so that a resumed run finds the same answers.
    """
    world: str = ""
    """Source of the answers, so that the mock's never mix with those of real models."""
    redact: Redact
    """Removes secrets from a string before storage and scoring."""
    keep_text: bool
    """Whether to store requests and answers; otherwise only their metrics are stored."""

    def epoch(self, eval_id: str) -> str:
        """Return the part of the keys of an evaluation's calls that says who shares their answers."""
        if self.cache.shared:
            return f"shared/{self.world}" if self.world else "shared"
        payer_id = self.payer[0]
        return payer_id if self.cache.epoch == "run" else f"{payer_id}/{eval_id}"

    @property
    def fresh_since_us(self) -> int | None:
        """End of the oldest answer that may be used; ``None`` for any age."""
        age_s = self.cache.max_age_s
        return None if age_s is None else self.payer[1] - int(age_s * 1e6)

    def pending(
        self, paid: PaidCall, cell: Cell, *, lane: str, eval_id: str, generation: int | None
    ) -> PendingCall:
        """Return a call with its intent.

        Args:
            paid: the call.
            cell: cell whose case and repeat are part of the key.
            lane: lane of the call.
            eval_id: id of the paying evaluation.
            generation: generation of the call in the ledger.
        """
        text = canonical_json(redact_json(paid.request, self.redact))
        # Answers of the target are shared between purposes; fresh cells have separate keys, because
        # an answer known to the search is not fresh.
        purpose = TARGET_LANE if lane == TARGET_LANE else paid.purpose
        key = {
            "provider": paid.provider,
            "request": paid.request,
            "case": cell.case_id,
            "repeat": [cell.repeat, paid.repeat] if paid.repeat else cell.repeat,
            "epoch": self.epoch(eval_id),
            "purpose": f"{purpose}/fresh" if cell.role == "fresh" else purpose,
        }
        intent = CallIntent(
            call_key=sha256_hex(canonical_json(key)),
            run_id=self.run_id,
            generation=generation,
            eval_id=eval_id,
            **fields_of(paid, "purpose", "provider", "model"),
            request_sha256=sha256_hex(text),
            lease_s=2 * paid.timeout_s + LEASE_MARGIN_S,
            max_usd=paid.worst.usd,
            max_tokens=paid.worst.tokens,
            fresh_since_us=self.fresh_since_us,
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
    """Return a request's endpoint, scheme and host; ``None`` if it stays within the process."""
    url = (request.get("base_url") or request.get("url")) if isinstance(request, dict) else None
    if not isinstance(url, str):
        return None
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.split('/', 1)[0].split('?', 1)[0]}"


@dataclass(slots=True, eq=False)
class Lane:
    """Queue of calls with a number of slots."""

    n_slots: int
    ready: deque[PendingCall] = field(default_factory=deque)
    slots: set["asyncio.Task[None]"] = field(default_factory=set)
    limiters: set[EndpointLimiter | None] = field(default_factory=set)
    """Limiters of all calls ever queued here."""

    def postpone(self, limiter: EndpointLimiter, candidates: Set[str]) -> bool:
        """Move these candidates' calls of an endpoint to the end; return whether others wait."""
        waiting = [call for call in self.ready if call.limiter is limiter]
        last = [call for call in waiting if call.candidate_id in candidates]
        if last:
            moved = set(last)
            self.ready = deque([*(call for call in self.ready if call not in moved), *last])
        return len(last) < len(waiting)
