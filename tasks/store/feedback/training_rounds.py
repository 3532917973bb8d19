"""Training rounds of a store and the marks that are open for the next one."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convergence_core.errors import AdapterRefusedError
from convergence_core.feedback.adapter_records import (
    USED,
    RoundStatus,
    TrainedMark,
    TrainingRoundRecord,
)
from convergence_core.feedback.records import AnswerComparison, Rating
from convergence_core.records import Json
from tasks.store.feedback.adapter_files import training_folder
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.schema import MARKS, ROUNDS

_USED = (
    "SELECT r.kind, r.event_seq FROM adapter_rows r JOIN adapters a ON a.version = r.version "  # noqa: S608 - constants
    f"WHERE a.status IN ({', '.join(repr(kind) for kind in USED)}) "
    # Otherwise the next round would train a worse adapter again on the same marks.
    "OR a.version IN (SELECT t.version FROM live_tests t WHERE t.status = 'worse')"
)


class TrainingRounds:
    """Rounds of one store's feedback. Thread-safe; blocks."""

    def __init__(self, feedback: FeedbackStore) -> None:
        """Use the database and the folder of the feedback."""
        self._feedback = feedback
        self._database = feedback.database

    def folder(self, round_id: str) -> Path:
        """Return the folder of a round's checkpoints, which forgetting a user removes."""
        return training_folder(self._feedback.root) / round_id

    def begin(
        self, role: str, objective: str, *, n_rows: int, settings: Mapping[str, Json]
    ) -> str:
        """Record durably the start of a training round; return its id."""
        now = self._feedback.now_us()
        record = TrainingRoundRecord(
            round_id=uuid.uuid4().hex, role=role, objective=objective, status="running", version=None,
            started_us=now, ended_us=None, n_rows=n_rows, settings=settings, metrics={}, reason=None,
        )  # fmt: skip
        with self._database.transaction() as connection:
            ROUNDS.add(connection, record, now, clean=self._feedback.clean)
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
        """Record durably the end of a training round.

        Raises:
            AdapterRefusedError: there is no such round, or it has ended.
        """
        now = self._feedback.now_us()
        with self._database.transaction(alone=True) as connection:
            before = ROUNDS.first(connection, "ORDER BY seq DESC", round_id=round_id)
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
            ROUNDS.add(connection, ended, now, clean=self._feedback.clean)

    def records(self, role: str | None = None) -> list[TrainingRoundRecord]:
        """Return the current state of the rounds of a role or of all, in order of start."""
        records = self._feedback.find(ROUNDS, "ORDER BY seq", role=role)
        return [*{record.round_id: record for record in records}.values()]


def open_marks(
    feedback: FeedbackStore, role: str
) -> list[tuple[TrainedMark, Rating | AnswerComparison, bool]]:
    """Return the current marks on a role's answers: ratings, then comparisons.

    Each comes with the user's event and a flag. The flag tells whether a candidate, active,
    inactive or rejected adapter, or one that was worse on live traffic, learned from the mark.
    """
    marks = []
    with feedback.database.reading() as connection:
        used = set(map(tuple, connection.execute(_USED).fetchall()))
        for kind, table in MARKS.items():
            sql = (
                f"SELECT seq, {', '.join(table.columns)} FROM {table.name} m "  # noqa: S608 - declared names
                f"WHERE {table.place[0]} IN (SELECT interaction_id FROM interactions WHERE role = ?) "
                f"AND {table.is_last('m')} ORDER BY seq"
            )
            for seq, *row in connection.execute(sql, (role,)).fetchall():
                given = table.mark(row)
                if given is None:
                    continue
                first, *others = given.place
                mark = TrainedMark(
                    kind=kind, seq=seq, interaction_id=first, other_id="".join(others),
                    user_id=given.user_id,
                )  # fmt: skip
                marks.append((mark, given, (kind, seq) in used))
    return marks
