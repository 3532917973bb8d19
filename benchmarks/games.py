"""Meta-critic over planted games: what is kept by held-out rewards, and by a judge."""

from typing import Final

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.tables import header, row, with_half
from convergence_core.games.meta_critic import Coin, GameRound, p_keep_of, toss

TRUE: Final = {
    "good": 0.025, "fair": 0.015, "idle": 0.0, "still": 0.0, "bad": -0.015, "worse": -0.025,
}  # fmt: skip
"""Effect of a round's game on the held-out reward."""
JUDGED: Final = {**TRUE, "bad": 0.03, "worse": 0.04}
"""What the judge says of them: those that hurt please it."""
NOISE: Final = 0.03
N_ROUNDS: Final = 60
N_SEEDS: Final = 100


def society(rule: dict[str, float] | None, seed: int) -> tuple[float, dict[str, float]]:
    """Return the mean true gain per round, and each game's P(keep) at the end.

    Args:
        rule: what the meta-critic is told of each game; ``None``: all games are on.
        seed: of the coins and the noise.
    """
    rng = np.random.default_rng(seed)
    rounds: list[GameRound] = []
    gained = 0.0
    for t in range(N_ROUNDS):
        if rule is None:
            coins = {name: Coin(0.5, True) for name in TRUE}
        else:
            coins = toss(p_keep_of(rounds, list(TRUE)), t, rng)
        on = [name for name, coin in coins.items() if coin.is_included]
        gained += sum(TRUE[name] for name in on)
        told = sum((rule or TRUE)[name] for name in on) + rng.normal(0.0, NOISE)
        rounds.append(GameRound(round_number=t, coins=coins, change=told))
    return gained / N_ROUNDS, p_keep_of(rounds, list(TRUE)) if rule else {}


def report_society(n_seeds: int = N_SEEDS) -> None:
    """Print gains and what is kept, by rule."""
    print(f"\nMeta-critic, {N_ROUNDS} rounds, noise {NOISE}, {n_seeds} seeds, 95 % t intervals:")
    print(header("rule", "gain per round", *(f"P(keep) {name}" for name in TRUE)))
    rules = {"all games on": None, "kept by the judge": JUDGED, "kept by held-out rewards": TRUE}
    for title, rule in rules.items():
        found = [society(rule, seed) for seed in range(n_seeds)]
        kept = [f"{np.mean([p[name] for _, p in found]):.2f}" if rule else "1.00" for name in TRUE]
        print(row(title, with_half([gain for gain, _ in found]), *kept))


if __name__ == "__main__":
    print(describe_machine())
    report_society()
