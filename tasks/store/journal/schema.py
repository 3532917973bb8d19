"""Tables of the journal, in SQLite and in PostgreSQL.

In SQLite rows are appended; only the index on ``call_key`` is written at random places, once per call.
``previous_id`` leads from a call's latest attempt to the earlier ones. The answer of a call lies in
``calls``; ``attempts.outcome`` holds an answer that was paid and is not, or no longer, that of the
call: an evaluation that was given it once gets it again. In PostgreSQL a call's latest attempt and the
one whose answer is the call's are numbers, and ``outcome`` holds every answer that was paid.
``digest`` is over a row's values and its answer; rows of older versions have none.
``activity`` says from when to when a process worked on a run.
"""

from typing import Final

from tasks.store.database import Schema

_ATTEMPTS = """
CREATE TABLE IF NOT EXISTS attempts(
  id INTEGER PRIMARY KEY, previous_id INTEGER, call_key TEXT NOT NULL, attempt INTEGER NOT NULL,
  run_id TEXT NOT NULL, eval_id TEXT NOT NULL, purpose TEXT NOT NULL, generation INTEGER,
  provider TEXT NOT NULL, model TEXT, state TEXT NOT NULL, error_type TEXT, error TEXT,
  tokens_in INTEGER, tokens_out INTEGER, cost_usd REAL, max_usd REAL,
  maybe_usd REAL NOT NULL DEFAULT 0, started_us INTEGER NOT NULL, ended_us INTEGER
);
"""
_ADDED_BY_2 = "".join(
    f"ALTER TABLE attempts ADD COLUMN {column};\n"
    for column in (
        "cached_tokens INTEGER",
        "cache_write_tokens INTEGER",
        "reasoning_tokens INTEGER",
        "price_version TEXT",
        "max_tokens INTEGER",
        "maybe_tokens INTEGER NOT NULL DEFAULT 0",
        "payer_run_id TEXT",
        "outcome TEXT",
    )
)
_DIGEST = "ALTER TABLE attempts ADD COLUMN digest INTEGER;\n"
_ACTIVITY = """
CREATE TABLE IF NOT EXISTS activity(
  run_id TEXT NOT NULL, owner TEXT NOT NULL, started_us INTEGER NOT NULL, seen_us INTEGER NOT NULL,
  PRIMARY KEY (run_id, owner)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_of_generation ON attempts(run_id, generation);
"""
_OTHERS = """
CREATE TABLE IF NOT EXISTS calls(
  call_key TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL, lease_us INTEGER NOT NULL,
  latest_id INTEGER NOT NULL, answer_id INTEGER, request_sha256 TEXT NOT NULL, outcome TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS cache_hits ON attempts(call_key, run_id, eval_id, purpose)
  WHERE state = 'cached';
CREATE INDEX IF NOT EXISTS other_answers ON attempts(call_key) WHERE outcome IS NOT NULL;
CREATE TABLE IF NOT EXISTS leases(
  system TEXT PRIMARY KEY, owner TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
  machine TEXT NOT NULL, pid_started TEXT NOT NULL, acquired_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL
) WITHOUT ROWID;
"""
RATES = """
CREATE TABLE IF NOT EXISTS rates(place TEXT PRIMARY KEY, next_us INTEGER NOT NULL) WITHOUT ROWID;
"""
_IN_POSTGRES = """
CREATE TABLE IF NOT EXISTS calls(
  call_key TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL, lease_us INTEGER NOT NULL,
  latest INTEGER NOT NULL, answer INTEGER, request_sha256 TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS attempts(
  call_key TEXT, attempt INTEGER, run_id TEXT, eval_id TEXT, purpose TEXT, generation INTEGER,
  provider TEXT NOT NULL, model TEXT, state TEXT NOT NULL, error_type TEXT, error TEXT,
  outcome TEXT, tokens_in INTEGER, tokens_out INTEGER, cached_tokens INTEGER,
  cache_write_tokens INTEGER, reasoning_tokens INTEGER, cost_usd REAL, price_version TEXT,
  max_usd REAL, max_tokens INTEGER, maybe_usd REAL NOT NULL DEFAULT 0,
  maybe_tokens INTEGER NOT NULL DEFAULT 0, payer_run_id TEXT, started_us INTEGER NOT NULL,
  ended_us INTEGER, PRIMARY KEY (call_key, attempt, run_id, eval_id, purpose)
);
"""


def _upgrade(found: int) -> str:
    """Return what creates the tables, or adds what a file of an older version lacks."""
    added = ("" if found else _ATTEMPTS, "" if found > 1 else _ADDED_BY_2, _DIGEST)
    return "".join((*added, _OTHERS, _ACTIVITY))


SQLITE_JOURNAL: Final = Schema(
    noun="journal",
    version=3,
    upgrade=_upgrade,
    loss="unfinished runs then pay again for what was not yet published",
)
POSTGRES_JOURNAL: Final = Schema(
    noun="journal",
    version=2,
    upgrade=lambda _: _IN_POSTGRES + _ACTIVITY + _DIGEST + RATES,
    kept="Nothing that was paid is lost; `convergence resume` goes on from there.",
    key="storage.journal",
    versions="journal",
)
