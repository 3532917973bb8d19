"""Report on the thoughts of a run: numbers, and one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class BestThought:
    """The scored thought of the highest gain."""

    text: str
    """Its notes, or else the reply."""
    strategy: str
    """Its kind: ``notes``, ``none``; in earlier versions one of eight strategies."""
    generation: int
    """From 0."""
    gain: float
    """Mean over its outcomes, in nats."""
    se: float | None
    """Standard error of that, in nats; ``None`` means a single outcome."""
    n_outcomes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPoint:
    """One generation."""

    generation: int
    """From 0."""
    gain: float | None
    """Mean gain of its forecasts, in nats; ``None`` if none was scored."""
    se: float | None
    """Over its forecasts; they share surprises, so it is a lower bound."""
    e_value: float | None
    """Of this generation alone."""
    resolution: float | None = None
    """Mean gain of its forecasts over their own average, in nats; ``None`` if not measured."""
    resolution_e_value: float | None = None
    """Evidence of that, of this generation alone."""
    weight: float | None = None
    """Of the model in the draws."""
    has_notes: bool = True
    """Whether notes were written before the forecasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedReport:
    """Settings that the model proposed itself."""

    n: int
    """Evaluated."""
    mean: float
    """Of their scores."""
    best: float
    name: str | None
    """Label of the best; ``None`` if not known."""
    others: float | None
    """Mean score of the settings that the search chose in the same generations, where it was forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingReport:
    """Thoughts of a run."""

    n_thoughts: int
    """Replies asked for, failed ones included."""
    n_failed: int
    """Of these: refused, cut off, unreadable, or failed."""
    n_scored: int
    gain: float | None
    """Mean over generations of their forecasts' mean gain, in nats; ``None`` if nothing was scored."""
    se: float | None
    """Standard error over generations; ``None`` if fewer than two."""
    e_value: float
    """Product of the generations' e-values."""
    top_e_value: float
    """The highest it ever was."""
    resolution: float | None = None
    """Mean over generations of their forecasts' mean gain over their own average, in nats; ``None`` if not
    measured."""
    resolution_e_value: float = 1.0
    """Product of the generations' e-values of it."""
    top_resolution_e_value: float = 1.0
    """The highest that product ever was."""
    of_notes: tuple[float, float] | None = None
    """Mean gain with notes less that without, and its standard error, in nats; ``None`` if fewer than two of
    each."""
    best: BestThought | None = None
    proposed: ProposedReport | None = None
    n_over_budget: int = 0
    """Thoughts that the budget refused."""
    curve: tuple[ThinkingPoint, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why thoughts earned nothing or proposed in vain → how often."""

    @property
    def n_episodes(self) -> int:
        """Generations with a scored thought."""
        return sum(point.gain is not None for point in self.curve)

    @property
    def helped(self) -> bool:
        """Whether it may be said that thoughts helped; wrong with probability ``LEVEL`` at most."""
        from convergence_core.rlp.gain import shows_help  # noqa: PLC0415 - brings NumPy

        return shows_help(self.gain, self.top_e_value, self.top_resolution_e_value)

    @property
    def sentence(self) -> str:
        """The one sentence."""
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
    """Return an e-value's highest, and its last where that is another."""
    highest, now = f"{top:.3g}", f"{last:.3g}"
    return highest if highest == now else f"{highest} at its highest and {now} at the end"
