"""Finite two-player zero-sum game as a tree, and the language game made of it.

The tree holds the rules alone. ``TreeGame`` shows each seat what it may know, reads its move and scores
the payoff; chance is drawn by the protocol and is part of the facts.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from convergence_core.games.game import Facts, Feed, Scores, Turn, Turns
from convergence_core.ports import Ask
from convergence_core.records import Json

State: TypeAlias = Any
"""A position, hashable: all that chance and both seats have done, as far as it matters."""

SEATS: Final = ("first", "second")
_WORD: Final = re.compile(r"[\w-]+")


class GameTree(ABC):
    """Rules of a finite two-player zero-sum game of perfect recall."""

    name: ClassVar[str]
    rules: ClassVar[str]
    """For the players, in plain sentences."""
    most_moves: ClassVar[tuple[int, int]]
    """Of each seat in one play."""
    most_payoff: ClassVar[float]
    """Largest payoff of either seat; what an illegal move loses."""

    @abstractmethod
    def start(self) -> State:
        """Return the first position."""

    def chances(self, state: State) -> Sequence[tuple[float, State]]:  # noqa: ARG002 - none by default
        """Return what chance may do here with its probabilities; empty: it is not its turn."""
        return ()

    @abstractmethod
    def seat(self, state: State) -> int | None:
        """Return whose turn it is, 0 or 1; ``None`` if the game has ended."""

    @abstractmethod
    def moves(self, state: State) -> tuple[str, ...]:
        """Return the legal moves of whose turn it is."""

    @abstractmethod
    def after(self, state: State, move: str) -> State:
        """Return the position after a legal move."""

    @abstractmethod
    def payoff(self, state: State) -> float:
        """Return what the first seat wins at an end; the second loses as much."""

    @abstractmethod
    def known(self, state: State) -> str:
        """Return what the seat whose turn it is knows: equal where it cannot tell positions apart."""


def move_of(reply: str, moves: Sequence[str]) -> str | None:
    """Return the legal move that a reply names, alone or as its only one; ``None``: none or several."""
    plain = reply.strip().casefold()
    if plain in moves:
        return plain
    named = {word for word in _WORD.findall(plain) if word in moves}
    return named.pop() if len(named) == 1 else None


@dataclass(frozen=True, slots=True)
class TreeGame:
    """The language game of a tree: two seats, scored by the payoff."""

    tree: GameTree
    version: int = 1
    roles: ClassVar[tuple[str, ...]] = SEATS
    feeds: ClassVar[Feed] = "players"
    grounded: ClassVar[bool] = True

    @property
    def id(self) -> str:
        """Name of the tree."""
        return self.tree.name

    @property
    def cost(self) -> Mapping[str, int]:
        """Moves of each seat at most."""
        return dict(zip(SEATS, self.tree.most_moves, strict=True))

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Play to the end, or to the first illegal move; facts: what chance did, by its number."""
        dealt: list[Json] = []
        state = self.tree.start()
        while True:
            if chances := self.tree.chances(state):
                k = int(rng.choice(len(chances), p=[p for p, _ in chances]))
                dealt.append(k)
                state = chances[k][1]
                continue
            seat = self.tree.seat(state)
            if seat is None:
                return {"dealt": dealt}
            moves, known = self.tree.moves(state), self.tree.known(state)
            text = f"{self.tree.rules}\n{known}\nReply with {_listed(moves)}."
            reply = yield Ask(role=SEATS[seat], text=text, state=known, options=moves)
            move = move_of(reply, moves)
            if move is None:
                return {"dealt": dealt}
            state = self.tree.after(state, move)

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:
        """Replay the turns; an illegal move loses as much as can be lost."""
        dealt = iter(facts["dealt"])  # type: ignore[arg-type]  # a list, by the protocol
        replies = iter(turns)
        state = self.tree.start()
        while True:
            if chances := self.tree.chances(state):
                state = chances[next(dealt)][1]  # type: ignore[index]  # an int, by the protocol
                continue
            seat = self.tree.seat(state)
            if seat is None:
                return _scores(self.tree.payoff(state))
            move = move_of(next(replies).reply, self.tree.moves(state))
            if move is None:
                lost = self.tree.most_payoff
                reason = f"`{SEATS[seat]}` made no legal move"
                return _scores(-lost if seat == 0 else lost, reason)
            state = self.tree.after(state, move)


def _listed(moves: Sequence[str]) -> str:
    """Return the legal moves as a sentence lists them."""
    if len(moves) == 1:
        return moves[0]
    return f"one of: {', '.join(moves[:-1])} or {moves[-1]}"


def _scores(payoff: float, reason: str = "") -> Scores:
    return Scores(by_role=dict(zip(SEATS, (payoff, -payoff), strict=True)), reason=reason)
