"""A journal in memory that keeps the protocol's promises, for tests of what uses one."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from convergence_core.records import canonical_json
from convergence_core.store.protocols import (
    Answer,
    CallIntent,
    CallTotals,
    Claim,
    Row,
    Settlement,
)


@dataclass
class _Call:
    intent: CallIntent
    owner: str
    state: str = "started"
    attempt: int = 1
    answer: Answer | None = None


@dataclass
class MemoryJournal:
    """Claims and settlements of one process."""

    on_batch: Callable[[str, int], None] | None = None
    """Told of each batch: its kind and size."""
    calls: dict[str, _Call] = field(default_factory=dict)
    ledger: list[dict[str, object]] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    """Every text that was written."""
    most_in_flight: int = 0
    error: Exception | None = None
    """Raised by the next batch, as a full disk would."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def claim(self, intents: Sequence[CallIntent], owner: str) -> list[Claim]:
        with self._lock:
            self._begin("claim", len(intents))
            return [self._claim(intent, owner) for intent in intents]

    def _begin(self, kind: str, size: int) -> None:
        if self.error is not None:
            raise self.error
        if self.on_batch is not None:
            self.on_batch(kind, size)

    def _claim(self, intent: CallIntent, owner: str) -> Claim:
        self.stored.append(repr(intent))
        call = self.calls.get(intent.call_key)
        if call is not None and call.state == "done":
            return Claim(state="hit", answer=call.answer)
        if call is not None and call.state == "started":
            return Claim(state="busy")
        attempt = 1 if call is None else call.attempt + 1
        self.calls[intent.call_key] = _Call(intent, owner, attempt=attempt)
        self.ledger.append({"call_key": intent.call_key, "attempt": attempt, "state": "started"})
        in_flight = sum(call.state == "started" for call in self.calls.values())
        self.most_in_flight = max(self.most_in_flight, in_flight)
        return Claim(state="granted", attempt=attempt)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        with self._lock:
            self._begin("settle", len(settlements))
            for settlement in settlements:
                self._settle(settlement)

    def _settle(self, settlement: Settlement) -> None:
        text = canonical_json(settlement.outcome)
        self.stored.append(text)
        call = self.calls[settlement.call_key]
        for row in self.ledger:
            if (row["call_key"], row["attempt"]) == (settlement.call_key, settlement.attempt):
                row["state"] = settlement.state
        if call.state == "done":
            return
        call.state = settlement.state
        if settlement.state == "done":
            call.answer = Answer(
                outcome=json.loads(text),
                started_us=settlement.started_us,
                ended_us=settlement.ended_us,
                attempt=settlement.attempt,
                eval_id=call.intent.eval_id,
                cost_usd=settlement.cost_usd,
                tokens_in=settlement.tokens_in,
                tokens_out=settlement.tokens_out,
            )

    def answers(self, call_keys: Sequence[str]) -> dict[str, Answer]:
        with self._lock:
            self._begin("answers", len(call_keys))
            found = {key: self.calls[key].answer for key in call_keys if key in self.calls}
            return {key: answer for key, answer in found.items() if answer is not None}

    def totals(self, run_id: str, *, before_generation: int | None = None) -> CallTotals:
        states = [str(row["state"]) for row in self.ledger]
        return CallTotals(
            n_attempts=len(states),
            n_done=states.count("done"),
            n_failed=states.count("failed"),
            n_in_flight=states.count("started"),
        )

    def abandon(self, run_id: str) -> int:
        started = [call for call in self.calls.values() if call.state == "started"]
        for call in started:
            call.state = "failed"
        return len(started)

    def attempts(
        self, run_id: str, *, generation: int | None, all_generations: bool = False
    ) -> list[Row]:
        return [dict(row) for row in self.ledger]

    def close(self) -> None:
        return None
