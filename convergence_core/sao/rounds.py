"""Count of the rounds, and when no further one may be run.

A tenth of all prompts, by hash, is frozen: its pairs are never trained on, distilled or fitted to. In
every round the judge is asked again about some of them; when it agrees with its frozen verdicts by five
points less than it did, or an alarm of coverage fires, the rounds end. Data accumulate and replace
nothing: replacing is what collapses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from convergence_core.records import Json
from convergence_core.sao.preferences import Judgement

FALL: Final = 0.05
"""Fall of the agreement with the frozen verdicts that ends the rounds."""
LEAST_FROZEN: Final = 5
"""Frozen pairs asked again below which their agreement says nothing."""


def agreement(judged_twice: Sequence[tuple[Judgement, Judgement]]) -> float | None:
    """Return the share of frozen verdicts that a judge repeats.

    ``None`` if fewer than ``LEAST_FROZEN`` pairs.
    """
    if len(judged_twice) < LEAST_FROZEN:
        return None
    return sum(a.log_odds * b.log_odds > 0 for a, b in judged_twice) / len(judged_twice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How many rounds were run, and why none may follow."""

    limit: int
    """``iterative_rounds``."""
    n_done: int = 0
    best_agreement: float | None = None
    """Highest agreement with the frozen verdicts so far."""
    stop_reason: str | None = None
    """``None`` means another round may be run. Alarms of coverage are told by ``coverage.Alarms``:
    they end no rounds for good."""

    def after(self, score: float | None) -> "Rounds":
        """Return the state after a round.

        Args:
            score: its agreement with the frozen verdicts; ``None`` if not measured.
        """
        n_done, best, reason = self.n_done + 1, self.best_agreement, self.stop_reason
        if score is not None and best is not None and score <= best - FALL + 1e-12:
            reason = f"the judge repeats {score:.0%} of its frozen verdicts, after {best:.0%}"
        elif n_done >= self.limit:
            reason = f"all {self.limit} rounds were run"
        known = [a for a in (best, score) if a is not None]
        return replace(
            self, n_done=n_done, best_agreement=max(known, default=None), stop_reason=reason
        )

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal state, but for the limit."""
        return {
            "n_done": self.n_done,
            "best_agreement": self.best_agreement,
            "why_ended": self.stop_reason,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], limit: int) -> "Rounds":
        """Rebuild a state from ``to_json``, under today's limit."""
        return cls(
            limit=limit,
            n_done=value["n_done"],
            best_agreement=value["best_agreement"],
            stop_reason=value["why_ended"],
        )
