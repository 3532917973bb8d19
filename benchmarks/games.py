"""Meta-critic over planted games: what a search's trials reveal about each game's hard cases.

    python -m benchmarks.games --seeds 100

A night is a search of 10 generations with 20 candidates each, which all answer the generation's 12 cases, right or
wrong. Every game has 8 approved cases. A candidate's success probability combines its merit and the case's difficulty.
Its merits on a game's cases and on the user's have the planted correlation; both spread less each generation.
"""

from typing import Final

import numpy as np

from benchmarks.machine import describe_machine, options
from benchmarks.tables import header, row
from convergence_core.games.meta_critic import UNDECIDED, CaseReward, Coin, GameEffect, effects

PLANTED: Final = {"good": 1.0, "fair": 0.6, "idle": 0.0, "still": 0.0, "bad": -0.6, "worse": -1.0}
"""Game → correlation between merits on its cases and on the user's."""
N_NIGHTS, N_GENERATIONS, N_CANDIDATES, N_ASKED, N_CASES, N_APPROVED = 12, 10, 20, 12, 24, 8
SPREAD: Final = (0.2, 0.1)
"""Standard deviation of merits in the first and last generation."""
DIFFICULTY: Final = 0.2
"""Standard deviation of case difficulty."""


def night(
    seed: int, number: int, probability: dict[str, float], rng: np.random.Generator
) -> list[CaseReward]:
    """Return the rewards of a search that includes hard cases by random assignment."""
    names = [(f"{game}-{i}", game) for game in PLANTED for i in range(N_APPROVED)]
    coins = [Coin.of(name, g, probability[g], seed=f"{seed} {number}") for name, g in names]
    used = [names[i] for i, coin in enumerate(coins) if coin.is_used]
    cases: list[tuple[str, str | None]] = [*((f"case-{i}", None) for i in range(N_CASES)), *used]
    hard = rng.normal(0.0, DIFFICULTY, len(cases))
    rewards = []
    for generation, sd in enumerate(np.linspace(*SPREAD, N_GENERATIONS)):
        merit = rng.normal(size=N_CANDIDATES)
        of_game: dict[str | None, np.ndarray] = {None: merit}
        for game, rho in PLANTED.items():
            of_game[game] = rho * merit + (1 - rho**2) ** 0.5 * rng.normal(size=N_CANDIDATES)
        for i in rng.choice(len(cases), N_ASKED, replace=False):
            passed = rng.random(N_CANDIDATES) < 0.5 + sd * of_game[cases[i][1]] + hard[i]
            rewards += [
                CaseReward(run_id=str(number), generation=generation, candidate_id=str(c),
                           case_id=cases[i][0], game=cases[i][1], reward=float(passed[c]))
                for c in range(N_CANDIDATES)
            ]  # fmt: skip
    return rewards


def society(seed: int) -> list[dict[str, GameEffect]]:
    """Return the estimated effect of each game after every night."""
    rng = np.random.default_rng(seed)
    rewards: list[CaseReward] = []
    known: list[dict[str, GameEffect]] = []
    for number in range(N_NIGHTS):
        probability = {
            game: known[-1][game].probability if known else UNDECIDED for game in PLANTED
        }
        rewards += night(seed, number, probability, rng)
        known.append({game: GameEffect.prior() for game in PLANTED} | effects(rewards))
    return known


def are_apart(known: dict[str, GameEffect]) -> bool:
    """Return whether P(keep) exceeds .5 for both useful games and for no useless one."""
    useful, useless = [known["good"], known["fair"]], [known["idle"], known["still"]]
    return min(e.p_keep for e in useful) > 0.5 > max(e.p_keep for e in useless)


def report_society(n_seeds: int) -> None:
    """Print the estimates after 1, 3, 6 and 12 nights."""
    histories = [society(seed) for seed in range(n_seeds)]
    print(
        f"\n{n_seeds} runs: mean P(keep), and the share of runs that tell games apart or drop one"
    )
    print(
        header(
            "nights", *PLANTED, "told apart", "*bad* dropped", "*worse* dropped", "useful dropped"
        )
    )
    for n in (1, 3, 6, 12):
        known = [history[n - 1] for history in histories]
        shown = [f"{np.mean([k[game].p_keep for k in known]):.2f}" for game in PLANTED]
        counts = [
            [are_apart(k) for k in known],
            *([k[game].is_dropped for k in known] for game in ("bad", "worse")),
            [k["good"].is_dropped or k["fair"].is_dropped for k in known],
        ]
        print(row(n, *shown, *(f"{np.mean(count):.0%}" for count in counts)))


if __name__ == "__main__":
    args = options(__doc__, seeds=100)
    print(describe_machine())
    report_society(args.seeds)
