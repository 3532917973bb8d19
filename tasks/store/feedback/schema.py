"""Tables of the feedback.

``ratings`` and ``comparisons`` hold immutable events. A user's last event on an answer or pair of
answers is valid, and an event without a mark withdraws the earlier ones. A source's event is
stored once. ``sent_rewards`` names the answers whose ratings went to their arms, ``case_reviews``
the approved and rejected test cases. ``feedback_exports`` holds the ranges exported to parquet; a
range precedes its files.

``adapters`` holds trained adapters with their current status, ``adapter_events`` each change of
status, ``adapter_rows`` their training marks, so that a changed mark makes them stale.
``training_rounds`` and ``live_tests`` have an event at the start and one at the end.
``gate_checks`` holds the verdicts. ``live_test_answers`` holds the answers of a live test, each
with the hash of its conversation and its randomly assigned side.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from convergence_core.feedback.adapter_records import (
    AdapterRecord,
    GateCheck,
    MarkKind,
    TrainingRoundRecord,
)
from convergence_core.feedback.live_test_records import LiveTest
from convergence_core.feedback.records import ROLES, AnswerComparison, Interaction, Rating, refused
from convergence_core.records import canonical_json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.store.database import (
    NUMBERED,
    RANGES,
    Connection,
    RecordTable,
    Schema,
    SqlTable,
    insert_sql,
)
from tasks.store.runtime.schema import VARIABLE

FEEDBACK_FILE = "feedback.sqlite"
_EVENTS = f"{NUMBERED}, created_us INTEGER NOT NULL"
Mark = TypeVar("Mark", bound=Rating | AnswerComparison)


class MarkTable(RecordTable[Mark]):
    """Table of events by which users mark answers; a user's last event at a place is valid."""

    def __init__(
        self,
        name: str,
        record: type[Mark],
        place: tuple[str, ...],
        *definition: str,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        """Declare a table; ``place`` holds the columns that identify the marked answers."""
        super().__init__(name, record, *definition, columns=columns)
        self.place = place
        self.at = " AND ".join(f"{column} = ?" for column in (*place, "user_id"))
        """Condition that selects a user's events at a place."""
        self.given = [c for c in self.columns if c.isidentifier() and c not in place]
        """Columns of an event other than the place."""

    def is_last(self, alias: str) -> str:
        """Return the condition that selects the last event of a user at a place."""
        same = " AND ".join(f"l.{c} = {alias}.{c}" for c in (*self.place, "user_id"))
        return f"{alias}.seq = (SELECT max(l.seq) FROM {self.name} l WHERE {same})"  # noqa: S608 - declared names

    def mark(self, row: Sequence[Any]) -> Mark | None:
        """Convert a row to a record; return ``None`` if the row withdraws a mark."""
        values = dict(zip(self.columns, row, strict=True))
        is_given = any(values.get(name) is not None for name in ("rating", "thumbs", "chosen_id"))
        return self.record(row) if is_given else None

    def last(self, connection: Connection, place: Sequence[str], user_id: str) -> Mark | None:
        """Return a user's mark at a place; ``None`` if there is none or it is withdrawn."""
        sql = f"{self.select} WHERE {self.at} ORDER BY seq DESC LIMIT 1"
        row = connection.execute(sql, (*place, user_id)).fetchone()
        return None if row is None else self.mark(row)

    def put(self, connection: Connection, place: Sequence[str], **event: Any) -> None:
        """Store an event at a place; without rating and choice it withdraws the mark."""
        row = {**dict(zip(self.place, place, strict=True)), **event}
        sql = f"{insert_sql(self.name, [*row])} ON CONFLICT DO NOTHING"
        connection.execute(sql, [*row.values()])


INTERACTIONS = RecordTable(
    "interactions",
    Interaction,
    f"{NUMBERED}, UNIQUE (interaction_id), UNIQUE (source, event_id)",
    "interactions_of_user(user_id, seq)",
    texts=("response", "thinking"),
)
RATINGS = MarkTable(
    "ratings",
    Rating,
    ("interaction_id",),
    f"{NUMBERED}, UNIQUE (source, event_id)",
    "ratings_of_interaction(interaction_id, user_id, seq)",
)
COMPARISONS = MarkTable(
    "comparisons",
    AnswerComparison,
    ("low_id", "high_id"),
    "seq INTEGER PRIMARY KEY AUTOINCREMENT, low_id TEXT NOT NULL, high_id TEXT NOT NULL, "
    "chosen_id TEXT, first_id TEXT, user_id TEXT NOT NULL, reason TEXT, source TEXT NOT NULL, "
    "event_id TEXT NOT NULL, created_us INTEGER NOT NULL, UNIQUE (source, event_id)",
    "comparisons_of_pair(low_id, high_id, user_id, seq)",
    columns={"rejected_id": "CASE WHEN chosen_id = low_id THEN high_id ELSE low_id END"},
)
MARKS: Final[Mapping[MarkKind, MarkTable[Any]]] = {"rating": RATINGS, "comparison": COMPARISONS}
CURRENT_RATINGS: Final = (
    "ratings r JOIN interactions i ON i.interaction_id = r.interaction_id "
    f"WHERE (r.rating IS NOT NULL OR r.thumbs IS NOT NULL) AND {RATINGS.is_last('r')}"
)
"""FROM clause with condition: the current ratings ``r`` with their answers ``i``."""
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
    COMPARISONS,
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


LONGEST_NAME = 200
"""Maximum characters of an id, role, user or model."""
_NAMES = (
    "interaction_id", "source", "event_id", "role", "user_id", "model", "conversation_id",
    "adapter_version", "template_hash", "system", "decision_id", "chosen_id", "rejected_id",
    "first_id",
)  # fmt: skip
_NUMBERS = ("n_input_tokens", "n_output_tokens", "latency_s", "cost_usd", "created_us")


def checked(record: Interaction | Rating | AnswerComparison) -> None:
    """Check the fields of a record.

    Raises:
        FeedbackRefusedError: a field breaks its rule; the message names the field.
    """
    is_answer = isinstance(record, Interaction)
    for name in _NAMES:
        value = getattr(record, name, None)
        if value is None or (name == "event_id" and value == "" and not is_answer):
            continue
        checked_name(name, value)
    for name in _NUMBERS:
        value = getattr(record, name, None)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise refused(name, "must be 0 or more", repr(value), "Leave it out if it is unknown.")
    if isinstance(record, Interaction):
        _check_answer(record)


def checked_name(key: str, value: object) -> None:
    """Check that a value is a valid name.

    Raises:
        FeedbackRefusedError: the value is not.
    """
    if not isinstance(value, str) or not _is_name(value):
        rule = f"must be a string of 1 to {LONGEST_NAME} printable characters"
        raise refused(key, rule, _shown(value), "Give another one.")


def _shown(value: object) -> str:
    return one_line(repr(value), 80, redacted_text)


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= LONGEST_NAME and text.isprintable() and text.strip() == text


def _check_answer(record: Interaction) -> None:
    if not record.messages or record.messages[-1].role == "assistant":
        got = "none" if not record.messages else "one of the assistant at the end"
        raise refused("messages", "must end with the question", got, "Log the whole prompt.")
    for number, message in enumerate(record.messages):
        if message.role not in ROLES:
            rule = f"must be one of {', '.join(ROLES)}"
            key = f"messages.{number}.role"
            raise refused(key, rule, _shown(message.role), "Give one of these.")
    if record.logprobs is not None and not all(map(math.isfinite, record.logprobs)):
        raise refused(
            "logprobs", "must be finite numbers", "NaN or inf", "Leave them out if unknown."
        )
    try:
        canonical_json(dict(record.sampling))
    except (TypeError, ValueError) as error:
        raise refused(
            "sampling", "must hold JSON values", _shown(error), "Leave other values out."
        ) from None
    if record.decision_id is not None and record.system is None:
        raise refused(
            "system", "must name the system of `decision_id`", "none", "Give both or neither."
        )


def clean_text(redact: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that removes secrets and unstorable characters from a string."""

    def cleaned(text: str) -> str:
        # UTF-8 cannot encode lone surrogates, and PostgreSQL rejects NUL.
        return redact(text.replace("\0", "\ufffd").encode("utf-8", "replace").decode())

    return cleaned
