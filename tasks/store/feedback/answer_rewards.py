"""Rewards of a store's answers for training."""

from collections.abc import Iterator
from dataclasses import dataclass

from convergence_core.feedback.records import Interaction
from convergence_core.feedback.safety import UNSAFE_REWARD, SafetyRule, safety_flags
from tasks.store.feedback.counts import comparable_raters, store_consensus
from tasks.store.feedback.dataset import interactions_of, mean_mark
from tasks.store.feedback.feedback_store import FeedbackStore


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReward:
    """Reward of one answer, and the safety rules that it breaks."""

    rating: float | None
    """Consensus of the raters, or the mean mark, in [-1, 1]. ``None`` if the answer is unrated."""
    flags: tuple[SafetyRule, ...]

    @property
    def training(self) -> float | None:
        """Training reward: the rating, or ``UNSAFE_REWARD`` if the answer has flags."""
        return UNSAFE_REWARD if self.flags and self.rating is not None else self.rating


def answer_rewards(
    store: FeedbackStore, role: str | None = None
) -> Iterator[tuple[Interaction, AnswerReward]]:
    """Yield each answer with its reward, oldest first.

    The rating is the consensus if two raters have rated the same answer of the role, else the mean
    mark.

    Args:
        store: the feedback.
        role: persona that answered; ``None`` means any.
    """
    consensus = store_consensus(store, role)
    agreed = consensus.answers if comparable_raters(consensus) else {}
    for interaction in interactions_of(store, role):
        marks = store.ratings(interaction.interaction_id)
        reward = agreed.get(interaction.interaction_id)
        prompt = "\n".join(message.content for message in interaction.messages)
        yield (
            interaction,
            AnswerReward(
                rating=mean_mark(marks) if reward is None else reward.reward,
                flags=safety_flags(prompt, interaction.response),
            ),
        )
