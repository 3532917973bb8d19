"""Alarms of coverage, and what they do.

A full window alarms when its Vendi score or distinct-2 falls below 70 % of the reference, its held-out
coverage falls by .10, or more than 10 % of its texts are duplicates. The reference is real data where
there are as many, else the first full window.

An alarm stops all rows. Rounds of prompts alone go on, with 30 % real anchors, a temperature higher by .2
(at most 1.2) and personas from elsewhere; after two clean ones rows come again. After the third alarm
nothing goes on until a person says so (``released``).

Anchors only slow a collapse (in the trigram fixture: Vendi 16 instead of 6 after eight rounds), which is
why an alarm stops the rows rather than mending them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from convergence_core.coverage.measures import MOST_BIGRAMS, Coverage
from convergence_core.records import Json

LEAST_SHARE: Final = 0.7
"""Of the reference's Vendi score and distinct-2."""
MOST_LOSS: Final = 0.10
"""Of held-out coverage."""
MOST_DUPLICATES: Final = 0.10
ANCHORS: Final = 0.3
"""Share of real texts shown while an alarm lasts."""
WARMER: Final = 0.2
"""What an alarm adds to the temperature."""
MOST_TEMPERATURE: Final = 1.2
CLEAN_ROUNDS: Final = 2
"""Rounds without an alarm after which rows come again."""
MOST_ALARMS: Final = 3
"""Alarms after which a person must act."""
ELSEWHERE: Final = 0.382
"""Share of all personas by which an alarm moves the walk."""


def why_alarm(found: Coverage, reference: Coverage) -> str | None:
    """Return what a full window alarms about; ``None``: nothing, or it is not full."""
    if not found.is_sufficient:
        return None
    if found.vendi < LEAST_SHARE * reference.vendi:
        return f"Vendi score {found.vendi:.1f}, of {reference.vendi:.1f} at first"
    if found.distinct_2 < LEAST_SHARE * reference.distinct_2:
        return f"distinct-2 {found.distinct_2:.2f}, of {reference.distinct_2:.2f} at first"
    if (
        found.held_out is not None
        and reference.held_out is not None
        # Shares of whole counts: a loss of exactly .10 alarms whatever its floats say.
        and found.held_out <= reference.held_out - MOST_LOSS + 1e-9
    ):
        return f"held-out coverage {found.held_out:.2f}, of {reference.held_out:.2f} at first"
    if found.duplicate_share > MOST_DUPLICATES:
        return f"{found.duplicate_share:.0%} of the texts are duplicates"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """What alarms have done so far."""

    reference: Coverage | None = None
    """``None``: no window was full yet."""
    n_alarms: int = 0
    n_released: int = 0
    """Alarms that a person has looked into."""
    is_stopped: bool = False
    n_clean: int = 0
    """Rounds without an alarm since rows stopped."""
    why: str | None = None
    """The last alarm."""

    @property
    def is_off(self) -> bool:
        """Whether nothing goes on until a person acts."""
        return self.n_alarms - self.n_released >= MOST_ALARMS

    @property
    def gives_rows(self) -> bool:
        """Whether pairs are made and kept."""
        return not self.is_stopped and not self.is_off

    @property
    def anchor_share(self) -> float:
        """Share of real texts to be shown."""
        return ANCHORS if self.is_stopped else 0.0

    @property
    def moved(self) -> float:
        """How far the walk of personas was moved, as a share of all personas, in [0, 1)."""
        return self.n_alarms * ELSEWHERE % 1.0

    def temperature(self, usual: float) -> float:
        """Return the temperature to write with."""
        return max(usual, min(MOST_TEMPERATURE, usual + WARMER)) if self.is_stopped else usual

    def after(self, found: Coverage) -> "Alarms":
        """Return the state after a round's window."""
        if self.is_off:
            return self
        reference = self.reference
        if reference is None:
            if not found.is_sufficient:
                return self
            reference = found
        why = why_alarm(found, reference)
        if why is not None:
            # One lasting collapse is one alarm: a stopped round that is not clean begins anew.
            n = self.n_alarms if self.is_stopped else self.n_alarms + 1
            return replace(
                self, reference=reference, n_alarms=n, is_stopped=True, n_clean=0, why=why
            )
        if not self.is_stopped:
            return replace(self, reference=reference)
        n_clean = self.n_clean + 1
        return replace(
            self,
            reference=reference,
            n_clean=0 if n_clean >= CLEAN_ROUNDS else n_clean,
            is_stopped=n_clean < CLEAN_ROUNDS,
        )

    def released(self, n: int) -> "Alarms":
        """Return the state once a person has looked into ``n`` alarms."""
        return replace(self, n_released=max(self.n_released, min(n, self.n_alarms)))

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        reference = self.reference
        return {
            "reference": None if reference is None else coverage_json(reference),
            "n_alarms": self.n_alarms,
            "n_released": self.n_released,
            "is_stopped": self.is_stopped,
            "n_clean": self.n_clean,
            "why": self.why,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Alarms":
        """Rebuild a state from ``to_json``."""
        found = dict(value)
        reference = found.pop("reference")
        return cls(reference=None if reference is None else Coverage(**reference), **found)


def bigrams_for(reference: Coverage | None) -> int:
    """Return how many bigrams a window to be compared with a reference may have."""
    return MOST_BIGRAMS if reference is None else max(1, reference.n_bigrams)


def coverage_json(coverage: Coverage) -> dict[str, Json]:
    """Return the measures as JSON."""
    return {field.name: getattr(coverage, field.name) for field in fields(coverage)}
