"""Tables of the journal, in SQLite and in PostgreSQL.

In SQLite rows are appended; only the index on ``call_key`` has random writes, one per call.
``previous_id`` links a call's latest attempt to the earlier ones. ``calls`` holds the answer of a
call. ``attempts.outcome`` holds a paid answer that is not, or no longer, the call's; an evaluation
that received it receives it again. In PostgreSQL a call refers to its latest and its answering
attempt by number, and ``outcome`` holds every paid answer. ``digest`` covers a row's values and
its answer. ``activity`` holds the times between which a process worked on a run.
"""

from typing import Final

from tasks.store.database import Schema, SqlTable

_ATTEMPT = (
    "call_key TEXT NOT NULL, attempt INTEGER NOT NULL, run_id TEXT NOT NULL, eval_id TEXT NOT NULL, "
    "purpose TEXT NOT NULL, generation INTEGER, provider TEXT NOT NULL, model TEXT, state TEXT NOT NULL, "
    "error_type TEXT, error TEXT, tokens_in INTEGER, tokens_out INTEGER, cost_usd REAL, max_usd REAL, "
    "maybe_usd REAL NOT NULL DEFAULT 0, started_us INTEGER NOT NULL, ended_us INTEGER, "
    "cached_tokens INTEGER, cache_write_tokens INTEGER, reasoning_tokens INTEGER, price_version TEXT, "
    "max_tokens INTEGER, maybe_tokens INTEGER NOT NULL DEFAULT 0, payer_run_id TEXT, outcome TEXT, "
    "digest INTEGER"
)
_CALL = (
    "call_key TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL, lease_us INTEGER NOT NULL, "
    "request_sha256 TEXT NOT NULL"
)
_OF_GENERATION = "attempts_of_generation(run_id, generation)"
_ACTIVITY = SqlTable(
    "activity",
    "run_id TEXT NOT NULL, owner TEXT NOT NULL, started_us INTEGER NOT NULL, "
    "seen_us INTEGER NOT NULL, PRIMARY KEY (run_id, owner)",
)
RATES: Final = SqlTable("rates", "place TEXT PRIMARY KEY, next_us INTEGER NOT NULL")

SQLITE_JOURNAL: Final = Schema(
    noun="journal",
    version=3,
    tables=(
        SqlTable(
            "attempts",
            f"id INTEGER PRIMARY KEY, previous_id INTEGER, {_ATTEMPT}",
            _OF_GENERATION,
            "UNIQUE cache_hits(call_key, run_id, eval_id, purpose) WHERE state = 'cached'",
            "other_answers(call_key) WHERE outcome IS NOT NULL",
        ),
        SqlTable(
            "calls",
            f"{_CALL}, latest_id INTEGER NOT NULL, answer_id INTEGER, outcome TEXT",
            has_rowid=True,
        ),
        _ACTIVITY,
        SqlTable(
            "leases",
            "system TEXT PRIMARY KEY, owner TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL, "
            "machine TEXT NOT NULL, pid_started TEXT NOT NULL, acquired_us INTEGER NOT NULL, "
            "expires_us INTEGER NOT NULL",
        ),
    ),
    loss="unfinished runs then pay again for what was not yet published",
)
POSTGRES_JOURNAL: Final = Schema(
    noun="journal",
    version=2,
    tables=(
        SqlTable("calls", f"{_CALL}, latest INTEGER NOT NULL, answer INTEGER"),
        SqlTable(
            "attempts",
            f"{_ATTEMPT}, PRIMARY KEY (call_key, attempt, run_id, eval_id, purpose)",
            _OF_GENERATION,
        ),
        _ACTIVITY,
        RATES,
    ),
    kept="Nothing that was paid is lost; `convergence resume` continues from there.",
    key="storage.journal",
    versions="journal",
)
