"""Verdicts of an adapter's blinded live test, checked after each simulated rating.

    python -m benchmarks.feedback.live_test --tests 200

Six users differ in leniency (standard deviation .5 on the scale 1 to 5). A conversation has one or more
ratings with a noise of 1. After one rating in ten, a user changes another one to any value. The new adapter
answers half of the conversations, and the effect raises its ratings. Shares have 95 % intervals (Clopper and
Pearson); medians cover tests with a verdict.
"""

from statistics import median

import numpy as np

from benchmarks.machine import options
from benchmarks.tables import header, row, share_ends
from convergence_core.feedback.live_test import Claim, RatedConversation, claim_of

N_USERS = 6
NEW_CONVERSATION = 0.6
"""Share of ratings that start a new conversation."""
CHANGED = 0.1
EFFECTS = (0.0, 0.5, 1.0, -1.0)


def verdict_of(
    seed: int, *, effect: float, n_ratings: int, base: float = 3.4
) -> tuple[Claim | None, int]:
    """Return the verdict of one test and its number of ratings.

    Args:
        seed: Seed of users, assignments and ratings.
        effect: Gain of the new adapter, in points of 1 to 5.
        n_ratings: Maximum number of ratings.
        base: Mean rating of the previous model.
    """
    rng = np.random.default_rng(seed)
    users = rng.normal(0.0, 0.5, N_USERS)
    sides: list[bool] = []
    marks: list[list[float]] = []
    for n in range(1, n_ratings + 1):
        if not marks or rng.random() < NEW_CONVERSATION:
            sides.append(bool(rng.random() < 0.5))
            marks.append([])
        mean = base + users[len(marks) % N_USERS] + effect * sides[-1]
        marks[-1].append(float(np.clip(np.round(rng.normal(mean, 1.0)), 1, 5)))
        if rng.random() < CHANGED:
            changed = marks[rng.integers(len(marks))]
            changed[rng.integers(len(changed))] = float(rng.integers(1, 6))
        found = [
            RatedConversation(
                is_candidate=side, reward=(sum(own) / len(own) - 3.0) / 2.0, n_ratings=len(own)
            )
            for side, own in zip(sides, marks, strict=True)
        ]
        if (claim := claim_of(found, 0.5)) is not None:
            return claim, n
    return None, n_ratings


def main() -> None:
    """Print the table."""
    n = options(__doc__, tests=200).tests
    print(header("effect", "found better", "found worse", "median of ratings to the verdict"))
    for effect in EFFECTS:
        verdicts = [verdict_of(seed, effect=effect, n_ratings=200) for seed in range(n)]
        shares = []
        for one in ("better", "worse"):
            n_hits = sum(claim == one for claim, _ in verdicts)
            low, high = share_ends(n_hits, n)
            shares.append(f"{n_hits} of {n} [{low:.3f}, {high:.3f}]")
        needed = [n for claim, n in verdicts if claim is not None]
        middle = f"{median(needed):.0f}" if needed else ""
        print(row(f"{effect:+.1f}", *shares, middle), flush=True)


if __name__ == "__main__":
    main()
