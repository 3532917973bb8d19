"""Every journal there is, and short ways to ask one: for the contract that all must keep.

A new implementation joins ``JOURNALS``.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from convergence_core.ports import CallIntent, Settlement
from convergence_core.records import Usage
from tasks.store.journal.postgres_journal import PostgresJournal
from tasks.store.journal.sql_journal import Journal
from tasks.store.journal.sqlite_journal import SqliteJournal
from tests.store.postgres_server import postgres_server

USED = Usage(
    prompt_tokens=30,
    cached_tokens=20,
    cache_write_tokens=5,
    completion_tokens=4,
    reasoning_tokens=3,
)


class Clock:
    """Microseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_us = 1_000_000

    def __call__(self) -> int:
        return self.now_us


Open = Callable[[], Journal]
"""Opens the same journal again, as another process would."""


def in_sqlite(path: Path, clock: Clock) -> Open:
    return lambda: SqliteJournal(path / "store", now_us=clock)


def in_postgres(path: Path, clock: Clock) -> Open:
    url = postgres_server().new_schema()
    return lambda: PostgresJournal(url, now_us=clock)


JOURNALS: dict[str, tuple[type, Callable[[Path, Clock], Open]]] = {
    "sqlite": (SqliteJournal, in_sqlite),
    "postgres": (PostgresJournal, in_postgres),
}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=JOURNALS)
def reopen(request, tmp_path, clock):
    open_again = JOURNALS[request.param][1](tmp_path, clock)
    with ExitStack() as opened:

        def open_and_close_later() -> Journal:
            journal = open_again()
            opened.callback(journal.close)
            return journal

        yield open_and_close_later


@pytest.fixture
def journal(reopen):
    return reopen()


def intent(key: str = "k", **changes: Any) -> CallIntent:
    fields: dict[str, Any] = {
        "call_key": key,
        "run_id": "R",
        "generation": 0,
        "eval_id": f"e-{key}",
        "purpose": "evaluation",
        "provider": "function",
        "model": None,
        "request_sha256": "0" * 64,
        "lease_s": 10.0,
    }
    return CallIntent(**(fields | changes))


def settled(key: str = "k", attempt: int = 1, **changes: Any) -> Settlement:
    fields: dict[str, Any] = {
        "call_key": key,
        "attempt": attempt,
        "state": "done",
        "outcome": {"value": key},
        "started_us": 5,
        "ended_us": 9,
    }
    return Settlement(**(fields | changes))


def states(journal: Journal, *intents: CallIntent, owner: str = "me") -> list[str]:
    return [claim.state for claim in journal.claim(intents, owner)]


def ledger(
    journal: Journal, *columns: str, generation: int | None = 0, run_id: str = "R"
) -> list[tuple[object, ...]]:
    rows = journal.attempts(run_id, generation=generation)
    return [tuple(row[column] for column in columns) for row in rows]
