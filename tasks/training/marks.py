"""Ratings of one role's answers, split into training and held-out prompts.

A hash of the conversation decides whether a prompt is held out. So every round of a role holds out
the same prompts, and no adapter trains on them.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from convergence_core.feedback.adapter_records import TrainedMark
from convergence_core.feedback.objectives import balanced_weights, desirability, rating_quantiles
from convergence_core.feedback.records import AnswerComparison, Interaction, Rating
from tasks.store.feedback.answer_rewards import answer_rewards
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import open_marks
from tasks.training.jobs import Objective, TrainingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedAnswer:
    """One user's rating of one answer."""

    interaction: Interaction
    rating: Rating
    reward: float
    """Training reward in [-1, 1]: the rating, or the consensus of several raters. An answer that a
    safety rule flags gets the reward of an unsafe answer.
    """
    is_unsafe: bool
    mark: TrainedMark
    is_used: bool
    """Whether a current adapter was trained on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAnswers:
    """One user's choice between two answers to one prompt."""

    chosen: Interaction
    rejected: Interaction
    mark: TrainedMark
    is_used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMarks:
    """Valid ratings and comparisons of one role's answers."""

    answers: tuple[MarkedAnswer, ...]
    """Rated answers to training prompts."""
    held_out: tuple[MarkedAnswer, ...]
    """Rated answers to held-out prompts."""
    pairs: tuple[ComparedAnswers, ...]
    """Compared answers to training prompts."""
    n_foreign: int
    """Number of ratings of other models' answers, which are not trained on."""

    @property
    def n_new(self) -> int:
        """Number of ratings and comparisons on which no current adapter was trained."""
        return sum(not answer.is_used for answer in self.answers) + sum(
            not pair.is_used for pair in self.pairs
        )

    @property
    def held_out_prompts(self) -> tuple[Interaction, ...]:
        """First answer to each held-out prompt."""
        prompts: dict[str, Interaction] = {}
        for mark in self.held_out:
            prompts.setdefault(prompt_key(mark.interaction), mark.interaction)
        return tuple(prompts.values())

    def objective(self, wanted: Objective | Literal["auto"]) -> Objective:
        """Return the configured objective; ``auto`` selects the one that most ratings fit."""
        if wanted != "auto":
            return wanted
        n_thumbs = sum(answer.rating.thumbs is not None for answer in self.answers)
        n_ratings = len(self.answers) - n_thumbs
        if len(self.pairs) > max(n_ratings, n_thumbs):
            return "dpo"
        return "kto" if n_thumbs > n_ratings else "qrpo"


def collect(
    store: FeedbackStore,
    *,
    role: str,
    models: Sequence[str],
    held_out: float,
) -> RoleMarks:
    """Return the valid ratings of one role's answers.

    Args:
        store: Feedback store.
        role: Persona that answered.
        models: Names of the model in training. Ratings of other models' answers are only counted.
        held_out: Share of held-out prompts, in [0, 1).
    """
    reward_of = {answer.interaction_id: reward for answer, reward in answer_rewards(store, role)}
    train: list[MarkedAnswer] = []
    kept: list[MarkedAnswer] = []
    pairs: list[ComparedAnswers] = []
    n_foreign = 0
    for mark, given, is_used in open_marks(store, role):
        names = (mark.interaction_id, mark.other_id)
        answers = [
            interaction for name in names if name and (interaction := store.interaction(name))
        ]
        if not all(is_by_trained_model(answer, models) for answer in answers):
            n_foreign += 1
        elif isinstance(given, Rating) and len(answers) == 1:
            reward = reward_of.get(mark.interaction_id)
            if reward is None or reward.training is None:
                continue  # rated since, or withdrawn: the next look sees it
            marked = MarkedAnswer(
                interaction=answers[0],
                rating=given,
                reward=reward.training,
                is_unsafe=bool(reward.flags),
                mark=mark,
                is_used=is_used,
            )
            (kept if is_held_out(answers[0], held_out) else train).append(marked)
        elif (
            isinstance(given, AnswerComparison)
            and len(answers) == 2
            and not is_held_out(answers[0], held_out)
            and not reward_of[given.chosen_id].flags  # an unsafe answer is never preferred
        ):
            by_id = {answer.interaction_id: answer for answer in answers}
            pairs.append(
                ComparedAnswers(
                    chosen=by_id[given.chosen_id],
                    rejected=by_id[given.rejected_id],
                    mark=mark,
                    is_used=is_used,
                )
            )
    return RoleMarks(
        answers=tuple(train), held_out=tuple(kept), pairs=tuple(pairs), n_foreign=n_foreign
    )


def training_rows(
    marks: RoleMarks, objective: Objective
) -> tuple[tuple[TrainingRow, ...], tuple[TrainedMark, ...]]:
    """Return the rows of an objective, and their source ratings."""
    if objective == "dpo":
        rows = [
            TrainingRow(
                messages=pair.chosen.chat_messages,
                response=pair.chosen.response,
                rejected=pair.rejected.response,
                key=_key(pair.mark),
            )
            for pair in marks.pairs
        ]
        return tuple(rows), tuple(pair.mark for pair in marks.pairs)
    answers, targets, weights = _targets(marks.answers, objective)
    rows = [
        TrainingRow(
            messages=answer.interaction.chat_messages,
            response=answer.interaction.response,
            target=target,
            weight=weight,
            key=_key(answer.mark),
        )
        for answer, target, weight in zip(answers, targets, weights, strict=True)
    ]
    return tuple(rows), tuple(answer.mark for answer in answers)


def prompt_key(interaction: Interaction) -> str:
    """Return a hash of the conversation without its system messages."""
    return _hash_of((message.role, message.content) for message in interaction.asked)


def is_held_out(interaction: Interaction, share: float) -> bool:
    """Return whether an answer's prompt is held out; the same prompt always is, or never."""
    return is_held_out_prompt(
        [(message.role, message.content) for message in interaction.asked], share
    )


def is_held_out_prompt(turns: Iterable[tuple[str, str]], share: float) -> bool:
    """Return whether a prompt, as (role, text) pairs without system messages, is held out."""
    return int(_hash_of(turns)[:13], 16) < share * 16**13


def _hash_of(turns: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for role, content in turns:
        digest.update(f"{role}\0{content}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def is_by_trained_model(interaction: Interaction, models: Sequence[str]) -> bool:
    """Return whether an answer is from the model in training or one of its adapters."""
    return interaction.adapter_version is not None or interaction.model in models


def _targets(
    answers: Sequence[MarkedAnswer], objective: Objective
) -> tuple[list[MarkedAnswer], list[float], list[float]]:
    if objective == "qrpo":
        users = [answer.rating.user_id for answer in answers]
        quantiles = rating_quantiles(users, [answer.reward for answer in answers])
        return list(answers), quantiles.tolist(), [1.0] * len(answers)
    judged = [
        (answer, False if answer.is_unsafe else desirability(answer.rating)) for answer in answers
    ]
    kept = [(interaction, is_good) for interaction, is_good in judged if is_good is not None]
    goods = [is_good for _, is_good in kept]
    return (
        [interaction for interaction, _ in kept],
        [float(good) for good in goods],
        balanced_weights(goods).tolist(),
    )


def _key(mark: TrainedMark) -> str:
    return f"{mark.interaction_id} {mark.other_id} {mark.user_id}"
