"""Tables that learn from their own plays of solved games, beside shuffled scores."""

import time
from dataclasses import replace
from typing import Final

import numpy as np
from scipy.stats import t as student

from convergence_core.games.game import PlayKey
from convergence_core.games.play import play
from convergence_core.games.registry import solved_games
from convergence_core.games.solved.solver import Solver, exploitability, solve
from convergence_core.games.solved.table_player import TablePlayer, credits_of
from convergence_core.games.solved.tree import TreeGame

N_PLAYS: Final = 2_000
N_BATCHES: Final = 20
N_SEEDS: Final = 10


def trained(
    game: TreeGame, solver: Solver, seed: int, *, shuffled: bool, n_plays: int = N_PLAYS
) -> TablePlayer:
    """Return a table after plays against itself; shuffled: credits are dealt to moves by chance."""
    table = TablePlayer()
    rng = np.random.default_rng(seed)
    for batch in range(N_BATCHES):
        seen = []
        for i in range(n_plays // N_BATCHES):
            key = PlayKey(run_seed=seed, round_number=batch, index=i)
            seen += credits_of(play(game, table.seats(), key), solver)
        if shuffled:
            dealt = rng.permutation([one.credit for one in seen])
            seen = [replace(one, credit=float(c)) for one, c in zip(seen, dealt, strict=True)]
        table.learn(seen)
    return table


def mean_and_interval(values: list[float]) -> str:
    """Return mean and 95 % t interval over seeds."""
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {half:.3f}"


def report_learned(n_seeds: int = N_SEEDS) -> None:
    """Print loss and exploitability before and after, by game."""
    print(
        f"\nTables after {N_PLAYS:,} plays against themselves, {n_seeds} seeds, 95 % t intervals:"
    )
    print(
        "| game | loss before | after | shuffled scores | exploitability before | after | CPU s |"
    )
    print("|---|---|---|---|---|---|---|")
    for game in solved_games():
        if game.id == "rock-paper-scissors":  # a table that begins uniform has nothing to learn
            continue
        solver, blank = solve(game), TablePlayer().policy
        losses: dict[bool, list[float]] = {False: [], True: []}
        exploited, spent = [], []
        for seed in range(n_seeds):
            for shuffled in (False, True):
                began = time.process_time()
                table = trained(game, solver, seed, shuffled=shuffled)
                if not shuffled:
                    spent.append(time.process_time() - began)
                    exploited.append(exploitability(game.tree, table.policy))
                losses[shuffled].append(solver.loss(table.policy))
        print(
            f"| {game.id} | {solver.loss(blank):.3f} | {mean_and_interval(losses[False])} | "
            f"{mean_and_interval(losses[True])} | {exploitability(game.tree, blank):.3f} | "
            f"{mean_and_interval(exploited)} | {np.mean(spent):.1f} |"
        )
