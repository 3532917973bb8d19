"""Child process: select and update, saying each acknowledged reward aloud.

Arguments: store, number of the child, pairs.
"""

import sys

import numpy as np

from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.bandits import Bandit

MEANS = np.linspace(0.3, 0.7, 5)


def main(path: str, number: int, n_pairs: int) -> None:
    """Reward decisions; one in twenty twice, one in a hundred of nobody."""
    rng = np.random.default_rng(number)
    with RuntimeStore(path) as store:
        bandit = Bandit(store, "bot", seed=number)
        for _ in range(n_pairs):
            chosen = bandit.select("u")
            reward = round(float(rng.random()), 3)
            learned = bandit.update(chosen.decision_id, reward)
            if learned.computed_update:
                print(chosen.arm_id, reward, chosen.decision_id, flush=True)  # noqa: T201
            if rng.random() < 0.05:
                assert bandit.update(chosen.decision_id, reward).status == "duplicate"
            if rng.random() < 0.01:
                assert bandit.update(f"nobody {number}", reward).status == "unknown"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
