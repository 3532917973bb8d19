"""Training rounds of a store, and the marks that are open for the next one."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convergence_core.errors import AdapterRefusedError
from convergence_core.feedback.adapter_records import (
    USED,
    OpenMark,
    RoundStatus,
    TrainedMark,
    TrainingRoundRecord,
)
from convergence_core.records import Json
from tasks.store.database import Connection
from tasks.store.feedback.adapter_files import training_folder
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.schema import (
    COMPARISON_COLUMNS,
    LAST_RATING,
    RATINGS,
    ROUNDS,
    comparison_of,
    rating_of,
)

_MARKS = {
    "rating": (
        f"SELECT r.seq, {RATINGS.columns_of('r')} FROM ratings r "  # noqa: S608 - constants
        f"JOIN interactions i ON i.interaction_id = r.interaction_id WHERE i.role = ? AND {LAST_RATING} ORDER BY r.seq"
    ),
    "comparison": (
        f"SELECT c.seq, {', '.join('c.' + name for name in COMPARISON_COLUMNS)} "  # noqa: S608 - constants
        "FROM comparisons c JOIN interactions i ON i.interaction_id = c.low_id WHERE i.role = ? "
        "AND c.seq = (SELECT max(l.seq) FROM comparisons l WHERE l.low_id = c.low_id "
        "AND l.high_id = c.high_id AND l.user_id = c.user_id) ORDER BY c.seq"
    ),
}
_USED = (
    "SELECT r.kind, r.event_seq FROM adapter_rows r JOIN adapters a ON a.version = r.version "  # noqa: S608 - constants
    f"WHERE a.status IN ({', '.join(repr(kind) for kind in USED)}) "
    # One that was worse on live traffic would be trained again of the same marks at once.
    "OR a.version IN (SELECT t.version FROM live_tests t WHERE t.status = 'worse')"
)


class TrainingRounds:
    """Rounds of one store's feedback. Thread-safe; blocks."""

    def __init__(self, feedback: FeedbackStore) -> None:
        """Use the database and the folder of the feedback."""
        self._feedback = feedback
        self._database = feedback.database

    def folder(self, round_id: str) -> Path:
        """Return the folder of a round's checkpoints; forgetting a user removes it."""
        return training_folder(self._feedback.root) / round_id

    def begin(
        self, role: str, objective: str, *, n_rows: int, settings: Mapping[str, Json]
    ) -> str:
        """Write down durably that a training round begins; return its id."""
        now = self._feedback.now_us()
        record = TrainingRoundRecord(
            round_id=uuid.uuid4().hex, role=role, objective=objective, status="running", version=None,
            started_us=now, ended_us=None, n_rows=n_rows, settings=settings, metrics={}, reason=None,
        )  # fmt: skip
        with self._database.transaction() as connection:
            self._add_round(connection, record, now)
        return record.round_id

    def end(
        self,
        round_id: str,
        status: RoundStatus,
        *,
        version: str | None = None,
        metrics: Mapping[str, Json] | None = None,
        reason: str | None = None,
    ) -> None:
        """Write down durably how a training round has ended.

        Raises:
            AdapterRefusedError: there is no such round, or it has ended.
        """
        now = self._feedback.now_us()
        with self._database.transaction(alone=True) as connection:
            row = connection.execute(
                f"{ROUNDS.select} WHERE round_id = ? ORDER BY seq DESC LIMIT 1", (round_id,)
            ).fetchone()
            before = None if row is None else ROUNDS.record(row)
            if before is None or before.status != "running":
                raise AdapterRefusedError(
                    "`round_id` must be that of a running round, but got "
                    f"{round_id[:64]!r}, which {'is none' if before is None else 'has ended'}. "
                    "Begin another one."
                )
            ended = replace(
                before,
                status=status,
                version=version,
                ended_us=now,
                metrics=metrics or {},
                reason=reason,
            )
            self._add_round(connection, ended, now)

    def records(self, role: str | None = None) -> list[TrainingRoundRecord]:
        """Return the rounds of a role, or all, as they stand, in order of their beginning."""
        where, values = ("", ()) if role is None else (" WHERE role = ?", (role,))
        last: dict[str, TrainingRoundRecord] = {}
        for row in self._feedback.fetch(f"{ROUNDS.select}{where} ORDER BY seq", values):
            record = ROUNDS.record(row)
            last[record.round_id] = record
        return list(last.values())

    def of_version(self, version: str) -> TrainingRoundRecord | None:
        """Return the round that an adapter came from; ``None``: none is known, or it runs still."""
        rows = self._feedback.fetch(
            f"{ROUNDS.select} WHERE version = ? ORDER BY seq DESC LIMIT 1", (version,)
        )
        return ROUNDS.record(rows[0]) if rows else None

    def _add_round(self, connection: Connection, record: TrainingRoundRecord, at_us: int) -> None:
        values = ROUNDS.values(record, at_us, clean=self._feedback.clean)
        connection.execute(ROUNDS.insert, values)


def open_marks(feedback: FeedbackStore, role: str) -> list[OpenMark]:
    """Return the marks on a role's answers that count now: ratings, then comparisons."""
    marks: list[OpenMark] = []
    with feedback.database.reading() as connection:
        used = set(map(tuple, connection.execute(_USED).fetchall()))
        for seq, *row in connection.execute(_MARKS["rating"], (role,)).fetchall():
            if (rating := rating_of(row)) is not None:
                mark = TrainedMark(
                    kind="rating", seq=seq, interaction_id=rating.interaction_id,
                    user_id=rating.user_id,
                )  # fmt: skip
                is_used = ("rating", seq) in used
                marks.append(OpenMark(mark=mark, given=rating, is_used=is_used))
        for seq, *row in connection.execute(_MARKS["comparison"], (role,)).fetchall():
            if (choice := comparison_of(row)) is not None:
                low, high = choice.pair
                mark = TrainedMark(
                    kind="comparison", seq=seq, interaction_id=low, other_id=high,
                    user_id=choice.user_id,
                )  # fmt: skip
                is_used = ("comparison", seq) in used
                marks.append(OpenMark(mark=mark, given=choice, is_used=is_used))
    return marks
