"""Import and export of answers and ratings as files."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convergence_core.errors import FeedbackRefusedError, RequestReusedError
from convergence_core.feedback.rating_rows import (
    IMPORTER,
    SOURCE,
    SkippedRatingError,
    earlier_id,
    has_reward_alone,
    read_answer,
    read_mark,
)
from convergence_core.feedback.records import Interaction, Rating
from convergence_core.records import fields_of, sha256_hex
from tasks.store.clock import utc
from tasks.store.feedback.feedback_store import FeedbackStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingImport:
    """Counts of an import."""

    n_logged: int
    """New answers."""
    n_rated: int
    """Ratings that are new or replace one."""
    n_known: int
    """Ratings that the store already held, or that a later row of the file replaces."""
    skipped: Mapping[str, int]
    """Reason → skipped rows."""


def interaction_rows(
    store: FeedbackStore, *, role: str | None = None, has_messages: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield a row per answer, oldest first.

    A row is ``{timestamp, interaction_id, prompt, response, reward}``. The reward is the mean over
    the raters, in [-1, 1]; ``None`` if unrated.

    Args:
        store: the feedback.
        role: persona that answered; ``None`` means any.
        has_messages: whether the prompt is the whole list of messages, not only the last one's
            content.
    """
    for interaction in interactions_of(store, role):
        yield interaction_row(store, interaction, has_messages=has_messages)


def interaction_row(
    store: FeedbackStore, interaction: Interaction, *, has_messages: bool = False
) -> dict[str, Any]:
    """Return the row of one answer, as ``interaction_rows`` yields it."""
    messages = [*interaction.chat_messages]
    return {
        "timestamp": utc(interaction.created_us).isoformat(),
        "interaction_id": interaction.interaction_id,
        "prompt": messages if has_messages else interaction.messages[-1].content,
        "response": interaction.response,
        "reward": mean_mark(store.ratings(interaction.interaction_id)),
    }


def rating_rows(store: FeedbackStore, *, role: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the current marks, each with the id of its answer, grouped by answer."""
    for interaction in interactions_of(store, role):
        for mark in store.ratings(interaction.interaction_id):
            yield {
                "timestamp": utc(mark.created_us).isoformat(),
                "interaction_id": mark.interaction_id,
                "role": interaction.role,
                **fields_of(mark, "user_id", "rating", "thumbs", "reward", "reason", "source"),
            }


def read_ratings(store: FeedbackStore, file: Path) -> RatingImport:
    """Import ratings from a file of JSON lines; a row imported before counts once.

    Args:
        store: the feedback.
        file: rows in the format of ``read_answer`` and ``read_mark``. Of a user's marks of an
            answer the last is valid. A ``reward`` without a user, for an ``interaction_id`` that
            others have marked here, is the mean of an export and adds no mark.

    Raises:
        ValueError: a line is not JSON; nothing is stored.
    """
    rows = list(_rows(file))
    n: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    marks: dict[tuple[str, str], Rating] = {}
    for row in rows:
        with _counting(skipped):
            _take_in(store, row, n, marks)
    for mark in marks.values():
        with _counting(skipped):
            n[_rate(store, mark)] += 1
    return RatingImport(
        n_logged=n["logged"],
        n_rated=n["rated"] + n["edited"],
        n_known=n["duplicate"],
        skipped=skipped,
    )


@contextmanager
def _counting(skipped: "Counter[str]") -> Iterator[None]:
    try:
        yield
    except SkippedRatingError as error:
        skipped[str(error)] += 1
    except (FeedbackRefusedError, RequestReusedError) as error:
        skipped[f"refused: {str(error).split(',')[0]}"] += 1


def _take_in(
    store: FeedbackStore, row: Any, n: "Counter[str]", marks: dict[tuple[str, str], Rating]
) -> None:
    """Log a row's answer and add its mark to ``marks`` by answer and user."""
    answer = read_answer(row)
    if store.interaction(earlier_id(row)) is not None:
        answer = replace(answer, interaction_id=earlier_id(row))
    known = store.interaction(answer.interaction_id)
    if known is not None and _texts(store, known) != _texts(store, answer):
        raise RequestReusedError(
            "`event_id` must stand for one event of its source, but the answer "
            f"{answer.interaction_id!r} has another text. Make a new id for each answer."
        )
    if known is not None and _is_of_export(row, answer):
        given = store.ratings(known.interaction_id)
        is_of_others = bool(given) and all(mark.user_id != IMPORTER for mark in given)
        if is_of_others or mean_mark(given) == row["reward"]:
            n["duplicate"] += 1
            return
    mark = read_mark(row, answer)
    if known is None:
        known = store.log(replace(answer, created_us=answer.created_us or store.now_us()))
        n["logged"] += 1
    if mark is not None:
        place = known.interaction_id, mark.user_id
        n["duplicate"] += place in marks
        marks[place] = replace(mark, interaction_id=known.interaction_id)


def _is_of_export(row: Mapping[str, Any], answer: Interaction) -> bool:
    is_named = row.get("interaction_id") == answer.interaction_id
    return is_named and answer.user_id == IMPORTER and has_reward_alone(row)


def _rate(store: FeedbackStore, mark: Rating) -> str:
    """Store a mark, again if it was known and another import has replaced it since."""
    receipt = store.rate(mark, any_user=True)
    last = store.rating(mark.interaction_id, mark.user_id)
    if last is None or last.source != SOURCE or receipt.rating.is_same_mark(last):
        return receipt.status
    event_id = sha256_hex(f"{mark.event_id} {last.event_id}")
    return store.rate(replace(mark, event_id=event_id), any_user=True).status


def _texts(store: FeedbackStore, answer: Interaction) -> list[str]:
    return [store.clean(text) for text in (answer.messages[-1].content, answer.response)]


def mean_mark(marks: Sequence[Rating]) -> float | None:
    """Return the mean reward of marks; ``None`` without any."""
    return sum(mark.reward for mark in marks) / len(marks) if marks else None


def _rows(file: Path) -> Iterator[Any]:
    text = file.read_text(encoding="utf-8-sig")
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from None


def interactions_of(store: FeedbackStore, role: str | None) -> Iterator[Interaction]:
    """Yield the logged answers of a role or of all, oldest first."""
    where, values = ("", ()) if role is None else (" WHERE role = ?", (role,))
    ids = store.fetch(f"SELECT interaction_id FROM interactions{where} ORDER BY seq", values)  # noqa: S608 - a constant
    for (interaction_id,) in ids:
        interaction = store.interaction(interaction_id)
        if interaction is not None:  # it may have been forgotten meanwhile
            yield interaction
