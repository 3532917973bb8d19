"""Marked answers of one role and model: what trains, and what is held out.

A prompt is held out or not by a hash of what was asked, so that every round of a role holds out the same
prompts, and no adapter was ever trained on one.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from convergence_core.feedback.records import AnswerComparison, Interaction, Rating
from tasks.store.feedback.feedback_store import FeedbackStore

Scale = Literal["ratings", "thumbs", "comparisons"]

_MARKED: Final = (
    "SELECT i.interaction_id FROM interactions i WHERE i.role = ? AND i.model = ? AND EXISTS "
    "(SELECT 1 FROM ratings r WHERE r.interaction_id = i.interaction_id) ORDER BY i.seq"
)
_COMPARED: Final = (
    "SELECT DISTINCT c.low_id, c.high_id, c.user_id FROM comparisons c "
    "JOIN interactions i ON i.interaction_id = c.low_id "
    "JOIN interactions k ON k.interaction_id = c.high_id "
    "WHERE i.role = ? AND i.model = ? AND k.model = i.model"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedAnswer:
    """One answer and every user's mark of it that counts."""

    interaction: Interaction
    marks: tuple[Rating, ...]

    @property
    def reward(self) -> float:
        """Mean reward over its raters, in [-1, 1]."""
        return sum(mark.reward for mark in self.marks) / len(self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPair:
    """Two answers to one prompt, and which of them a user prefers."""

    chosen: Interaction
    rejected: Interaction
    comparison: AnswerComparison


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMarks:
    """What people said about the answers of one role and model, oldest answer first."""

    train: tuple[MarkedAnswer, ...]
    held_out: tuple[MarkedAnswer, ...]
    """Answers to held-out prompts: no adapter is trained on them."""
    pairs: tuple[ComparedPair, ...]
    """Of prompts that are not held out."""

    @property
    def scale(self) -> Scale:
        """The scale on which most was said."""
        marks = [mark for one in self.train for mark in one.marks]
        n_ratings = sum(mark.rating is not None for mark in marks)
        n_thumbs = len(marks) - n_ratings
        if len(self.pairs) > max(n_ratings, n_thumbs):
            return "comparisons"
        return "thumbs" if n_thumbs > n_ratings else "ratings"

    @property
    def held_out_prompts(self) -> tuple[Interaction, ...]:
        """The first answer of each held-out prompt."""
        found: dict[str, Interaction] = {}
        for one in self.held_out:
            found.setdefault(prompt_key(one.interaction), one.interaction)
        return tuple(found.values())


def collect(store: FeedbackStore, *, role: str, model: str, held_out: float) -> RoleMarks:
    """Return what counts now of the marks of one role's answers.

    Args:
        store: the feedback.
        role: persona that answered.
        model: that answered; answers of other models say nothing about this one.
        held_out: share of the prompts that are held out, in [0, 1).
    """
    train: list[MarkedAnswer] = []
    kept: list[MarkedAnswer] = []
    for one in _marked(store, role, model):
        (kept if is_held_out(one.interaction, held_out) else train).append(one)
    pairs = [
        pair for pair in _compared(store, role, model) if not is_held_out(pair.chosen, held_out)
    ]
    return RoleMarks(train=tuple(train), held_out=tuple(kept), pairs=tuple(pairs))


def prompt_key(interaction: Interaction) -> str:
    """Return a hash of what was asked: the conversation without its system messages."""
    digest = hashlib.sha256()
    for message in interaction.asked:
        digest.update(f"{message.role}\0{message.content}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def is_held_out(interaction: Interaction, share: float) -> bool:
    """Return whether its prompt is held out; the same prompt always is, or never."""
    return int(prompt_key(interaction)[:13], 16) < share * 16**13


def _marked(store: FeedbackStore, role: str, model: str) -> Iterator[MarkedAnswer]:
    for (name,) in store.fetch(_MARKED, (role, model)):
        interaction, marks = store.interaction(name), store.ratings(name)
        if interaction is not None and marks:  # else taken back, or forgotten meanwhile
            yield MarkedAnswer(interaction=interaction, marks=tuple(marks))


def _compared(store: FeedbackStore, role: str, model: str) -> Iterator[ComparedPair]:
    for low, high, user_id in sorted(store.fetch(_COMPARED, (role, model))):
        found = store.comparison(low, high, user_id)
        if found is None:
            continue  # taken back
        chosen, rejected = store.interaction(found.chosen_id), store.interaction(found.rejected_id)
        if chosen is not None and rejected is not None:
            yield ComparedPair(chosen=chosen, rejected=rejected, comparison=found)
