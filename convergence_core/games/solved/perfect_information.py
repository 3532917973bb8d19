"""TicTacToe and Nim: nothing is hidden, so each position has a value."""

from typing import ClassVar, Final

from convergence_core.games.solved.tree import GameTree, State

LINES: Final = (
    (0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6),
)  # fmt: skip


class TicTacToe(GameTree):
    """Three in a row on nine squares; a draw if both play well.

    A position is nine characters, ``x``, ``o`` or ``.``; ``x`` begins.
    """

    name: ClassVar[str] = "tic-tac-toe"
    rules: ClassVar[str] = (
        "TicTacToe on squares 1 to 9, row by row. x begins; who has three in a row wins."
    )
    most_moves: ClassVar[tuple[int, int]] = (5, 4)
    most_payoff: ClassVar[float] = 1.0

    def start(self) -> State:
        """Return the empty board."""
        return "." * 9

    def seat(self, state: State) -> int | None:
        """Return who has made fewer moves."""
        if self.payoff(state) or "." not in state:
            return None
        return int(state.count("x") > state.count("o"))

    def moves(self, state: State) -> tuple[str, ...]:
        """Return the numbers of the empty squares."""
        return tuple(str(i + 1) for i, mark in enumerate(state) if mark == ".")

    def after(self, state: State, move: str) -> State:
        """Return the board with one more mark."""
        i = int(move) - 1
        return state[:i] + "xo"[self.seat(state) or 0] + state[i + 1 :]

    def payoff(self, state: State) -> float:
        """Return 1 if x has three in a row, -1 if o has, else 0."""
        for a, b, c in LINES:
            if state[a] != "." and state[a] == state[b] == state[c]:
                return 1.0 if state[a] == "x" else -1.0
        return 0.0

    def known(self, state: State) -> str:
        """Return the board in three rows."""
        return f"Board: {state[:3]} / {state[3:6]} / {state[6:]}"


class Nim(GameTree):
    """Heaps of 3, 4 and 5; who takes the last object wins.

    Solved by Bouton (1901, Annals of Mathematics 3:35): whoever moves wins unless the binary sum
    without carries of the heaps is 0.
    """

    name: ClassVar[str] = "nim"
    rules: ClassVar[str] = (
        "Nim: take any number of objects from one heap; who takes the last object wins. "
        "The move a3 takes three from heap a."
    )
    most_moves: ClassVar[tuple[int, int]] = (6, 6)
    most_payoff: ClassVar[float] = 1.0
    heaps: ClassVar[tuple[int, ...]] = (3, 4, 5)

    def start(self) -> State:
        """Return the heaps and who begins."""
        return (*self.heaps, 0)

    def seat(self, state: State) -> int | None:
        """Return whose turn it is; ``None`` means all heaps are empty."""
        return int(state[-1]) if any(state[:-1]) else None

    def moves(self, state: State) -> tuple[str, ...]:
        """Return heap and number of each move."""
        sizes = enumerate(state[:-1])
        return tuple(f"{'abc'[i]}{n}" for i, size in sizes for n in range(1, size + 1))

    def after(self, state: State, move: str) -> State:
        """Return the heaps after a move."""
        sizes = list(state[:-1])
        sizes["abc".index(move[0])] -= int(move[1:])
        return (*sizes, 1 - state[-1])

    def payoff(self, state: State) -> float:
        """Return 1 if the first seat took the last object, else -1."""
        return 1.0 if state[-1] == 1 else -1.0

    def known(self, state: State) -> str:
        """Return the heaps, and which seat it is."""
        sizes = ", ".join(f"{'abc'[i]}={size}" for i, size in enumerate(state[:-1]))
        return f"Heaps: {sizes}; you are {'first' if state[-1] == 0 else 'second'}"
