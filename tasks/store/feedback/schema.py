"""Tables of the feedback that people give.

``ratings`` and ``comparisons`` hold events, which never change: of a user's events on one answer, or one
pair of answers, the last one counts, and one without a mark takes the earlier ones back. A source's event
is stored once. ``sent_rewards`` names the answers whose rating has gone to the arm that gave them;
``case_reviews`` those that were approved as test cases or rejected;
``feedback_exports`` the ranges that went to parquet, each written down before its files.

``adapters`` holds what was trained, with its status now, and ``adapter_events`` each change of it;
``adapter_rows`` the marks that it was trained on, by which a change of one makes it stale.
``training_rounds`` has an event when a round begins and one when it ends; ``gate_checks`` the verdicts.
``live_tests`` has an event when a test on live traffic begins and one when it ends; ``live_test_answers``
the answers in it, each with the hash of its conversation and the side that the coin chose.
"""

from typing import Final

from tasks.store.database import Schema
from tasks.store.runtime.schema import VARIABLE

VERSION = 5
FEEDBACK_FILE = "feedback.sqlite"

DDL = """
CREATE TABLE IF NOT EXISTS interactions(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, interaction_id TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
  event_id TEXT NOT NULL, role TEXT NOT NULL, user_id TEXT NOT NULL, model TEXT NOT NULL,
  messages_json TEXT NOT NULL, response TEXT NOT NULL, created_us INTEGER NOT NULL,
  conversation_id TEXT, adapter_version TEXT, template_hash TEXT, sampling_json TEXT NOT NULL,
  logprobs_json TEXT, n_input_tokens INTEGER, n_output_tokens INTEGER, latency_s REAL,
  cost_usd REAL, system TEXT, decision_id TEXT, is_shared INTEGER NOT NULL,
  thinking TEXT, UNIQUE (source, event_id)
);
CREATE INDEX IF NOT EXISTS interactions_of_user ON interactions(user_id, seq);
CREATE TABLE IF NOT EXISTS ratings(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, interaction_id TEXT NOT NULL, user_id TEXT NOT NULL,
  rating INTEGER, thumbs TEXT, reason TEXT, source TEXT NOT NULL, event_id TEXT NOT NULL,
  created_us INTEGER NOT NULL, UNIQUE (source, event_id)
);
CREATE INDEX IF NOT EXISTS ratings_of_interaction ON ratings(interaction_id, user_id, seq);
CREATE TABLE IF NOT EXISTS comparisons(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, low_id TEXT NOT NULL, high_id TEXT NOT NULL,
  chosen_id TEXT, first_id TEXT, user_id TEXT NOT NULL, reason TEXT, source TEXT NOT NULL,
  event_id TEXT NOT NULL, created_us INTEGER NOT NULL, UNIQUE (source, event_id)
);
CREATE INDEX IF NOT EXISTS comparisons_of_pair ON comparisons(low_id, high_id, user_id, seq);
CREATE TABLE IF NOT EXISTS sent_rewards(
  interaction_id TEXT PRIMARY KEY, reward REAL NOT NULL, status TEXT NOT NULL,
  sent_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS case_reviews(
  interaction_id TEXT PRIMARY KEY, decision TEXT NOT NULL, case_id TEXT, reviewed_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS adapters(
  version TEXT PRIMARY KEY, role TEXT NOT NULL, base_model TEXT NOT NULL, parent TEXT,
  objective TEXT NOT NULL, status TEXT NOT NULL, reason TEXT, folder_sha256 TEXT NOT NULL,
  n_rows INTEGER NOT NULL, is_removed INTEGER NOT NULL, created_us INTEGER NOT NULL,
  decided_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS one_active_adapter ON adapters(role) WHERE status = 'active';
CREATE INDEX IF NOT EXISTS adapters_of_parent ON adapters(parent);
CREATE TABLE IF NOT EXISTS adapter_events(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, version TEXT NOT NULL, status TEXT NOT NULL, reason TEXT,
  changed_by TEXT NOT NULL, created_us INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS events_of_adapter ON adapter_events(version, seq);
CREATE TABLE IF NOT EXISTS adapter_rows(
  version TEXT NOT NULL, kind TEXT NOT NULL, interaction_id TEXT NOT NULL, other_id TEXT NOT NULL,
  user_id TEXT NOT NULL, event_seq INTEGER NOT NULL,
  PRIMARY KEY (version, kind, interaction_id, other_id, user_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS adapters_of_mark ON adapter_rows(interaction_id, user_id);
CREATE TABLE IF NOT EXISTS training_rounds(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, round_id TEXT NOT NULL, role TEXT NOT NULL, version TEXT,
  objective TEXT NOT NULL, status TEXT NOT NULL, started_us INTEGER NOT NULL, ended_us INTEGER,
  n_rows INTEGER NOT NULL, settings_json TEXT NOT NULL, metrics_json TEXT NOT NULL, reason TEXT,
  created_us INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS events_of_round ON training_rounds(round_id, seq);
CREATE TABLE IF NOT EXISTS gate_checks(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, version TEXT NOT NULL, name TEXT NOT NULL,
  passed INTEGER NOT NULL, value REAL, low REAL, high REAL, threshold REAL, unit TEXT NOT NULL,
  words TEXT NOT NULL, created_us INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS checks_of_adapter ON gate_checks(version, seq);
CREATE TABLE IF NOT EXISTS live_tests(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, test_id TEXT NOT NULL, version TEXT NOT NULL, control TEXT,
  role TEXT NOT NULL, share REAL NOT NULL, max_ratings INTEGER NOT NULL, status TEXT NOT NULL,
  n_ratings INTEGER NOT NULL, n_conversations INTEGER NOT NULL, difference REAL, low REAL, high REAL,
  reason TEXT, started_us INTEGER NOT NULL, ended_us INTEGER, created_us INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS events_of_test ON live_tests(test_id, seq);
CREATE TABLE IF NOT EXISTS live_test_answers(
  interaction_id TEXT PRIMARY KEY, test_id TEXT NOT NULL, unit TEXT NOT NULL,
  is_candidate INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_of_test ON live_test_answers(test_id);
CREATE TABLE IF NOT EXISTS feedback_exports(
  table_name TEXT NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, is_done INTEGER NOT NULL,
  PRIMARY KEY (table_name, lo)
) WITHOUT ROWID;
"""


_THINKING_VERSION = 5
"""The version that added the column; the others added tables."""


def upgrade(found: int) -> str:
    """Return what brings the tables of a version up to this one; of none: creates them."""
    lacks_thinking = 0 < found < _THINKING_VERSION
    return ("ALTER TABLE interactions ADD COLUMN thinking TEXT;" if lacks_thinking else "") + DDL


FEEDBACK: Final = Schema(
    noun="feedback",
    version=VERSION,
    upgrade=upgrade,
    loss="logged answers and ratings that were not folded into the tables are gone with it",
    kept="What was acknowledged is kept.",
    key=VARIABLE,
    versions="feedback",
)
