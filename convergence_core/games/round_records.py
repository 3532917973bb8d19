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
"""Level of the intervals of mean scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayRecord(Transcript):
    """One stored play, without secrets in its texts."""

    status: PlayStatus
    """``void`` if it has no result; ``lost`` if a player could not answer."""
    players: Mapping[str, str]
    """Role → name of its player."""
    n_calls: int
    cost_usd: float | None
    """``None`` if a price is unknown."""

    @property
    def play_id(self) -> str:
        """Hash of the play's identity, independent of replies."""
        key = self.key
        identity: list[Json] = [key.run_seed, self.game, self.version, key.round_number, key.index]
        return sha256_hex(canonical_json(identity))[:24]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinRecord:
    """One game in the plan of a round, fixed before the first play."""

    game: str
    version: int
    feeds: Feed
    grounded: bool
    p_keep: float | None = None
    """``None`` if no search used its cases."""
    probability: float | None = None
    """Probability of each of its approved cases in the next search; ``None`` if it finds none."""
    n_plays: int = 0
    off_reason: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "CoinRecord":
        """Rebuild it from ``asdict`` or from its row."""
        return cls(**{f.name: value[f.name] for f in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleScore:
    """Mean score of a role in a round's plays of one game."""

    role: str
    player: str
    n: int
    mean: float
    half_width: float | None
    """Half width of the 95 % t interval; ``None`` for a single play."""
    reference: float | None
    """Score of the solver in this seat against the solver; ``None`` without a solver."""


def role_scores(
    plays: Sequence[PlayRecord], reference: Mapping[str, float] | None = None
) -> tuple[RoleScore, ...]:
    """Return the mean score of each role, over the plays with a result."""
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
    """One game's results in a round, and its effect over all rounds."""

    coin: CoinRecord
    n_played: int
    n_void: int
    n_lost: int
    scores: tuple[RoleScore, ...]
    reasons: Mapping[str, int]
    """Why plays are void or lost, or a role broke a rule → count."""
    cost_usd: float | None
    effect: GameEffect | None
    """Effect in the searches before the round; ``None`` if none used a case of the game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GamesReport:
    """Results of a round of games, with the evidence on each game."""

    system: str
    label: str
    round_number: int
    games: tuple[GameSummary, ...]
    n_plays: int
    n_calls: int
    cost_usd: float | None
    """Cost of all calls; ``None`` if a price is unknown."""
    is_offline: bool
    """Whether the built-in mock replaced the models."""
    limit: str | None
    """Why it ended early; ``None`` if it did not."""
