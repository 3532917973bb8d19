"""Exact values and best moves of solved games."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from convergence_core.games.solved.hidden_information import (
    KuhnPoker,
    RockPaperScissors,
    kuhn_equilibrium,
)
from convergence_core.games.solved.tree import GameTree, State, TreeGame
from convergence_core.ports import Ask

MovePolicy: TypeAlias = Callable[[str, Sequence[str]], np.ndarray]
"""(what a seat knows, legal moves) -> probabilities, (n_moves,)."""


def uniform(known: str, moves: Sequence[str]) -> np.ndarray:  # noqa: ARG001 - knows nothing
    """Return the same probability for every move."""
    return np.full(len(moves), 1.0 / len(moves))


@dataclass(frozen=True, slots=True, eq=False)
class Solver:
    """A solved game: its value, and moves that lose nothing."""

    tree: GameTree
    value: float
    """To the first seat."""
    policy: MovePolicy

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        """Draw one of its moves."""
        chosen = self.policy(ask.state, ask.options)
        return ask.options[int(rng.choice(len(ask.options), p=chosen))]


class _Minimax:
    """Best moves of a game of perfect information, by backward induction (Zermelo 1913)."""

    def __init__(self, tree: GameTree) -> None:
        self.tree = tree
        self.values: dict[State, float] = {}
        self.best: dict[str, frozenset[str]] = {}

    def value(self, state: State) -> float:
        if state in self.values:
            return self.values[state]
        seat = self.tree.seat(state)
        if seat is None:
            payoff = self.tree.payoff(state)
        else:
            after = {m: self.value(self.tree.after(state, m)) for m in self.tree.moves(state)}
            payoff = max(after.values()) if seat == 0 else min(after.values())
            self.best[self.tree.known(state)] = frozenset(
                m for m, v in after.items() if v == payoff
            )
        self.values[state] = payoff
        return payoff

    def policy(self, known: str, moves: Sequence[str]) -> np.ndarray:
        best = np.array([move in self.best[known] for move in moves], np.float64)
        return np.asarray(best / best.sum(), np.float64)


def solve(game: TreeGame) -> Solver:
    """Return the solver of one of the four games.

    Poker's and rock-paper-scissors' are the closed forms; the others' are found by backward induction.
    """
    tree = game.tree
    if isinstance(tree, KuhnPoker):
        return Solver(tree, -1.0 / 18.0, kuhn_equilibrium)
    if isinstance(tree, RockPaperScissors):
        return Solver(tree, 0.0, uniform)
    minimax = _Minimax(tree)
    return Solver(tree, minimax.value(tree.start()), minimax.policy)
