"""Language game: a coded protocol that exchanges text, and a score per player.

A game (arXiv 2411.16905, section 5) is a protocol, a generator that yields requests to a role and
receives the replies, and a score, a plain function of the turns. No score is a model's opinion: it
compares the turns with execution results, dealt cards or measurements. The protocol returns
everything that it knows and the roles do not (cards, a label) as *facts*, so that a stored
transcript can be scored again.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from convergence_core.ports import Ask
from convergence_core.records import Json, canonical_json, sha256_hex

Feed = Literal["hard_cases", "trust", "debate", "players"]
"""Purpose of a game: hard cases for review, trust in the judge, whether to run debates, or moves
to learn from."""

Facts: TypeAlias = Mapping[str, Json]
"""Knowledge of the protocol that no role ever sees."""

Turns: TypeAlias = Generator[Ask, str, Facts]
"""Yields requests, receives replies, returns the facts."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Request with its reply."""

    ask: Ask
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Outcome of one game."""

    by_role: Mapping[str, float]
    """Role → finite score in the game's unit, higher is better; empty if the game is void."""
    reason: str = ""
    """Why a role broke the rules or the game is void; empty otherwise."""

    @property
    def is_void(self) -> bool:
        """Whether the game has no result, e.g. for a missing measurement; it never counts as 0."""
        return not self.by_role


@runtime_checkable
class Game(Protocol):
    """A language game."""

    @property
    def id(self) -> str:
        """Unique short name: lower-case letters, digits and ``-``."""

    @property
    def version(self) -> int:
        """Version from 1; increases with every change of protocol or score."""

    @property
    def roles(self) -> tuple[str, ...]:
        """All roles, including those that supply the truth (``evaluator``, ``sandbox``)."""

    @property
    def cost(self) -> Mapping[str, int]:
        """Role → maximum number of requests per game."""

    @property
    def feeds(self) -> Feed:
        """Purpose of the games."""

    @property
    def grounded(self) -> bool:
        """Whether the score depends only on execution results, dealt cards or measurements."""

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Run one game; ``rng`` supplies all randomness."""

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:
        """Return each scored role's score: deterministic, without calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayKey:
    """Identity of one game among those of its kind."""

    run_seed: int
    """Seed of the run, at least 0."""
    round_number: int
    index: int
    """Index within the round and kind of game, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Complete record of one game, sufficient to score it again."""

    game: str
    version: int
    key: PlayKey
    turns: tuple[Turn, ...]
    facts: Facts = field(default_factory=dict)
    scores: Scores

    def to_json(self) -> dict[str, Json]:
        """Return the record as JSON, without its scores."""
        return {
            "game": self.game,
            "version": self.version,
            "run_seed": self.key.run_seed,
            "round": self.key.round_number,
            "index": self.key.index,
            "turns": [[turn.ask.role, turn.ask.text, turn.reply] for turn in self.turns],
            "facts": dict(self.facts),
        }

    @property
    def sha256(self) -> str:
        """Hash of requests, replies and facts."""
        return sha256_hex(canonical_json(self.to_json()))
