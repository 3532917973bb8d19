"""Language game: a coded protocol with text in and out, and a score per player.

A game (arXiv 2411.16905, section 5) is a protocol, a generator that yields what it asks a role and is
sent the reply, and a score, a plain function of the turns. No score is a model's opinion: it compares
the turns with what was executed, dealt or measured. Whatever the protocol knows and the roles do not
(cards dealt, a label) is returned as its *facts*, so that a stored transcript can be scored again.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from convergence_core.ports import Ask
from convergence_core.records import Json, canonical_json, sha256_hex

Feed = Literal["hard_cases", "trust", "debate", "players"]
"""Purpose of a game's plays: hard cases for review, trust in the judge, whether debates are played, moves to
learn from."""

Facts: TypeAlias = Mapping[str, Json]
"""What the protocol knew and the roles did not; never shown to a role."""

Turns: TypeAlias = Generator[Ask, str, Facts]
"""Yields what is asked, is sent the reply, returns the facts."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One ask and its reply."""

    ask: Ask
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Outcome of a play."""

    by_role: Mapping[str, float]
    """Finite, higher is better, in the game's own unit. Empty: the play says nothing."""
    reason: str = ""
    """Why, where a role broke the rules or the play says nothing."""

    @property
    def is_void(self) -> bool:
        """Whether the play says nothing, as when a measurement is missing: it is never counted as 0."""
        return not self.by_role


@runtime_checkable
class Game(Protocol):
    """A language game."""

    @property
    def id(self) -> str:
        """Short name: lower-case letters, digits and ``-``; no two games share one."""
        ...

    @property
    def version(self) -> int:
        """From 1; to be raised with every change of protocol or score."""
        ...

    @property
    def roles(self) -> tuple[str, ...]:
        """Whoever is asked; those that bring the truth (``evaluator``, ``sandbox``) included."""
        ...

    @property
    def cost(self) -> Mapping[str, int]:
        """Role → how often a play asks it at most."""
        ...

    @property
    def feeds(self) -> Feed:
        """What the plays are for."""
        ...

    @property
    def grounded(self) -> bool:
        """Whether the score compares with what was executed, dealt or measured alone."""
        ...

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Play once; all chance is drawn from ``rng``."""
        ...

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:
        """Return each scored role's score: no call, no chance, the same for the same play."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayKey:
    """Which play it is, besides its game."""

    run_seed: int
    """The run's seed, at least 0."""
    round_number: int
    index: int
    """Within the round and game, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A play, whole: enough to score it again."""

    game: str
    version: int
    key: PlayKey
    turns: tuple[Turn, ...]
    facts: Facts = field(default_factory=dict)
    scores: Scores

    def to_json(self) -> dict[str, Json]:
        """Return the play as JSON, without its scores."""
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
        """Hash of the play: of what was asked, replied and known."""
        return sha256_hex(canonical_json(self.to_json()))
