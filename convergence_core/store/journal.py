"""``SqliteJournal``: every call that may cost money, claimed before it is made.

``calls`` holds one row per ``call_key`` with its answer, ``attempts`` one row per attempt and per
cache hit: the ledger. A hit by the evaluation that paid is the same evaluation asked again after
a kill, so it writes no row; a hit by another one is recorded as ``cached``, at cost 0. So a
resumed run ends with the same ledger as the unbroken one.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from convergence_core.records import Json, canonical_json
from convergence_core.store.layout import JOURNAL_FILE, ensure_store, store_root
from convergence_core.store.protocols import (
    Answer,
    CallIntent,
    CallTotals,
    Claim,
    Row,
    Settlement,
)
from convergence_core.store.sqlite import Closing, DurableDatabase

# Two look-ups by key: joined, they take SQLite three times as long.
_CALL = (
    "SELECT state, lease_us, latest_id, coalesce(answer_id, latest_id), outcome FROM calls "
    "WHERE call_key = ?"
)
_PAYER = (
    "SELECT run_id, eval_id, attempt, cost_usd, tokens_in, tokens_out, started_us, ended_us "
    "FROM attempts WHERE id = ?"
)
_NEW_ATTEMPT = (
    "INSERT INTO attempts(call_key, attempt, run_id, eval_id, purpose, generation, provider, "
    "model, state, previous_id, max_usd, started_us) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'started', ?, ?, ?)"
)
_CACHE_HIT = (
    "INSERT OR IGNORE INTO attempts(call_key, attempt, run_id, eval_id, purpose, generation, "
    "provider, model, state, cost_usd, started_us, ended_us) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'cached', 0.0, ?, ?)"
)
_GRANT = (
    "INSERT INTO calls(call_key, state, owner, lease_us, latest_id, request_sha256) "
    "VALUES (?, 'started', ?, ?, ?, ?) ON CONFLICT(call_key) DO UPDATE SET state = 'started', "
    "owner = excluded.owner, lease_us = excluded.lease_us, latest_id = excluded.latest_id"
)
# `lost`: its process died, or its lease ran out, before anybody could say how it ended.
_LOSE = (
    "UPDATE attempts SET state = 'failed', error_type = 'lost', "
    "maybe_usd = coalesce(max_usd, 0) WHERE state = 'started' AND "
)
_LATEST = "SELECT latest_id FROM calls WHERE call_key = ?"
_ATTEMPT = "SELECT attempt, previous_id, state, error_type FROM attempts WHERE id = ?"
_SETTLE_ATTEMPT = (
    "UPDATE attempts SET state = ?, error_type = ?, error = ?, tokens_in = ?, tokens_out = ?, "
    "cost_usd = ?, maybe_usd = ?, model = coalesce(?, model), started_us = ?, ended_us = ? "
    "WHERE id = ?"
)
_SETTLE_DONE = (
    "UPDATE calls SET state = 'done', outcome = ?, answer_id = ? "
    "WHERE call_key = ? AND state <> 'done'"
)
_SETTLE_FAILED = (
    "UPDATE calls SET state = 'failed' WHERE call_key = ? AND latest_id = ? AND state = 'started'"
)
_ABANDON = (
    "UPDATE calls SET state = 'failed' WHERE state = 'started' AND call_key IN "
    "(SELECT call_key FROM attempts WHERE run_id = ? AND state = 'started')"
)
_TOTALS = (
    "SELECT count(*), count(*) FILTER (WHERE state = 'done'), "
    "count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'started'), "
    "sum(cost_usd), count(*) FILTER (WHERE state = 'done' AND cost_usd IS NULL), "
    "total(CASE WHEN state = 'started' THEN coalesce(max_usd, 0) ELSE maybe_usd END) "
    "FROM attempts WHERE run_id = ? AND state <> 'cached'"
)
_LEDGER = (
    "run_id",
    "generation",
    "eval_id",
    "call_key",
    "attempt",
    "purpose",
    "provider",
    "model",
    "state",
    "error_type",
    "tokens_in",
    "tokens_out",
    "cost_usd",
    "maybe_usd",
    "started_at",
    "ended_at",
)


def wall_clock_us() -> int:
    """Return the time in microseconds since the epoch."""
    return time.time_ns() // 1_000


class SqliteJournal(Closing):
    """The ``Journal`` on a local disk, shared by processes of one machine. Thread-safe."""

    def __init__(self, path: Path | str, *, now_us: Callable[[], int] = wall_clock_us) -> None:
        """Open the journal of the store whose root folder is ``path``, creating both.

        Args:
            path: root folder of the store.
            now_us: clock for leases.

        Raises:
            StoreFormatError: the folder is no store, or of a newer version.
            StoreDamagedError: the file is no journal.
            StoreWriteError: it cannot be created or written.
        """
        root = store_root(path)
        ensure_store(root)
        self._database = DurableDatabase(root / JOURNAL_FILE)
        self._now_us = now_us

    def claim(self, intents: Sequence[CallIntent], owner: str) -> list[Claim]:
        """Claim calls, in order, in one durable transaction.

        A ``done`` key is a hit; a key under a live lease is busy, its own owner's included; a
        key whose lease has expired is granted again and its old attempt counted as lost.

        Raises:
            StoreWriteError: nothing was claimed.
        """
        hits = self._pure_hits(intents)
        if hits is not None:
            return hits
        now = self._now_us()
        with self._database.transaction() as connection:
            return [_claim(connection, intent, owner, now) for intent in intents]

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record how attempts ended, in one durable transaction.

        The first ``done`` of a key wins. ``error_type`` and the text kept of a failed attempt
        come from its outcome. Settling an attempt again changes nothing.

        Raises:
            ValueError: an attempt was never granted; nothing is recorded.
            StoreWriteError: nothing is recorded.
        """
        if not settlements:
            return
        with self._database.transaction() as connection:
            for settlement in settlements:
                _settle(connection, settlement)

    def answers(self, call_keys: Sequence[str]) -> dict[str, Answer]:
        """Return the stored ``done`` outcomes among these keys; claims and writes nothing."""
        found: dict[str, Answer] = {}
        with self._database.reading() as connection:
            for key in call_keys:
                call = _look_up(connection, key)
                if call is not None and call.state == "done":
                    found[key] = call.answer()
        return found

    def totals(self, run_id: str, *, before_generation: int | None = None) -> CallTotals:
        """Return the account of a run; with ``before_generation`` only of earlier generations."""
        with self._database.reading() as connection:
            if before_generation is None:
                row = connection.execute(_TOTALS, (run_id,)).fetchone()
            else:
                sql = f"{_TOTALS} AND generation < ?"
                row = connection.execute(sql, (run_id, before_generation)).fetchone()
        assert row is not None, "an aggregate has one row"  # noqa: S101
        n_attempts, n_done, n_failed, n_in_flight, cost_usd, n_unpriced, maybe_usd = row
        if cost_usd is None and not n_unpriced:
            cost_usd = 0.0
        return CallTotals(
            n_attempts=n_attempts,
            n_done=n_done,
            n_failed=n_failed,
            n_in_flight=n_in_flight,
            cost_usd=cost_usd,
            maybe_usd=maybe_usd,
        )

    def abandon(self, run_id: str) -> int:
        """Release the claims of a run whose process is known to be dead; return how many.

        Their attempts are ``failed`` with error type ``lost`` from then on, and what they may
        have cost is in ``maybe_usd``.

        Raises:
            StoreWriteError: nothing was released.
        """
        with self._database.reading() as connection:
            query = "SELECT count(*) FROM attempts WHERE run_id = ? AND state = 'started'"
            if connection.execute(query, (run_id,)).fetchone() == (0,):
                return 0
        with self._database.transaction() as connection:
            connection.execute(_ABANDON, (run_id,))
            connection.execute(f"{_LOSE}run_id = ?", (run_id,))
            return connection.changes()

    def attempts(
        self, run_id: str, *, generation: int | None, all_generations: bool = False
    ) -> list[Row]:
        """Return the ledger rows of one generation (``None``: those outside any), by key."""
        sql = (
            "SELECT run_id, generation, nullif(eval_id, ''), call_key, attempt, purpose, "
            "provider, model, state, error_type, tokens_in, tokens_out, cost_usd, maybe_usd, "
            "started_us, ended_us FROM attempts WHERE run_id = ?"
        )
        order = " ORDER BY generation, call_key, attempt, eval_id, purpose"
        with self._database.reading() as connection:
            if all_generations:
                cursor = connection.execute(sql + order, (run_id,))
            else:
                cursor = connection.execute(
                    f"{sql} AND generation IS ?{order}", (run_id, generation)
                )
            return [dict(zip(_LEDGER, row, strict=True)) for row in cursor]

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._database.close()

    def _pure_hits(self, intents: Sequence[CallIntent]) -> list[Claim] | None:
        """Return the claims if all are hits that need no ledger row, else ``None``."""
        hits = []
        with self._database.reading() as connection:
            for intent in intents:
                call = _look_up(connection, intent.call_key)
                if call is None or call.state != "done" or not call.was_paid_by(intent):
                    return None
                hits.append(Claim(state="hit", answer=call.answer()))
        return hits


class _Call(NamedTuple):
    """A known call and the attempt that answered it, or else its latest."""

    state: str
    lease_us: int
    latest_id: int
    outcome: str | None
    run_id: str
    eval_id: str | None
    attempt: int
    cost_usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    started_us: int
    ended_us: int

    def was_paid_by(self, intent: CallIntent) -> bool:
        return (intent.run_id, intent.eval_id) == (self.run_id, self.eval_id)

    def answer(self) -> Answer:
        return Answer(
            outcome=json.loads(str(self.outcome)),
            started_us=self.started_us,
            ended_us=self.ended_us,
            attempt=self.attempt,
            eval_id=self.eval_id,
            cost_usd=self.cost_usd,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
        )


def _look_up(connection: apsw.Connection, call_key: str) -> _Call | None:
    row = connection.execute(_CALL, (call_key,)).fetchone()
    if row is None:
        return None
    state, lease_us, latest_id, payer_id, outcome = row
    payer = connection.execute(_PAYER, (payer_id,)).fetchone()
    assert payer is not None, "written in the same transaction"  # noqa: S101
    run_id, eval_id, *rest = payer
    return _Call(state, lease_us, latest_id, outcome, run_id, eval_id or None, *rest)


def _claim(connection: apsw.Connection, intent: CallIntent, owner: str, now: int) -> Claim:
    call = _look_up(connection, intent.call_key)
    latest_id, attempt = (None, 1) if call is None else (call.latest_id, call.attempt + 1)
    if call is not None and call.state == "done":
        if not call.was_paid_by(intent):
            _record(connection, _CACHE_HIT, intent, call.attempt, (now, now))
        return Claim(state="hit", answer=call.answer())
    if call is not None and call.state == "started":
        if call.lease_us > now:
            return Claim(state="busy")
        connection.execute(f"{_LOSE}id = ?", (latest_id,))
    _record(connection, _NEW_ATTEMPT, intent, attempt, (latest_id, intent.max_usd, now))
    lease_us = now + int(intent.lease_s * 1e6)
    attempt_id = connection.last_insert_rowid()
    connection.execute(
        _GRANT, (intent.call_key, owner, lease_us, attempt_id, intent.request_sha256)
    )
    return Claim(state="granted", attempt=attempt)


def _record(
    connection: apsw.Connection,
    sql: str,
    intent: CallIntent,
    attempt: int,
    rest: tuple[float | int | None, ...],
) -> None:
    connection.execute(
        sql,
        (
            intent.call_key,
            attempt,
            intent.run_id,
            intent.eval_id or "",
            intent.purpose,
            intent.generation,
            intent.provider,
            intent.model,
            *rest,
        ),
    )


def _settle(connection: apsw.Connection, settlement: Settlement) -> None:
    attempt_id, is_open = _granted(connection, settlement.call_key, settlement.attempt)
    if not is_open:
        return
    outcome = _outcome_text(settlement.outcome)
    done = settlement.state == "done"
    connection.execute(
        _SETTLE_ATTEMPT,
        (
            settlement.state,
            None if done else _error_type(settlement.outcome),
            None if done else outcome,
            settlement.tokens_in,
            settlement.tokens_out,
            settlement.cost_usd,
            settlement.maybe_usd,
            _utf8(settlement.model),
            settlement.started_us,
            settlement.ended_us,
            attempt_id,
        ),
    )
    if done:
        connection.execute(_SETTLE_DONE, (outcome, attempt_id, settlement.call_key))
    else:
        connection.execute(_SETTLE_FAILED, (settlement.call_key, attempt_id))


def _granted(connection: apsw.Connection, call_key: str, attempt: int) -> tuple[int, bool]:
    """Return an attempt's row id and whether it may still be settled.

    A late answer of an attempt given up for lost still counts, and its price is known now.
    """
    found = connection.execute(_LATEST, (call_key,)).fetchone()
    attempt_id = None if found is None else found[0]
    while attempt_id is not None:
        row = connection.execute(_ATTEMPT, (attempt_id,)).fetchone()
        assert row is not None, "written in the same transaction"  # noqa: S101
        number, previous_id, state, error_type = row
        if number == attempt:
            return attempt_id, state == "started" or (state, error_type) == ("failed", "lost")
        attempt_id = previous_id
    raise ValueError(f"attempt {attempt} of call {call_key} was never granted")


def _error_type(outcome: Json) -> str | None:
    found = outcome.get("error_type") if isinstance(outcome, dict) else None
    return _utf8(found) if isinstance(found, str) else None


def _outcome_text(outcome: Json) -> str:
    text = canonical_json(outcome)
    if _utf8(text) != text:  # a lone surrogate: JSON can carry it, UTF-8 cannot
        text = json.dumps(outcome, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text


def _utf8(text: str | None) -> str | None:
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")
