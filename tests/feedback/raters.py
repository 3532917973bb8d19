"""Synthetic raters, and a hosted stand-in whose arms answer unequally well."""

import numpy as np

from convergence_core.feedback.records import Rating
from tasks.serving.rated_answers import send_rewards
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer

MEANS = {"a": 2.6, "b": 3.0, "c": 4.3, "d": 2.8}
"""Arm → mean of the ratings that its answers deserve; one rating is as noisy as people's."""
BEST = "c"


def learn_from_ratings(
    systems: Systems, feedback: FeedbackStore, *, seed: int, n_rated: int = 300, n_new: int = 200
) -> float:
    """Rate answers of four arms and return the best one's share of the next answers, none rated.

    Each answer is logged and rated through the store; nothing else rewards an arm.
    """
    rng = np.random.default_rng(seed)
    arms = tuple(RuntimeArm(arm_id=arm, params={"prompt": f"prompt {arm}"}) for arm in MEANS)
    systems.configure(RuntimeConfig(system="bot", default_arms=arms, seed=seed))
    bandit = systems.bandit("bot")
    for number in range(n_rated):
        chosen = bandit.select(f"user {number % 7}")
        name, user = f"{seed}-{number}", f"user {number % 7}"
        feedback.log(
            answer(name, user_id=user, system="bot", decision_id=chosen.decision_id,
                   response=f"Answer by {chosen.params['prompt']}.")
        )  # fmt: skip
        stars = int(np.clip(np.rint(rng.normal(MEANS[chosen.arm_id], 1.0)), 1, 5))
        feedback.rate(Rating(interaction_id=name, user_id=user, rating=stars))
        (outcome,) = send_rewards(feedback, systems, name)
        assert outcome.status == "ok"
    return sum(bandit.select("later").arm_id == BEST for _ in range(n_new)) / n_new
