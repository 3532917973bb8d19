"""Rewards of a store's answers for training, with all of their parts."""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, Final

from convergence_core.config.feedback import RewardConfig
from convergence_core.feedback.answer_reward import (
    MOST_LIKED,
    AnswerReward,
    answer_parts,
    answer_reward,
    user_style,
)
from convergence_core.feedback.records import Interaction, Rating
from convergence_core.feedback.safety import (
    SafetyClassifier,
    names_harm,
    safety_flags,
    train_safety_classifier,
)
from convergence_core.judges.text_features import Floats, hashed_ngrams
from tasks.store.feedback.counts import comparable_raters, store_consensus
from tasks.store.feedback.dataset import interactions_of
from tasks.store.feedback.feedback_store import FeedbackStore

LEAST_REWARD: Final = 0.5
"""Of a mark whose answer counts as liked by its user: 4, 5 or thumbs up."""


def answer_rewards(
    store: FeedbackStore, role: str | None = None, blend: RewardConfig | None = None
) -> Iterator[tuple[Interaction, AnswerReward]]:
    """Yield each answer with its reward, oldest first.

    The rating is the consensus where two raters rated the same answer of the role, else the mark. Style
    is that of the answers which the user liked before this one.

    Args:
        store: the feedback.
        role: persona that answered; ``None`` means any.
        blend: weights of the parts; ``None`` means the rating alone.
    """
    blend = blend or RewardConfig()
    consensus = store_consensus(store, role)
    agreed = consensus.answers if comparable_raters(consensus) else {}
    liked_by_user: defaultdict[str, deque[Floats]] = defaultdict(lambda: deque(maxlen=MOST_LIKED))
    for interaction in interactions_of(store, role):
        marks = store.ratings(interaction.interaction_id)
        reward = agreed.get(interaction.interaction_id)
        prompt = interaction.messages[-1].content
        parts = answer_parts(
            prompt,
            interaction.response,
            rating=_mean(marks) if reward is None else reward.reward,
            style=user_style(tuple(liked_by_user[interaction.user_id])),
            length_words=blend.length_words,
        )
        whole = "\n".join(message.content for message in interaction.messages)
        yield interaction, answer_reward(parts, blend, safety_flags(whole, interaction.response))
        if any(
            mark.user_id == interaction.user_id and mark.reward >= LEAST_REWARD for mark in marks
        ):
            liked_by_user[interaction.user_id].append(hashed_ngrams(interaction.response))


def safety_classifier(store: FeedbackStore, role: str) -> tuple[SafetyClassifier | None, str]:
    """Return a classifier of a role's answers that a rule or a rater flagged, and how good it is in words.

    ``None`` and why, where there are too few, or they cannot be distinguished from the others.
    """
    answers, is_flagged = [], []
    for interaction in interactions_of(store, role):
        whole = "\n".join(message.content for message in interaction.messages)
        is_named = any(names_harm(mark) for mark in store.ratings(interaction.interaction_id))
        answers.append(interaction.response)
        is_flagged.append(is_named or bool(safety_flags(whole, interaction.response)))
    return train_safety_classifier(answers, is_flagged)


def reward_columns(reward: AnswerReward) -> dict[str, Any]:
    """Return a reward as columns: ``part_*``, ``blended_reward``, ``training_reward``, ``safety_flags``."""
    return {
        **{f"part_{name}": value for name, value in reward.parts.items()},
        "blended_reward": reward.blended,
        "training_reward": reward.training,
        "safety_flags": [*reward.flags],
    }


def _mean(marks: list[Rating]) -> float | None:
    return sum(mark.reward for mark in marks) / len(marks) if marks else None
