"""Rewards of arms from users' ratings of their answers.

The first mark of an answer rewards the decision that chose its arm, once. A later edit or
withdrawal changes the rating but not the arm's reward. If a process ends between rating and
reward, the next fold sends the reward.
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
    """Yield answer, system and reward of ratings whose reward is not sent yet.

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
    """Record a reward's status durably."""
    with feedback.database.transaction() as connection:
        connection.execute(
            "INSERT INTO sent_rewards VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (interaction_id, reward, status, feedback.now_us()),
        )


def send_rewards(
    feedback: FeedbackStore, systems: Systems, interaction_id: str | None = None
) -> list[RewardOutcome]:
    """Send the outstanding rewards of ratings to their decisions; return the outcomes.

    Args:
        feedback: the ratings.
        systems: systems whose arms answered.
        interaction_id: id of the only answer to process; ``None`` for all.
    """
    outcomes = []
    for answer_id, system, given in pending_rewards(feedback, interaction_id):
        outcome = performed(systems.store, systems.update(system, given))
        mark_sent(feedback, answer_id, given.reward, outcome.status)
        outcomes.append(outcome)
    return outcomes
