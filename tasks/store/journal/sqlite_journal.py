"""``SqliteJournal``: every call that may cost money, claimed before it is made.

``calls`` holds one row per ``call_key`` with its answer, ``attempts`` one row per attempt and per
cache hit: the ledger. A hit by the evaluation that paid is the same evaluation asked again after
a kill, so it writes no row; a hit by another one is recorded as ``cached``, at cost 0 and 0 tokens,
with the run that paid. So a resumed run ends with the same ledger as the unbroken one.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw

from convergence_core.ports import (
    CallIntent,
    CallTotals,
    Claim,
    Journal,
    LostCall,
    Row,
    Settlement,
    StoredAnswer,
)
from tasks.store.clock import wall_clock_us
from tasks.store.journal.claims import LOSE, answer_of, claim_call, is_paid_by, look_up
from tasks.store.journal.ledger import (
    LEDGER,
    LEDGER_ORDER,
    LOST_COLUMNS,
    account,
    ledger_sql,
    lost_calls,
    totals_sql,
)
from tasks.store.journal.settlements import settle_attempt
from tasks.store.journal.sqlite import Closing, DurableDatabase
from tasks.store.tables.layout import JOURNAL_FILE, ensure_store, store_root

_TOTALS = totals_sql("attempts", "?")
_LEDGER = ledger_sql("attempts", "?")
_ACTIVE = "SELECT coalesce(sum(seen_us - started_us), 0) FROM activity WHERE run_id = ?"
_SEEN = (
    "INSERT INTO activity(run_id, owner, started_us, seen_us) VALUES (?, ?, ?, ?) "
    "ON CONFLICT(run_id, owner) DO UPDATE SET seen_us = max(seen_us, excluded.seen_us)"
)
_IN_FLIGHT = (
    f"SELECT {', '.join(LOST_COLUMNS)} FROM attempts "  # noqa: S608 - constants
    "WHERE run_id = ? AND state = 'started' ORDER BY started_us, call_key"
)
_ABANDON = (
    "UPDATE calls SET state = 'failed' WHERE state = 'started' AND call_key IN "
    "(SELECT call_key FROM attempts WHERE run_id = ? AND state = 'started')"
)


def open_journal(
    path: Path | str, url: str | None = None, *, now_us: Callable[[], int] | None = None
) -> Journal:
    """Open the journal of a store.

    Args:
        path: root folder of the store.
        url: ``postgresql://`` URL of a journal that several machines share; ``None``: the journal
            is a file of the store.
        now_us: clock for leases; by default this machine's for a file, the server's for Postgres.

    Raises:
        StoreError: it cannot be opened; the message holds no password.
    """
    if url is None:
        return SqliteJournal(path, now_us=now_us or wall_clock_us)
    from tasks.store.journal.postgres_journal import PostgresJournal  # noqa: PLC0415 - optional

    return PostgresJournal(url, now_us=now_us)


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

        An answered key is a hit, unless its answer ended before ``fresh_since_us`` and this
        evaluation was never given it; a key under a live lease is busy, its own owner's included;
        a key whose lease has expired is granted again and its old attempt counted as lost.

        Raises:
            StoreWriteError: nothing was claimed.
        """
        hits = self._pure_hits(intents)
        if hits is not None:
            return hits
        now = self._now_us()
        with self._database.transaction() as connection:
            claims = [claim_call(connection, intent, owner, now) for intent in intents]
            _note_activity(connection, {(intent.run_id, owner) for intent in intents}, now)
        return claims

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record how attempts ended, in one durable transaction.

        The first ``done`` of a key wins until it is found too old. ``error_type`` and the text
        kept of a failed attempt come from its outcome. Settling an attempt again changes nothing.

        Raises:
            ValueError: an attempt was never granted; nothing is recorded.
            StoreWriteError: nothing is recorded.
        """
        if not settlements:
            return
        now = self._now_us()
        with self._database.transaction() as connection:
            settled = {settle_attempt(connection, settlement) for settlement in settlements}
            _note_activity(connection, {who for who in settled if who is not None}, now)

    def answers(self, call_keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Return the stored ``done`` outcomes among these keys; claims and writes nothing.

        However old: whoever asks can see when they ended and who paid.
        """
        found: dict[str, StoredAnswer] = {}
        with self._database.reading() as connection:
            for key in call_keys:
                call = look_up(connection, key)
                answer = None if call is None else answer_of(connection, call)
                if answer is not None:
                    found[key] = answer
        return found

    def totals(self, run_id: str, *, before_generation: int | None = None) -> CallTotals:
        """Return the account of a run; with ``before_generation`` only of earlier generations.

        ``active_s`` is that of the whole run.
        """
        earlier = "" if before_generation is None else " AND generation < ?"
        values = (run_id,) if before_generation is None else (run_id, before_generation)
        with self._database.reading() as connection:
            row = connection.execute(_TOTALS + earlier, values).fetchall()[0]
            active: Any = connection.execute(_ACTIVE, (run_id,)).fetchone()
        return account(row, active[0])

    def abandon(self, run_id: str) -> list[LostCall]:
        """Release the claims of a run whose process is known to be dead; return them by age.

        Their attempts are ``failed`` with error type ``lost`` from then on, and what they may
        have cost is in ``maybe_usd``.

        Raises:
            StoreWriteError: nothing was released.
        """
        with self._database.reading() as connection:
            if not _in_flight(connection, run_id):
                return []
        with self._database.transaction() as connection:
            lost = _in_flight(connection, run_id)
            connection.execute(_ABANDON, (run_id,))
            connection.execute(f"{LOSE}run_id = ?", (run_id,))
        return lost

    def attempts(
        self, run_id: str, *, generation: int | None, all_generations: bool = False
    ) -> list[Row]:
        """Return the ledger rows of one generation (``None``: those outside any), by key."""
        one = "" if all_generations else "AND generation IS ?"
        values = (run_id,) if all_generations else (run_id, generation)
        with self._database.reading() as connection:
            cursor = connection.execute(f"{_LEDGER} {one} {LEDGER_ORDER}", values)
            return [dict(zip(LEDGER, row, strict=True)) for row in cursor]

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._database.close()

    def _pure_hits(self, intents: Sequence[CallIntent]) -> list[Claim] | None:
        """Return the claims if all are hits that need no ledger row, else ``None``."""
        hits = []
        with self._database.reading() as connection:
            for intent in intents:
                call = look_up(connection, intent.call_key)
                answer = None if call is None else answer_of(connection, call)
                if answer is None or not is_paid_by(answer, intent):
                    return None
                hits.append(Claim(state="hit", answer=answer))
        return hits


def _note_activity(
    connection: apsw.Connection, workers: Iterable[tuple[str, str]], now: int
) -> None:
    """Remember until when each (run, owner) was at work, in a transaction made anyway."""
    for run_id, owner in workers:
        connection.execute(_SEEN, (run_id, owner, now, now))


def _in_flight(connection: apsw.Connection, run_id: str) -> list[LostCall]:
    return lost_calls(connection.execute(_IN_FLIGHT, (run_id,)).fetchall())
