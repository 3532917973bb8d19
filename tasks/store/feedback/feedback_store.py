"""Store of logged answers, ratings and comparisons, shared between processes.

Every write is one redacted, durable transaction. The store keeps each event of a source once, so a
repeated click counts once.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from convergence_core.errors import InteractionNotFoundError, RequestReusedError, WrongUserError
from convergence_core.feedback.live_test_records import LiveAnswer
from convergence_core.feedback.records import AnswerComparison, Interaction, Rating, refused
from convergence_core.records import fields_of
from tasks.secrets.process_redaction import redacted_text
from tasks.store.clock import wall_clock_us
from tasks.store.database import Connection
from tasks.store.feedback.adapter_changes import mark_place_stale, settle_test
from tasks.store.feedback.schema import (
    COMPARISONS,
    FEEDBACK,
    FEEDBACK_FILE,
    INTERACTIONS,
    RATINGS,
    Mark,
    MarkTable,
    checked,
    clean_text,
)
from tasks.store.shared_database import SharedStore

RateStatus = Literal["rated", "edited", "duplicate"]
CompareStatus = Literal["compared", "edited", "duplicate"]


_ADD_PART = "INSERT INTO live_test_answers VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_LOG = f"{INTERACTIONS.insert} ON CONFLICT DO NOTHING"
# Locks the answer, so that concurrent raters wait for each other.
_RATED = "SELECT g.user_id, g.is_shared FROM interactions g WHERE g.interaction_id = ?/*lock*/"
_OF_EVENT = " WHERE source = ? AND event_id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingReceipt:
    """Result of storing a rating."""

    status: RateStatus
    """``rated``: first rating of this answer by the user. ``edited``: replaces one. ``duplicate``:
    changes nothing."""
    rating: Rating
    """Stored rating; for a duplicate, the existing one."""
    previous: Rating | None = None


class FeedbackStore(SharedStore):
    """Human feedback, on a local disk or in Postgres. Thread-safe; blocks."""

    file, schema = FEEDBACK_FILE, FEEDBACK

    def __init__(
        self,
        path: Path | str,
        *,
        url: str | None = None,
        now_us: Callable[[], int] = wall_clock_us,
        redact: Callable[[str], str] = redacted_text,
    ) -> None:
        """Open the feedback of a store; see ``SharedStore``. ``redact`` removes secrets."""
        super().__init__(path, url=url, now_us=now_us)
        self.clean = clean_text(redact)
        """Function that removes secrets from a string before storage."""

    def log(self, interaction: Interaction, part: LiveAnswer | None = None) -> Interaction:
        """Store an answer durably; return an already stored answer unchanged.

        Args:
            interaction: the answer.
            part: its part in a live test of an adapter; ``None`` outside such a test.

        Returns:
            The stored answer, redacted.

        Raises:
            FeedbackRefusedError: a field breaks its rule; nothing is stored.
            RequestReusedError: its id or its source's event belongs to another answer.
        """
        checked(interaction)
        values = INTERACTIONS.values(interaction, clean=self.clean)
        stored = INTERACTIONS.record(values)
        with self.database.transaction() as connection:
            connection.execute(_LOG, values)
            if connection.changes():
                if part is not None:
                    side = int(part.is_candidate)
                    answer = (stored.interaction_id, part.test_id, part.unit, side)
                    connection.execute(_ADD_PART, answer)
                return stored
            row = connection.execute(
                f"{INTERACTIONS.select}{_OF_EVENT} OR interaction_id = ?",
                (stored.source, stored.event_id, stored.interaction_id),
            ).fetchone()
        known = INTERACTIONS.record(row)
        same = ("source", "event_id", "user_id", "messages", "response")
        if fields_of(known, *same) != fields_of(stored, *same):
            raise RequestReusedError(
                "`event_id` must stand for one answer of its source, but another answer was logged "
                f"under {stored.event_id!r} of {stored.source!r} or under the id "
                f"{stored.interaction_id!r}. Make new ids for each answer."
            )
        return known

    def rate(self, rating: Rating, *, any_user: bool = False) -> RatingReceipt:
        """Store a user's rating of an answer durably; a different later one replaces it.

        Args:
            rating: the mark.
            any_user: whether the rater may mark other users' answers.

        Raises:
            FeedbackRefusedError: a field breaks its rule; nothing is stored.
            InteractionNotFoundError: the log has no such answer.
            RequestReusedError: its source's event belongs to another mark.
            WrongUserError: the answer belongs to another user and is not shared.
        """
        checked(rating)
        stored = self._stamped(rating)
        with self.database.transaction() as connection:
            _check_may_rate(connection, stored.interaction_id, stored.user_id, any_user=any_user)
            known, is_new = self._give(connection, RATINGS, stored)
            if is_new:
                settle_test(connection, stored.interaction_id, at_us=self.now_us())
        if not is_new:
            return RatingReceipt(status="duplicate", rating=known or stored)
        status: RateStatus = "rated" if known is None else "edited"
        return RatingReceipt(status=status, rating=stored, previous=known)

    def unrate(self, interaction_id: str, user_id: str, *, source: str = "api") -> Rating | None:
        """Undo a user's rating of an answer durably and return it; ``None`` if there was none.

        Raises:
            InteractionNotFoundError: the log has no such answer.
        """
        with self.database.transaction() as connection:
            _check_may_rate(connection, interaction_id, user_id, any_user=True)
            previous = self._withdraw(connection, RATINGS, (interaction_id,), user_id, source)
            if previous is not None:
                settle_test(connection, interaction_id, at_us=self.now_us())
        return previous

    def compare(self, comparison: AnswerComparison, *, any_user: bool = False) -> CompareStatus:
        """Store durably which of two answers to one prompt is better; replaces an earlier choice.

        Args:
            comparison: the choice.
            any_user: whether the rater may compare other users' answers.

        Raises:
            FeedbackRefusedError: the answers have different prompts or are identical; nothing is
                stored.
            InteractionNotFoundError: the log lacks an answer.
            RequestReusedError: its source's event belongs to another comparison.
            WrongUserError: an answer belongs to another user and is not shared.
        """
        checked(comparison)
        stored = self._stamped(comparison)
        with self.database.transaction() as connection:
            for interaction_id in stored.place:  # in a fixed order, to avoid deadlocks
                _check_may_rate(connection, interaction_id, stored.user_id, any_user=any_user)
            _check_comparable(
                *(_interaction(connection, interaction_id) for interaction_id in stored.place)
            )
            known, is_new = self._give(connection, COMPARISONS, stored)
        if not is_new:
            return "duplicate"
        return "compared" if known is None else "edited"

    def uncompare(self, first_id: str, second_id: str, user_id: str) -> bool:
        """Undo a user's comparison of two answers durably; return whether there was one."""
        pair = sorted((first_id, second_id))
        with self.database.transaction() as connection:
            return self._withdraw(connection, COMPARISONS, pair, user_id) is not None

    def interaction(self, interaction_id: str) -> Interaction | None:
        """Return a logged answer; ``None`` if the log has no such id."""
        with self.database.reading() as connection:
            return INTERACTIONS.first(connection, interaction_id=interaction_id)

    def rating(self, interaction_id: str, user_id: str) -> Rating | None:
        """Return a user's rating of an answer; ``None`` if unrated or undone."""
        with self.database.reading() as connection:
            return RATINGS.last(connection, (interaction_id,), user_id)

    def ratings(self, interaction_id: str) -> list[Rating]:
        """Return the current rating of every user for an answer, in order of rating."""
        sql = (
            f"{RATINGS.select} r WHERE interaction_id = ? AND {RATINGS.is_last('r')} ORDER BY seq"
        )
        marks = map(RATINGS.mark, self.fetch(sql, (interaction_id,)))
        return [mark for mark in marks if mark is not None]

    def history(
        self,
        user_id: str,
        role: str | None = None,
        n: int = 20,
    ) -> list[tuple[Interaction, Rating | None]]:
        """Return a user's last answers, oldest first, each with the user's own rating.

        ``None`` for an unrated answer.

        Args:
            user_id: recipient of the answers.
            role: persona that answered; ``None`` for any.
            n: maximum number.
        """
        answers = []
        with self.database.reading() as connection:
            for answer in INTERACTIONS.find(
                connection, f"ORDER BY seq DESC LIMIT {n:d}",
                user_id=user_id, role=role,
            ):  # fmt: skip
                mark = RATINGS.last(connection, (answer.interaction_id,), user_id)
                answers.append((answer, mark))
        return answers[::-1]

    def _stamped(self, event: Any) -> Any:
        """Return an event with time and id, redacted for storage."""
        return replace(
            event,
            reason=None if event.reason is None else self.clean(event.reason),
            event_id=event.event_id or uuid.uuid4().hex,
            created_us=event.created_us or self.now_us(),
        )

    def _give(
        self, connection: Connection, table: MarkTable[Mark], stored: Any
    ) -> tuple[Mark | None, bool]:
        """Store a mark; return the mark that it repeats or replaces, and whether it is new."""
        row = connection.execute(
            f"{table.select}{_OF_EVENT}", (stored.source, stored.event_id)
        ).fetchone()
        if row is not None:
            known = table.mark(row)
            _check_same_event(stored, known)
            return known, False
        previous = table.last(connection, stored.place, stored.user_id)
        if previous is not None and stored.is_same_mark(previous):
            return previous, False
        table.put(connection, stored.place, **fields_of(stored, *table.given))
        mark_place_stale(connection, stored.place, stored.user_id, "edited", at_us=self.now_us())
        return previous, True

    def _withdraw(
        self,
        connection: Connection,
        table: MarkTable[Mark],
        place: Sequence[str],
        user_id: str,
        source: str = "api",
    ) -> Mark | None:
        """Withdraw a user's mark and return it; ``None`` if there is none."""
        previous = table.last(connection, place, user_id)
        if previous is not None:
            event_id, now = uuid.uuid4().hex, self.now_us()
            table.put(
                connection,
                place,
                user_id=user_id,
                source=source,
                event_id=event_id,
                created_us=now,
            )
            mark_place_stale(connection, place, user_id, "undone", at_us=now)
        return previous


def new_interaction_id() -> str:
    """Return an id for a new answer."""
    return uuid.uuid4().hex


def _interaction(connection: Connection, interaction_id: str) -> Interaction:
    interaction = INTERACTIONS.first(connection, interaction_id=interaction_id)
    if interaction is None:
        raise _not_found(interaction_id)
    return interaction


def _check_may_rate(
    connection: Connection, interaction_id: str, user_id: str, *, any_user: bool
) -> None:
    row = connection.execute(_RATED, (interaction_id,)).fetchone()
    if row is None:
        raise _not_found(interaction_id)
    owner, is_shared = row
    if owner != user_id and not is_shared and not any_user:
        raise WrongUserError(
            f"`user_id` must be the user whom the answer {interaction_id} was given, but got "
            f"{user_id[:200]!r}. Log answers that others may rate with `is_shared`."
        )


def _check_comparable(first: Interaction, other: Interaction) -> None:
    if first.asked != other.asked:
        raise refused(
            "rejected_id",
            "must be an answer to the prompt that `chosen_id` answers",
            f"{first.interaction_id} and {other.interaction_id}, whose prompts differ",
            "Compare answers to one prompt; system messages may differ.",
        )
    if first.is_same_answer(other):
        raise refused(
            "rejected_id",
            "must be another answer than `chosen_id`",
            f"{first.interaction_id} and {other.interaction_id}, whose texts are equal",
            "Compare answers that differ.",
        )


def _check_same_event(event: Any, known: Any) -> None:
    is_same = known is not None and event.is_same_mark(known)
    if not is_same or (known.user_id, known.place) != (event.user_id, event.place):
        raise RequestReusedError(
            f"`event_id` must stand for one event of its source, but {event.event_id!r} of "
            f"{event.source!r} was used for another one. Make a new id for each click."
        )


def _not_found(interaction_id: str) -> InteractionNotFoundError:
    return InteractionNotFoundError(
        f"`interaction_id` must be the id of a logged answer, but got {interaction_id[:200]!r}. "
        "Log the answer first; the answers of a forgotten user are gone."
    )
