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

from convergence_core.feedback.adapter_records import AdapterRecord, GateCheck, TrainingRoundRecord
from convergence_core.feedback.live_test_records import LiveTest
from convergence_core.feedback.records import Interaction, Rating
from tasks.store.database import NUMBERED, RANGES, RecordTable, Schema, SqlTable
from tasks.store.runtime.schema import VARIABLE

FEEDBACK_FILE = "feedback.sqlite"
LAST_RATING: Final = (
    "r.seq = (SELECT max(l.seq) FROM ratings l WHERE l.interaction_id = r.interaction_id "
    "AND l.user_id = r.user_id)"
)
"""Condition by which a row of ratings ``r`` is the one that counts."""
_EVENTS = f"{NUMBERED}, created_us INTEGER NOT NULL"

INTERACTIONS = RecordTable(
    "interactions",
    Interaction,
    f"{NUMBERED}, UNIQUE (interaction_id), UNIQUE (source, event_id)",
    "interactions_of_user(user_id, seq)",
    texts=("response", "thinking"),
)
RATINGS = RecordTable(
    "ratings",
    Rating,
    f"{NUMBERED}, UNIQUE (source, event_id)",
    "ratings_of_interaction(interaction_id, user_id, seq)",
    texts=("reason",),
)
ADAPTERS = RecordTable(
    "adapters",
    AdapterRecord,
    "*, PRIMARY KEY (version)",
    "UNIQUE one_active_adapter(role) WHERE status = 'active'",
    "adapters_of_parent(parent)",
)
ROUNDS = RecordTable(
    "training_rounds",
    TrainingRoundRecord,
    _EVENTS,
    "events_of_round(round_id, seq)",
    texts=("reason",),
)
GATE_CHECKS = RecordTable(
    "gate_checks",
    GateCheck,
    "seq INTEGER PRIMARY KEY AUTOINCREMENT, *, version TEXT NOT NULL, created_us INTEGER NOT NULL",
    "checks_of_adapter(version, seq)",
    texts=("words",),
)
LIVE_TESTS = RecordTable("live_tests", LiveTest, _EVENTS, "events_of_test(test_id, seq)")
_TABLES = (
    INTERACTIONS,
    RATINGS,
    SqlTable(
        "comparisons",
        "seq INTEGER PRIMARY KEY AUTOINCREMENT, low_id TEXT NOT NULL, high_id TEXT NOT NULL, "
        "chosen_id TEXT, first_id TEXT, user_id TEXT NOT NULL, reason TEXT, source TEXT NOT NULL, "
        "event_id TEXT NOT NULL, created_us INTEGER NOT NULL, UNIQUE (source, event_id)",
        "comparisons_of_pair(low_id, high_id, user_id, seq)",
    ),
    SqlTable(
        "sent_rewards",
        "interaction_id TEXT PRIMARY KEY, reward REAL NOT NULL, status TEXT NOT NULL, "
        "sent_us INTEGER NOT NULL",
    ),
    SqlTable(
        "case_reviews",
        "interaction_id TEXT PRIMARY KEY, decision TEXT NOT NULL, case_id TEXT, "
        "reviewed_us INTEGER NOT NULL",
    ),
    ADAPTERS,
    SqlTable(
        "adapter_events",
        "seq INTEGER PRIMARY KEY AUTOINCREMENT, version TEXT NOT NULL, status TEXT NOT NULL, "
        "reason TEXT, changed_by TEXT NOT NULL, created_us INTEGER NOT NULL",
        "events_of_adapter(version, seq)",
    ),
    SqlTable(
        "adapter_rows",
        "version TEXT NOT NULL, kind TEXT NOT NULL, interaction_id TEXT NOT NULL, "
        "other_id TEXT NOT NULL, user_id TEXT NOT NULL, event_seq INTEGER NOT NULL, "
        "PRIMARY KEY (version, kind, interaction_id, other_id, user_id)",
        "adapters_of_mark(interaction_id, user_id)",
    ),
    ROUNDS,
    GATE_CHECKS,
    LIVE_TESTS,
    SqlTable(
        "live_test_answers",
        "interaction_id TEXT PRIMARY KEY, test_id TEXT NOT NULL, unit TEXT NOT NULL, "
        "is_candidate INTEGER NOT NULL",
        "answers_of_test(test_id)",
    ),
    SqlTable("feedback_exports", RANGES),
)
FEEDBACK: Final = Schema(
    noun="feedback",
    version=6,
    tables=_TABLES,
    loss="logged answers and ratings that were not folded into the tables are gone with it",
    kept="What was acknowledged is kept.",
    key=VARIABLE,
    versions="feedback",
)
