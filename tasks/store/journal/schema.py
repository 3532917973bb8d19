"""The tables of the SQLite journal, and how a file of an earlier version becomes one of this.

Rows are appended; only the index on ``call_key`` is written at random places, once per call.
``previous_id`` leads from a call's latest attempt to the earlier ones. The answer of a call lies in
``calls``; ``attempts.outcome`` holds an answer that was paid and is not, or no longer, that of the
call: whoever was given it once gets it again. ``activity`` says from when to when a process worked
on a run.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import apsw

SCHEMA = 2
"""``user_version`` of the file; raised when an older version could not use it."""

_ATTEMPTS = """
CREATE TABLE IF NOT EXISTS attempts(
  id INTEGER PRIMARY KEY, previous_id INTEGER, call_key TEXT NOT NULL, attempt INTEGER NOT NULL,
  run_id TEXT NOT NULL, eval_id TEXT NOT NULL, purpose TEXT NOT NULL, generation INTEGER,
  provider TEXT NOT NULL, model TEXT, state TEXT NOT NULL, error_type TEXT, error TEXT,
  tokens_in INTEGER, tokens_out INTEGER, cost_usd REAL, max_usd REAL,
  maybe_usd REAL NOT NULL DEFAULT 0, started_us INTEGER NOT NULL, ended_us INTEGER,
  {added}
);
"""
_ADDED_BY_2 = (
    "cached_tokens INTEGER",
    "cache_write_tokens INTEGER",
    "reasoning_tokens INTEGER",
    "price_version TEXT",
    "max_tokens INTEGER",
    "maybe_tokens INTEGER NOT NULL DEFAULT 0",
    "payer_run_id TEXT",
    "outcome TEXT",
)
_OTHERS = """
CREATE TABLE IF NOT EXISTS calls(
  call_key TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL, lease_us INTEGER NOT NULL,
  latest_id INTEGER NOT NULL, answer_id INTEGER, request_sha256 TEXT NOT NULL, outcome TEXT
);
CREATE INDEX IF NOT EXISTS attempts_of_generation ON attempts(run_id, generation);
CREATE UNIQUE INDEX IF NOT EXISTS cache_hits ON attempts(call_key, run_id, eval_id, purpose)
  WHERE state = 'cached';
CREATE INDEX IF NOT EXISTS other_answers ON attempts(call_key) WHERE outcome IS NOT NULL;
CREATE TABLE IF NOT EXISTS activity(
  run_id TEXT NOT NULL, owner TEXT NOT NULL, started_us INTEGER NOT NULL, seen_us INTEGER NOT NULL,
  PRIMARY KEY (run_id, owner)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases(
  system TEXT PRIMARY KEY, owner TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
  machine TEXT NOT NULL, pid_started TEXT NOT NULL, acquired_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL
) WITHOUT ROWID;
"""


def bring_up_to_date(connection: "apsw.Connection", found: int) -> None:
    """Create the tables, or add what a file of version ``found`` lacks.

    The caller holds the file's lock and an open transaction: all of it happens, or nothing.
    """
    if found == 1:
        for column in _ADDED_BY_2:
            connection.execute(f"ALTER TABLE attempts ADD COLUMN {column}")
    else:
        connection.execute(_ATTEMPTS.format(added=", ".join(_ADDED_BY_2)))
    connection.execute(_OTHERS)
    connection.pragma("user_version", SCHEMA)
