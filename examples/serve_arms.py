"""Serve a hundred requests with two arms and learn which is better."""

import random

import convergence

if __name__ == "__main__":
    convergence.configure_runtime_sync(
        "support_bot",
        config={
            "default_arms": [
                {"arm_id": "small", "params": {"model": "small"}},
                {"arm_id": "large", "params": {"model": "large"}},
            ],
            "seed": 1,
        },
    )
    luck = random.Random(1)  # noqa: S311 - an example
    for number in range(100):
        chosen = convergence.runtime_select_sync("support_bot", user_id=f"user {number}")
        is_good = luck.random() < (0.9 if chosen.arm_id == "large" else 0.4)
        convergence.runtime_update_sync(
            "support_bot", decision_id=chosen.decision_id, reward=float(is_good)
        )
    for arm in convergence.runtime_arms_sync("support_bot"):
        print(arm["arm_id"], arm["n"], round(arm["mean"], 2))
