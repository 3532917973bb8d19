"""Records of rounds of games: plan, plays and effects."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from scipy.special import stdtrit

from convergence_core.games.game import Feed, Transcript
from convergence_core.games.meta_critic import GameEffect
from convergence_core.records import Json, canonical_json, sha256_hex

PlayStatus: TypeAlias = Literal["played", "void", "lost"]
LEVEL: Final = 0.95
"""Of the intervals of mean scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayRecord(Transcript):
    """One play as it is stored; texts hold no secrets."""

    status: PlayStatus
    """``void``: it says nothing; ``lost``: a player could not answer."""
    players: Mapping[str, str]
    """Role → who played it."""
    n_calls: int
    cost_usd: float | None
    """``None`` if a price is unknown."""

    @property
    def play_id(self) -> str:
        """Hash of what makes the play what it is, before anybody has answered."""
        key = self.key
        identity: list[Json] = [key.run_seed, self.game, self.version, key.round_number, key.index]
        return sha256_hex(canonical_json(identity))[:24]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinRecord:
    """One game in the plan of one round, fixed before anything is played."""

    game: str
    version: int
    feeds: Feed
    grounded: bool
    p_keep: float | None = None
    """``None`` if no search used a case of it."""
    probability: float | None = None
    """Of each of its approved cases in the next search; ``None`` if it finds none."""
    n_plays: int = 0
    off_reason: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "CoinRecord":
        """Rebuild it from what ``asdict`` wrote, or from its row."""
        return cls(**{f.name: value[f.name] for f in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleScore:
    """Mean score of a role in a round's plays of one game."""

    role: str
    player: str
    n: int
    mean: float
    half_width: float | None
    """Of the 95 % t interval; ``None`` means one play."""
    reference: float | None
    """What the solver gets in this seat against the solver; ``None`` means no solver knows the
    game."""


def role_scores(
    plays: Sequence[PlayRecord], reference: Mapping[str, float] | None = None
) -> tuple[RoleScore, ...]:
    """Return the mean of each role that was scored, over the plays that say something."""
    values: dict[str, list[float]] = {}
    for play in plays:
        if play.status == "played":
            for role, value in play.scores.by_role.items():
                values.setdefault(role, []).append(value)
    players = plays[0].players if plays else {}
    return tuple(
        RoleScore(
            role=role,
            player=players.get(role, ""),
            n=len(scores),
            mean=float(np.mean(scores)),
            half_width=_half_width(scores),
            reference=(reference or {}).get(role),
        )
        for role, scores in sorted(values.items())
    )


def _half_width(values: Sequence[float]) -> float | None:
    n = len(values)
    if n < 2:
        return None
    quantile = float(stdtrit(n - 1, 0.5 + LEVEL / 2))
    return quantile * float(np.std(values, ddof=1)) / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class GameSummary:
    """What a round did with one game, and what all rounds say of it."""

    coin: CoinRecord
    n_played: int
    n_void: int
    n_lost: int
    scores: tuple[RoleScore, ...]
    reasons: Mapping[str, int]
    """Why plays are void or lost, or a role broke a rule → how often."""
    cost_usd: float | None
    effect: GameEffect | None
    """By the searches before the round; ``None`` if none used a case of the game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GamesReport:
    """What a round of games did, and what is known of each game."""

    system: str
    label: str
    round_number: int
    games: tuple[GameSummary, ...]
    n_plays: int
    n_calls: int
    cost_usd: float | None
    """Of all calls; ``None`` if a price is unknown."""
    is_offline: bool
    """Whether the built-in mock answered in the models' place."""
    limit: str | None
    """Why it ended early; ``None`` if it did not."""
