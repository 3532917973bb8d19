"""A journal in memory that keeps the protocol's promises, for tests of what uses one."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from convergence_core.ports import (
    CallIntent,
    CallTotals,
    Claim,
    LostCall,
    Row,
    Settlement,
    StoredAnswer,
)
from convergence_core.records import NO_USAGE, Json, Usage, canonical_json

NOTHING_USED = Usage(
    prompt_tokens=0, completion_tokens=0, cached_tokens=0, cache_write_tokens=0, reasoning_tokens=0
)


@dataclass
class _Attempt:
    intent: CallIntent
    owner: str
    number: int
    lease_us: int
    started_us: int
    state: str = "started"
    error_type: str | None = None
    ended_us: int | None = None
    cost_usd: float | None = None
    maybe_usd: float = 0.0
    maybe_tokens: int = 0
    usage: Usage = NO_USAGE
    price_version: str | None = None
    model: str | None = None
    payer_run_id: str | None = None
    outcome: Json = None

    @property
    def is_unknown(self) -> bool:
        """Whether nobody saw its end."""
        return self.state == "started" or self.error_type == "lost"

    @property
    def n_untold(self) -> int:
        """Tokens that it may have used beyond those that it reported."""
        if None not in {self.usage.prompt_tokens, self.usage.completion_tokens}:
            return 0
        return max(0, (self.intent.max_tokens or 0) - (self.usage.total or 0))

    def is_of(self, intent: CallIntent) -> bool:
        return (self.intent.run_id, self.intent.eval_id) == (intent.run_id, intent.eval_id)

    def answer(self) -> StoredAnswer:
        assert self.ended_us is not None
        return StoredAnswer(
            outcome=self.outcome,
            started_us=self.started_us,
            ended_us=self.ended_us,
            attempt=self.number,
            run_id=self.intent.run_id,
            eval_id=self.intent.eval_id,
            cost_usd=self.cost_usd,
            usage=self.usage,
        )

    def lose(self) -> None:
        self.state, self.error_type = "failed", "lost"
        self.maybe_usd = self.intent.max_usd or 0.0
        self.maybe_tokens = self.intent.max_tokens or 0


@dataclass
class _Call:
    attempts: list[_Attempt] = field(default_factory=list)
    state: str = "new"
    current: _Attempt | None = None
    """The attempt whose answer is the call's."""
    given: dict[tuple[str, str | None, str], _Attempt] = field(default_factory=dict)


@dataclass
class MemoryJournal:
    """Claims and settlements of one process."""

    on_batch: Callable[[str, int], None] | None = None
    """Told of each batch: its kind and size."""
    now_us: Callable[[], int] = lambda: 1
    calls: dict[str, _Call] = field(default_factory=dict)
    hits: list[_Attempt] = field(default_factory=list)
    activity: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    """Every text that was written."""
    most_in_flight: int = 0
    error: Exception | None = None
    """Raised by the next batch, as a full disk would."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def ledger(self) -> list[Row]:
        """Every attempt, in the order of their calls; no hits."""
        return [_row(attempt) for call in self.calls.values() for attempt in call.attempts]

    def claim(self, intents: Sequence[CallIntent], owner: str) -> list[Claim]:
        with self._lock:
            self._begin("claim", len(intents))
            claims = [self._claim(intent, owner) for intent in intents]
            for intent in intents:
                self._seen(intent.run_id, owner)
            return claims

    def _begin(self, kind: str, size: int) -> None:
        if self.error is not None:
            raise self.error
        if self.on_batch is not None:
            self.on_batch(kind, size)

    def _seen(self, run_id: str, owner: str) -> None:
        now = self.now_us()
        started, seen = self.activity.get((run_id, owner), (now, now))
        self.activity[run_id, owner] = (started, max(seen, now))

    def _claim(self, intent: CallIntent, owner: str) -> Claim:
        self.stored.append(repr(intent))
        now = self.now_us()
        call = self.calls.setdefault(intent.call_key, _Call())
        paid = self._usable(call, intent, now)
        if paid is not None:
            return Claim(state="hit", answer=paid.answer())
        if call.state == "started":
            latest = call.attempts[-1]
            if latest.lease_us > now:
                return Claim(state="busy")
            latest.lose()
        number = len(call.attempts) + 1
        lease_us = now + int(intent.lease_s * 1e6)
        call.attempts.append(_Attempt(intent, owner, number, lease_us, now, model=intent.model))
        call.state = "started"
        in_flight = sum(call.state == "started" for call in self.calls.values())
        self.most_in_flight = max(self.most_in_flight, in_flight)
        return Claim(state="granted", attempt=number)

    def _usable(self, call: _Call, intent: CallIntent, now: int) -> _Attempt | None:
        current = call.current
        if current is None or current.is_of(intent):
            return current
        for attempt in reversed(call.attempts):
            if attempt.state == "done" and attempt.is_of(intent):
                return attempt
        who = (intent.run_id, intent.eval_id, intent.purpose)
        if who in call.given:
            return call.given[who]
        assert current.ended_us is not None
        if intent.fresh_since_us is not None and current.ended_us < intent.fresh_since_us:
            return None
        call.given[who] = current
        hit = _Attempt(intent, "", current.number, 0, now, "cached", ended_us=now)
        hit.cost_usd, hit.usage = 0.0, NOTHING_USED
        hit.model, hit.payer_run_id = intent.model, current.intent.run_id
        self.hits.append(hit)
        return current

    def settle(self, settlements: Sequence[Settlement]) -> None:
        with self._lock:
            self._begin("settle", len(settlements))
            for settlement in settlements:
                call = self.calls.get(settlement.call_key)
                if call is None or not 0 < settlement.attempt <= len(call.attempts):
                    key, attempt = settlement.call_key, settlement.attempt
                    raise ValueError(f"attempt {attempt} of call {key} was never granted")
            for settlement in settlements:
                self._settle(self.calls[settlement.call_key], settlement)

    def _settle(self, call: _Call, settlement: Settlement) -> None:
        text = canonical_json(settlement.outcome)
        self.stored.append(text)
        attempt = call.attempts[settlement.attempt - 1]
        is_latest = attempt is call.attempts[-1]
        if is_latest:
            self._seen(attempt.intent.run_id, attempt.owner)
        if not attempt.is_unknown:
            return
        attempt.state = settlement.state
        attempt.outcome = outcome = json.loads(text)
        attempt.error_type = None
        if settlement.state == "failed" and isinstance(outcome, dict):
            attempt.error_type = outcome.get("error_type")
        attempt.started_us, attempt.ended_us = settlement.started_us, settlement.ended_us
        attempt.cost_usd, attempt.usage = settlement.cost_usd, settlement.usage
        attempt.maybe_usd, attempt.maybe_tokens = settlement.maybe_usd, settlement.maybe_tokens
        attempt.price_version = settlement.price_version
        attempt.model = settlement.model or attempt.model
        if settlement.state == "done":
            if call.state != "done":
                call.state, call.current = "done", attempt
        elif is_latest and call.state == "started":
            call.state = "failed"

    def answers(self, call_keys: Sequence[str]) -> dict[str, StoredAnswer]:
        with self._lock:
            self._begin("answers", len(call_keys))
            found = {key: self.calls[key].current for key in call_keys if key in self.calls}
            return {key: paid.answer() for key, paid in found.items() if paid is not None}

    def totals(self, run_id: str, *, before_generation: int | None = None) -> CallTotals:
        attempts = [
            attempt
            for attempt in self._attempts(run_id)
            if before_generation is None
            or (
                attempt.intent.generation is not None
                and attempt.intent.generation < before_generation
            )
        ]
        states = [attempt.state for attempt in attempts]
        costs = [attempt.cost_usd for attempt in attempts if attempt.cost_usd is not None]
        unpriced = [
            attempt
            for attempt in attempts
            if attempt.cost_usd is None
            and (
                attempt.state == "done"
                or (attempt.state == "failed" and attempt.usage.total is not None)
            )
        ]
        n_unpriced = len(unpriced)
        started = [attempt.intent for attempt in attempts if attempt.state == "started"]
        ended = [attempt for attempt in attempts if attempt.state != "started"]
        times = [span for (run, _), span in self.activity.items() if run == run_id]
        return CallTotals(
            n_attempts=len(states),
            n_done=states.count("done"),
            n_failed=states.count("failed"),
            n_in_flight=states.count("started"),
            cost_usd=sum(costs) if costs or not n_unpriced else None,
            maybe_usd=sum(i.max_usd or 0.0 for i in started) + sum(a.maybe_usd for a in ended),
            n_unpriced=n_unpriced,
            unpriced_usd=sum(a.intent.max_usd or 0.0 for a in unpriced),
            unpriced_tokens=sum(a.n_untold for a in unpriced),
            tokens=sum(attempt.usage.total or 0 for attempt in attempts),
            maybe_tokens=sum(i.max_tokens or 0 for i in started)
            + sum(a.maybe_tokens for a in ended),
            active_s=sum(seen - start for start, seen in times) / 1e6,
        )

    def _attempts(self, run_id: str) -> list[_Attempt]:
        attempts = [attempt for call in self.calls.values() for attempt in call.attempts]
        return [attempt for attempt in attempts if attempt.intent.run_id == run_id]

    def abandon(self, run_id: str) -> list[LostCall]:
        lost = [attempt for attempt in self._attempts(run_id) if attempt.state == "started"]
        for attempt in lost:
            attempt.lose()
            self.calls[attempt.intent.call_key].state = "failed"
        lost.sort(key=lambda attempt: (attempt.started_us, attempt.intent.call_key))
        return [
            LostCall(
                call_key=attempt.intent.call_key,
                attempt=attempt.number,
                purpose=attempt.intent.purpose,
                provider=attempt.intent.provider,
                model=attempt.model,
                started_us=attempt.started_us,
                max_usd=attempt.intent.max_usd,
            )
            for attempt in lost
        ]

    def attempts(
        self, run_id: str, *, generation: int | None, all_generations: bool = False
    ) -> list[Row]:
        hits = [hit for hit in self.hits if hit.intent.run_id == run_id]
        chosen = [
            attempt
            for attempt in [*self._attempts(run_id), *hits]
            if all_generations or attempt.intent.generation == generation
        ]
        chosen.sort(key=_order)
        return [_row(attempt) for attempt in chosen]

    def close(self) -> None:
        return None


def _order(attempt: _Attempt) -> tuple[int, str, int, str, str]:
    intent = attempt.intent
    generation = -1 if intent.generation is None else intent.generation
    return generation, intent.call_key, attempt.number, intent.eval_id or "", intent.purpose


def _row(attempt: _Attempt) -> Row:
    intent = attempt.intent
    return {
        "run_id": intent.run_id,
        "generation": intent.generation,
        "eval_id": intent.eval_id,
        "call_key": intent.call_key,
        "attempt": attempt.number,
        "purpose": intent.purpose,
        "provider": intent.provider,
        "model": attempt.model,
        "state": attempt.state,
        "error_type": attempt.error_type,
        "tokens_in": attempt.usage.prompt_tokens,
        "tokens_out": attempt.usage.completion_tokens,
        "cached_tokens": attempt.usage.cached_tokens,
        "cache_write_tokens": attempt.usage.cache_write_tokens,
        "reasoning_tokens": attempt.usage.reasoning_tokens,
        "cost_usd": attempt.cost_usd,
        "price_version": attempt.price_version,
        "max_usd": intent.max_usd if attempt.state != "cached" else None,
        "maybe_usd": intent.max_usd if attempt.is_unknown else attempt.maybe_usd,
        "maybe_tokens": intent.max_tokens if attempt.is_unknown else attempt.maybe_tokens,
        "payer_run_id": attempt.payer_run_id,
        "started_at": attempt.started_us,
        "ended_at": attempt.ended_us,
    }
