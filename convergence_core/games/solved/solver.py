"""Exact values, best responses and losses of solved games.

Notation: v, value of the game to the first seat between players who err nowhere; u(p, q), expected
payoff of the first seat when the first plays p and the second q; b(q), best reply's expected payoff.

* Loss of a player against the solver: the mean over both seats of what the solver would have got there
  less what the player gets. 0: it never errs against the solver.
* Exploitability: (b_1(q) + b_2(p)) / 2, what best replies to both halves of a policy win on average; 0
  just in equilibrium (Johanson et al. 2011, "Accelerating best response calculation", eq. 1).
"""

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

_Weighted: TypeAlias = tuple[State, float]


def uniform(known: str, moves: Sequence[str]) -> np.ndarray:  # noqa: ARG001 - knows nothing
    """Return the same probability for every move."""
    return np.full(len(moves), 1.0 / len(moves))


def expected_payoff(tree: GameTree, first: MovePolicy, second: MovePolicy) -> float:
    """Return u(first, second), exactly."""
    found: dict[State, float] = {}

    def value(state: State) -> float:
        if state not in found:
            found[state] = visit(state)
        return found[state]

    def visit(state: State) -> float:
        if chances := tree.chances(state):
            return sum(p * value(after) for p, after in chances)
        seat = tree.seat(state)
        if seat is None:
            return tree.payoff(state)
        moves = tree.moves(state)
        policy = (first, second)[seat](tree.known(state), moves)
        return sum(
            float(p) * value(tree.after(state, move))
            for p, move in zip(policy, moves, strict=True)
            if p > 0.0
        )

    return value(tree.start())


def best_response(tree: GameTree, seat: int, other: MovePolicy) -> float:
    """Return what the best reply of a seat gets against the other one's policy, exactly.

    Positions that the seat cannot tell apart are weighed by how likely chance and the other one led
    there, and get one move: perfect recall makes these choices independent.
    """
    sign = 1.0 if seat == 0 else -1.0
    known_values: dict[State, float] = {}

    def value(belief: list[_Weighted]) -> float:
        # Positions of one belief go on until it is the seat's turn again, or the end.
        total, waiting = 0.0, list(belief)
        own: dict[str, list[_Weighted]] = {}
        while waiting:
            state, weight = waiting.pop()
            if chances := tree.chances(state):
                waiting += [(after, weight * p) for p, after in chances]
                continue
            turn = tree.seat(state)
            if turn is None:
                total += sign * weight * tree.payoff(state)
            elif turn == seat:
                own.setdefault(tree.known(state), []).append((state, weight))
            else:
                moves = tree.moves(state)
                chosen = other(tree.known(state), moves)
                waiting += [
                    (tree.after(state, move), weight * float(p))
                    for p, move in zip(chosen, moves, strict=True)
                    if p > 0.0
                ]
        return total + sum(best(states) for states in own.values())

    def best(states: list[_Weighted]) -> float:
        if len(states) == 1:  # nothing is hidden: its value does not depend on the way there
            state, weight = states[0]
            if state not in known_values:
                known_values[state] = choice([(state, 1.0)])
            return weight * known_values[state]
        return choice(states)

    def choice(states: list[_Weighted]) -> float:
        moves = tree.moves(states[0][0])
        return max(value([(tree.after(s, move), w) for s, w in states]) for move in moves)

    return value([(tree.start(), 1.0)])


def exploitability(tree: GameTree, policy: MovePolicy) -> float:
    """Return the mean over seats of what best replies win against a policy, at least 0."""
    return (best_response(tree, 0, policy) + best_response(tree, 1, policy)) / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Solver:
    """A solved game: its value, and moves that lose nothing."""

    tree: GameTree
    value: float
    """To the first seat."""
    policy: MovePolicy

    def optimal(self, known: str, moves: Sequence[str]) -> frozenset[str]:
        """Return the moves that the solver plays."""
        chosen = self.policy(known, moves)
        return frozenset(move for move, p in zip(moves, chosen, strict=True) if p > 0.0)

    def loss(self, policy: MovePolicy) -> float:
        """Return a policy's loss against the solver, at least 0 up to rounding."""
        as_first = self.value - expected_payoff(self.tree, policy, self.policy)
        as_second = expected_payoff(self.tree, self.policy, policy) - self.value
        return (as_first + as_second) / 2.0

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
            found = self.tree.payoff(state)
        else:
            after = {m: self.value(self.tree.after(state, m)) for m in self.tree.moves(state)}
            found = max(after.values()) if seat == 0 else min(after.values())
            self.best[self.tree.known(state)] = frozenset(
                m for m, v in after.items() if v == found
            )
        self.values[state] = found
        return found

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
    found = _Minimax(tree)
    return Solver(tree, found.value(tree.start()), found.policy)
