"""Rewards of arms from people's ratings of the answers that they gave.

The first mark of an answer becomes the reward of the decision that its arm was chosen by, once: an edit
or a withdrawal that comes later changes the rating, and not what the arm has learned. A process that ended
between rating and reward leaves the reward to the next fold.
"""

from collections.abc import Iterator

from tasks.serving.answers import RewardOutcome
from tasks.serving.operations import performed
from tasks.serving.systems import Systems
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.rows import Reward

_PENDING = (
    "SELECT i.interaction_id, i.system, i.decision_id FROM interactions i "
    "WHERE i.decision_id IS NOT NULL "
    "AND EXISTS (SELECT 1 FROM ratings r WHERE r.interaction_id = i.interaction_id) "
    "AND NOT EXISTS (SELECT 1 FROM sent_rewards s WHERE s.interaction_id = i.interaction_id)"
)


def pending_rewards(
    feedback: FeedbackStore, interaction_id: str | None = None
) -> Iterator[tuple[str, str, Reward]]:
    """Yield the answer, the system and the reward of ratings that have rewarded no arm yet.

    The reward is the mean over the raters, in [0, 1].
    """
    only, values = (
        ("", ()) if interaction_id is None else (" AND i.interaction_id = ?", (interaction_id,))
    )
    for answer_id, system, decision_id in feedback.fetch(f"{_PENDING}{only}", values):
        marks = feedback.ratings(answer_id)
        if marks:
            mean = sum(mark.arm_reward for mark in marks) / len(marks)
            given = Reward(
                decision_id=decision_id, reward=mean, metadata={"interaction_id": answer_id}
            )
            yield answer_id, system, given


def mark_sent(
    feedback: FeedbackStore, interaction_id: str, reward: float | None, status: str
) -> None:
    """Remember, durably, what became of a reward."""
    with feedback.database.transaction() as connection:
        connection.execute(
            "INSERT INTO sent_rewards VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (interaction_id, reward, status, feedback.now_us()),
        )


def send_rewards(
    feedback: FeedbackStore, systems: Systems, interaction_id: str | None = None
) -> list[RewardOutcome]:
    """Give decisions the rewards that ratings have not become yet; return what became of each.

    Args:
        feedback: the ratings.
        systems: whose arms answered.
        interaction_id: of this answer alone; ``None`` for all.
    """
    outcomes = []
    for answer_id, system, given in pending_rewards(feedback, interaction_id):
        outcome = performed(systems.store, systems.update(system, given))
        mark_sent(feedback, answer_id, given.reward, outcome.status)
        outcomes.append(outcome)
    return outcomes
