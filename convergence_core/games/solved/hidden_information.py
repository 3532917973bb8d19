"""Kuhn poker and rock-paper-scissors, whose players know different things."""

from collections.abc import Sequence
from itertools import permutations
from typing import ClassVar, Final

import numpy as np

from convergence_core.games.solved.tree import GameTree, State

CARDS: Final = "JQK"
_ENDS: Final = {"pass pass": 1, "pass bet pass": 1, "pass bet bet": 2, "bet pass": 1, "bet bet": 2}
"""Moves that end a play → what is at stake."""
ALPHA: Final = 1.0 / 6.0
"""Which of the equilibria: how often the first seat bets a jack; any in [0, 1/3] is one."""


class KuhnPoker(GameTree):
    """One card each of J, Q, K; ante 1, one bet of 1.

    Kuhn (1950, "A simplified two-person poker", Contributions to the Theory of Games 1:97): between
    players who err nowhere the first seat loses 1/18 a play.

    A position is (cards of both, moves so far).
    """

    name: ClassVar[str] = "kuhn-poker"
    rules: ClassVar[str] = (
        "Kuhn poker: each has one of the cards J, Q, K, and has paid 1. Bet adds 1, or calls a bet; "
        "pass checks, or folds to a bet. The higher card wins."
    )
    most_moves: ClassVar[tuple[int, int]] = (2, 1)
    most_payoff: ClassVar[float] = 2.0

    def start(self) -> State:
        """Return the position before the deal."""
        return ("", ())

    def chances(self, state: State) -> Sequence[tuple[float, State]]:
        """Return the six deals, equally likely."""
        if state[0]:
            return ()
        return [(1.0 / 6.0, ("".join(two), ())) for two in permutations(CARDS, 2)]

    def seat(self, state: State) -> int | None:
        """Return whose turn it is."""
        return None if " ".join(state[1]) in _ENDS else len(state[1]) % 2

    def moves(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 - the same everywhere
        """Return both moves, legal always."""
        return ("pass", "bet")

    def after(self, state: State, move: str) -> State:
        """Return the position with one more move."""
        return (state[0], (*state[1], move))

    def payoff(self, state: State) -> float:
        """Return what the first seat wins: 1 by a fold or a showdown without bets, 2 with them."""
        history = " ".join(state[1])
        if history == "bet pass":
            return 1.0
        if history == "pass bet pass":
            return -1.0
        is_higher = CARDS.index(state[0][0]) > CARDS.index(state[0][1])
        return float(_ENDS[history] if is_higher else -_ENDS[history])

    def known(self, state: State) -> str:
        """Return one's own card, and what was done."""
        moves = ", ".join(state[1]) or "nothing"
        return f"Your card: {state[0][len(state[1]) % 2]}; moves so far: {moves}"


def kuhn_equilibrium(known: str, moves: Sequence[str]) -> np.ndarray:  # noqa: ARG001 - always both
    """Return an equilibrium's probabilities of pass and bet, (2,) (Kuhn 1950)."""
    card, history = known.removeprefix("Your card: ").split("; moves so far: ")
    bet = {
        "nothing": {"J": ALPHA, "Q": 0.0, "K": 3.0 * ALPHA},
        "pass, bet": {"J": 0.0, "Q": ALPHA + 1.0 / 3.0, "K": 1.0},
        "pass": {"J": 1.0 / 3.0, "Q": 0.0, "K": 1.0},
        "bet": {"J": 0.0, "Q": 1.0 / 3.0, "K": 1.0},
    }[history][card]
    return np.array([1.0 - bet, bet])


class RockPaperScissors(GameTree):
    """Three rounds of rock, paper, scissors; both choose a round at once.

    The second seat's choice comes after the first's and knows nothing of it. Value 0; one choice in
    three each, whatever happened, is the only equilibrium. A position is all choices in their order.
    """

    name: ClassVar[str] = "rock-paper-scissors"
    rules: ClassVar[str] = (
        "Three rounds of rock, paper, scissors, both at once: rock beats scissors, scissors beats "
        "paper, paper beats rock. A round won is worth 1."
    )
    n_rounds: ClassVar[int] = 3
    most_moves: ClassVar[tuple[int, int]] = (3, 3)
    most_payoff: ClassVar[float] = 3.0

    def start(self) -> State:
        """Return the position before the first round."""
        return ()

    def seat(self, state: State) -> int | None:
        """Return whose choice is written down next."""
        return None if len(state) == 2 * self.n_rounds else len(state) % 2

    def moves(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 - the same everywhere
        """Return the three choices."""
        return ("rock", "paper", "scissors")

    def after(self, state: State, move: str) -> State:
        """Return the position with one more choice."""
        return (*state, move)

    def payoff(self, state: State) -> float:
        """Return rounds won by the first seat less those won by the second."""
        numbers = [("rock", "paper", "scissors").index(move) for move in state]
        gaps = [(a - b) % 3 for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
        return float(gaps.count(1) - gaps.count(2))

    def known(self, state: State) -> str:
        """Return the rounds that have ended, one's own choice first."""
        seat, n = len(state) % 2, len(state) // 2 * 2
        pairs = [(state[i + seat], state[i + 1 - seat]) for i in range(0, n, 2)]
        history = "; ".join(f"you {choice}, they {other}" for choice, other in pairs) or "none"
        return f"Rounds so far: {history}"
