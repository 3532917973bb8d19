"""Alarms of coverage, and their effect.

A full window alarms when its Vendi score or distinct-2 falls below 70 % of the reference, its held-out
coverage falls by .10, or more than 10 % of its texts are duplicates. The reference is the first full
window: there are seldom 200 real prompts, and they have no answers to compare with.

An alarm ends the rounds of a system until a person has looked (``released``); the next round then asks
other personas. The window holds texts of rounds without an alarm alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from convergence_core.judges.coverage.measures import MOST_BIGRAMS, Coverage, measure

LEAST_SHARE: Final = 0.7
"""Least share of the reference's Vendi score and distinct-2."""
MOST_LOSS: Final = 0.10
"""Largest loss of held-out coverage."""
MOST_DUPLICATES: Final = 0.10
ELSEWHERE: Final = 0.382
"""Share of all personas by which an alarm moves the walk."""


def why_alarm(window: Coverage, reference: Coverage) -> str | None:
    """Return the reason for an alarm; ``None`` if there is none, or fewer texts than in the reference."""
    if window.n_texts < reference.n_texts:
        return None
    for name, now, first, form in (
        ("Vendi score", window.vendi, reference.vendi, ".1f"),
        ("distinct-2", window.distinct_2, reference.distinct_2, ".2f"),
    ):
        if now < LEAST_SHARE * first:
            return f"{name} {now:{form}}, of {first:{form}} at first"
    if (
        window.held_out is not None
        and reference.held_out is not None
        # Shares of whole counts: a loss of exactly .10 alarms whatever its floats say.
        and window.held_out <= reference.held_out - MOST_LOSS + 1e-9
    ):
        return f"held-out coverage {window.held_out:.2f}, of {reference.held_out:.2f} at first"
    if window.duplicate_share > MOST_DUPLICATES:
        return f"{window.duplicate_share:.0%} of the texts are duplicates"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """Alarms so far, and how many of them a person has looked into."""

    reference: Coverage | None = None
    """``None``: no window was full yet."""
    n_alarms: int = 0
    n_released: int = 0
    """Alarms that a person has looked into."""
    why: str | None = None
    """The last alarm."""

    @property
    def is_stopped(self) -> bool:
        """Whether an alarm waits for a person, so that no further round is run."""
        return self.n_alarms > self.n_released

    @property
    def moved(self) -> float:
        """How far alarms have moved the walk of personas, as a share of all personas, in [0, 1)."""
        return self.n_alarms * ELSEWHERE % 1.0

    def window(self, texts: Sequence[str], held_out: Sequence[str] = ()) -> Coverage:
        """Return the measures of the last texts, comparable with the reference.

        Args:
            texts: prompts and answers, in the order in which they were written.
            held_out: real prompts that no model here was shown.
        """
        reference = self.reference
        most = MOST_BIGRAMS if reference is None else max(1, reference.n_bigrams)
        return measure(texts, held_out, most_bigrams=most)

    def after(self, window: Coverage) -> "Alarms":
        """Return the state after a round."""
        reference = self.reference or window
        if not reference.is_sufficient:
            return self
        why = why_alarm(window, reference)
        return replace(
            self,
            reference=reference,
            n_alarms=self.n_alarms + (why is not None),
            why=why or self.why,
        )

    def released(self, n: int) -> "Alarms":
        """Return the state once a person has looked into ``n`` alarms."""
        return replace(self, n_released=max(self.n_released, min(n, self.n_alarms)))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Alarms":
        """Rebuild a state from ``asdict``; in earlier versions an alarm could pass without a person."""
        n_alarms, reference = value["n_alarms"], value["reference"]
        has_passed = not value.get("is_stopped", True) and n_alarms - value["n_released"] < 3
        return cls(
            reference=None
            if reference is None
            else Coverage(**{name: reference[name] for name in Coverage.__dataclass_fields__}),
            n_alarms=n_alarms,
            n_released=n_alarms if has_passed else value["n_released"],
            why=value["why"],
        )
