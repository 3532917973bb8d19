"""Tables of the feedback that people give.

``ratings`` and ``comparisons`` hold events, which never change: of a user's events on one answer, or one
pair of answers, the last one counts, and one without a mark takes the earlier ones back. A source's event
is stored once. ``sent_rewards`` names the answers whose rating has gone to the arm that gave them;
``case_reviews`` those that were approved as test cases or rejected;
``feedback_exports`` the ranges that went to parquet, each written down before its files.
"""

from typing import Final

from tasks.store.database import Schema
from tasks.store.runtime.schema import VARIABLE

VERSION = 2
FEEDBACK_FILE = "feedback.sqlite"

DDL = """
CREATE TABLE IF NOT EXISTS interactions(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, interaction_id TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
  event_id TEXT NOT NULL, role TEXT NOT NULL, user_id TEXT NOT NULL, model TEXT NOT NULL,
  messages_json TEXT NOT NULL, response TEXT NOT NULL, created_us INTEGER NOT NULL,
  conversation_id TEXT, adapter_version TEXT, template_hash TEXT, sampling_json TEXT NOT NULL,
  logprobs_json TEXT, n_input_tokens INTEGER, n_output_tokens INTEGER, latency_s REAL,
  cost_usd REAL, system TEXT, decision_id TEXT, is_shared INTEGER NOT NULL,
  UNIQUE (source, event_id)
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
CREATE TABLE IF NOT EXISTS feedback_exports(
  table_name TEXT NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, is_done INTEGER NOT NULL,
  PRIMARY KEY (table_name, lo)
) WITHOUT ROWID;
"""


def upgrade(found: int) -> str:  # noqa: ARG001 - every version only added tables
    """Return what brings the tables of a version up to this one; of none: creates them."""
    return DDL


FEEDBACK: Final = Schema(
    noun="feedback",
    version=VERSION,
    upgrade=upgrade,
    loss="logged answers and ratings that were not folded into the tables are gone with it",
    kept="What was acknowledged is kept.",
    key=VARIABLE,
    tables=(
        *("feedback", "interactions", "ratings", "comparisons", "sent_rewards", "case_reviews"),
        *("feedback_exports", "interactions_of_user", "ratings_of_interaction"),
        "comparisons_of_pair",
    ),
)
