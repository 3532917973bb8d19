"""Report of the rounds of games within a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LookReport:
    """The leader's answers to held-out cases at one time."""

    when: str
    """In words, e.g. ``before round 3``."""
    n_cases: int
    """0: no case is held out, or the round's share had no room for them."""
    mean: float | None
    """Mean reward, in [0, 1]; ``None`` means a case has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameReport:
    """One game, over the rounds of the run."""

    game: str
    n_on_offer: int
    """Rounds in which it had a coin."""
    n_included: int
    """Rounds that played it."""
    n_played: int
    n_void: int
    n_lost: int
    cost_usd: float | None
    """Of its plays; ``None`` if a price is unknown."""
    effect: tuple[float, float, float] | None
    """Of a round with it on the held-out reward, with the ends of its posterior interval; ``None``
    means no round with a coin of it was measured."""
    p_keep: float | None
    """P(its effect is above 0), .5 before any was measured; ``None`` if it is off."""
    verdict: str
    """kept, dropped, undecided, on trial, or off."""
    why: str
    """In a sentence or some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GamesReportWithin:
    """What the rounds of games within a run came to."""

    n_rounds: int
    n_plays: int
    """Void and lost ones among them."""
    n_calls: int
    """Replies of models, and of the system as a player."""
    cost_usd: float | None
    """With the looks at held-out cases; ``None`` if a price is unknown."""
    is_offline: bool
    """Whether the built-in mock answered in the models' place."""
    looks: tuple[LookReport, ...]
    """One before each round, and the final test's."""
    n_measured: int
    """Rounds of the system whose effect was measured, those of earlier runs among them."""
    limits: tuple[str, ...]
    """Which rounds ended early, and why: sentences."""
    games: tuple[GameReport, ...]
