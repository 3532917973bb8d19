"""Table of moves that learns from plays, by winners' moves and the solver's alone.

A move is credited if its seat won the play, or if the solver plays it there; other moves leave no mark.
Learning from the losers' moves as well did not converge in published self-play (SPAG, arXiv 2404.10642).

Notation: c(s, m), credits of move m in situation s, 1 at first. The table plays m with probability

    pi(m|s) = c(s, m) / sum_m' c(s, m')

Moves are credited after they were drawn from pi. So credits that are dealt by chance leave E[pi] where it
is (a Pólya urn is a martingale; Pólya 1930): what a table gains it gains from the scores alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.games.game import Transcript
from convergence_core.games.solved.solver import Solver
from convergence_core.games.solved.tree import SEATS, move_of
from convergence_core.ports import Ask

WON: Final = 0.1
"""Credit of a move whose seat won though the solver plays another one: it may have won in spite of it."""
BEST: Final = 1.0
"""Credit of a move that the solver plays."""


@dataclass(frozen=True, slots=True)
class MoveCredit:
    """One move of a play, and whether it is to be learned from."""

    known: str
    moves: tuple[str, ...]
    move: str
    credit: float
    """``BEST``, ``WON`` or 0."""


def credits_of(transcript: Transcript, solver: Solver) -> list[MoveCredit]:
    """Return the credit of each legal move of a play, in their order."""
    found = []
    for turn in transcript.turns:
        ask = turn.ask
        move = move_of(turn.reply, ask.options)
        if move is None:
            continue
        is_won = transcript.scores.by_role[ask.role] > 0.0
        is_best = move in solver.optimal(ask.state, ask.options)
        credit = BEST if is_best else WON if is_won else 0.0
        found.append(MoveCredit(ask.state, ask.options, move, credit))
    return found


class TablePlayer:
    """The table; it answers for either seat.

    Attributes:
        credits: what is known → credits of the legal moves, (n_moves,).
    """

    def __init__(self, credits: Mapping[str, np.ndarray] | None = None) -> None:  # noqa: A002 - its word
        self.credits: dict[str, np.ndarray] = dict(credits or {})

    def policy(self, known: str, moves: Sequence[str]) -> np.ndarray:
        """Return pi, (n_moves,); uniform where nothing was learned."""
        found = self.credits.get(known)
        if found is None:
            return np.full(len(moves), 1.0 / len(moves))
        return np.asarray(found / found.sum(), np.float64)

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        """Draw a move."""
        steps = np.cumsum(self.policy(ask.state, ask.options))
        return ask.options[min(int(np.searchsorted(steps, rng.random())), len(steps) - 1)]

    def learn(self, seen: Sequence[MoveCredit]) -> None:
        """Add credits; those of 0 leave no mark."""
        for one in seen:
            if one.credit > 0.0:
                found = self.credits.setdefault(one.known, np.ones(len(one.moves)))
                found[one.moves.index(one.move)] += one.credit

    def seats(self) -> dict[str, "TablePlayer"]:
        """Return the player in both seats."""
        return dict.fromkeys(SEATS, self)
