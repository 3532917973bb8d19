"""Report on the thoughts of a run: numbers, and one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class BestThought:
    """Scored thought with the highest gain."""

    text: str
    """Its notes, or else the reply."""
    strategy: str
    """Its kind: ``notes``, ``none``; in earlier versions one of eight strategies."""
    generation: int
    """From 0."""
    gain: float
    """Mean gain over its outcomes, in nats."""
    se: float | None
    """Standard error of the gain, in nats; ``None`` for a single outcome."""
    n_outcomes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPoint:
    """One generation."""

    generation: int
    """From 0."""
    gain: float | None
    """Mean gain of its forecasts, in nats; ``None`` if none was scored."""
    se: float | None
    """Standard error over its forecasts; a lower bound, because they share surprises."""
    e_value: float | None
    """E-value of this generation."""
    resolution: float | None = None
    """Mean gain of its forecasts over their average, in nats; ``None`` if not measured."""
    resolution_e_value: float | None = None
    """E-value of the resolution in this generation."""
    weight: float | None = None
    """Weight of the model in the draws."""
    has_notes: bool = True
    """Whether notes were written before the forecasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedReport:
    """Settings that the model proposed."""

    n: int
    """Number of evaluated settings."""
    mean: float
    """Mean of their scores."""
    best: float
    name: str | None
    """Label of the best; ``None`` if unknown."""
    others: float | None
    """Mean score of the search's choices in the same generations, if forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingReport:
    """Thoughts of a run."""

    n_thoughts: int
    """Number of requested replies, including failed ones."""
    n_failed: int
    """Number of these that were refused, cut off, unreadable, or failed."""
    n_scored: int
    gain: float | None
    """Mean over generations of their forecasts' mean gain, in nats; ``None`` if nothing was scored."""
    se: float | None
    """Standard error over generations; ``None`` if fewer than two."""
    e_value: float
    """Product of the generations' e-values."""
    top_e_value: float
    """Highest value of the product so far."""
    resolution: float | None = None
    """Mean over generations of their forecasts' mean gain over their average, in nats; ``None`` if
    not measured.
    """
    resolution_e_value: float = 1.0
    """Product of the generations' e-values of the resolution."""
    top_resolution_e_value: float = 1.0
    """Highest value of that product so far."""
    of_notes: tuple[float, float] | None = None
    """Mean gain with notes less that without, and its standard error, in nats; ``None`` if fewer than two of
    each."""
    best: BestThought | None = None
    proposed: ProposedReport | None = None
    n_over_budget: int = 0
    """Number of thoughts refused by the budget."""
    curve: tuple[ThinkingPoint, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why thoughts had no reward or rejected proposals → count."""

    @property
    def n_episodes(self) -> int:
        """Number of generations with a scored thought."""
        return sum(point.gain is not None for point in self.curve)

    @property
    def helped(self) -> bool:
        """Whether thoughts helped by the evidence; wrong with probability at most ``LEVEL``."""
        from convergence_core.rlp.gain import shows_help  # noqa: PLC0415 - brings NumPy

        return shows_help(self.gain, self.top_e_value, self.top_resolution_e_value)

    @property
    def sentence(self) -> str:
        """Summary in one sentence."""
        if self.gain is None:
            return "No thought was scored, so their value is unknown."
        from convergence_core.rlp.gain import LEVEL  # noqa: PLC0415 - brings NumPy

        about = f"{self.gain:+.2f}" + ("" if self.se is None else f" ± {self.se:.2f}") + " nats"
        beyond = (
            f"e-value {_peak_and_last(self.top_e_value, self.e_value)} against the search's posterior, "
            f"{_peak_and_last(self.top_resolution_e_value, self.resolution_e_value)} against their own "
            "average forecasts"
        )
        if self.helped:
            return f"Thoughts helped by {about}; {beyond}. Both passed {1 / LEVEL:.0f}."
        return (
            f"No evidence that thoughts help: {about}; {beyond}. Both must pass {1 / LEVEL:.0f}."
        )


def _peak_and_last(top: float, last: float) -> str:
    """Return an e-value's highest value, with its last one if it differs."""
    highest, now = f"{top:.3g}", f"{last:.3g}"
    return highest if highest == now else f"{highest} at its highest and {now} at the end"
