"""What is learned of preferences: small numbers, kept with each generation's checkpoint.

Texts, judgements and counters are in the tables; a state holds what a further round needs besides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from convergence_core.coverage.alarms import Alarms
from convergence_core.records import Json
from convergence_core.sao.filters import Filter
from convergence_core.sao.preferences import (
    HARD,
    Comparison,
    Judgement,
    Preference,
    Split,
)
from convergence_core.sao.rounds import Rounds, split_of
from convergence_core.trust.audit import Trust
from convergence_core.trust.drift import Drift
from convergence_core.trust.exploitation import Exploitation

ABORTED: Final = "aborted"
"""What drops all pairs of a round whose judge cannot be believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """A comparison that was judged, and whether it was kept."""

    comparison: Comparison
    judgement: Judgement
    dropped_by: Filter | str | None
    """``margin``, ``length_bias`` or ``aborted``; ``None``: kept."""
    round_number: int
    """From 0, within the run."""
    position: int
    """Within the round."""

    @property
    def split(self) -> Split:
        """``audit`` is frozen: never trained on, fitted to or shown."""
        return split_of(self.comparison.prompt)

    @property
    def is_hard(self) -> bool:
        """Whether nobody can tell the answers apart."""
        return abs(self.judgement.log_odds) < HARD

    @property
    def preference(self) -> Preference | None:
        """The preference, if it was kept."""
        if self.dropped_by is not None:
            return None
        return Preference(comparison=self.comparison, judgement=self.judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaoState:
    """See the module."""

    rounds: Rounds
    asked: tuple[int, ...] = ()
    """Indices of the personas that were asked."""
    alarms: Alarms = field(default_factory=Alarms)
    trust: Trust = field(default_factory=Trust)
    drift: Drift = field(default_factory=Drift)
    exploitation: Exploitation = field(default_factory=Exploitation)
    start_weight: float = 0.0
    """The judge's weight before any evidence, as trust has it now."""
    weight: float | None = None
    """Its weight in the draws now; ``None``: it never had one."""
    opinion: Mapping[str, float] = field(default_factory=dict)
    """Candidate → mean reward that the judge predicts."""
    proposals: tuple[str, ...] = ()
    """Candidates among ``opinion`` that nobody had asked, best first, as canonical parameters."""
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Text parameter → variants distilled for it, in their order."""

    @property
    def is_heard(self) -> bool:
        """Whether the judge has a say in the draws."""
        return (
            self.trust.is_enabled
            and not self.exploitation.is_frozen
            and not self.drift.is_alarming
            and not self.alarms.is_off
            and bool(self.opinion)
            and (self.weight or 0.0) > 0.0
        )

    def with_variant(self, name: str, text: str) -> "SaoState":
        """Return the state with one more variant of a text parameter."""
        found = {**self.variants, name: (*self.variants.get(name, ()), text)}
        return replace(self, variants=found)

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        return {
            "rounds": self.rounds.to_json(),
            "asked": [*self.asked],
            "alarms": self.alarms.to_json(),
            "trust": {"n_right": self.trust.n_right, "n_items": self.trust.n_items},
            "drift": self.drift.to_json(),
            "exploitation": self.exploitation.to_json(),
            "start_weight": self.start_weight,
            "weight": self.weight,
            "opinion": dict(self.opinion),
            "proposals": [*self.proposals],
            "variants": {name: [*texts] for name, texts in self.variants.items()},
        }

    @classmethod
    def from_json(cls, value: Any, *, limit: int) -> "SaoState":
        """Rebuild a state from ``to_json``.

        Args:
            value: as ``to_json`` returned it.
            limit: rounds that a run may have today.
        """
        return cls(
            rounds=Rounds.from_json(value["rounds"], limit),
            asked=tuple(value["asked"]),
            alarms=Alarms.from_json(value["alarms"]),
            trust=Trust(**value["trust"]),
            drift=Drift.from_json(value["drift"]),
            exploitation=Exploitation.from_json(value["exploitation"]),
            start_weight=float(value["start_weight"]),
            weight=value["weight"],
            opinion={str(k): float(v) for k, v in value["opinion"].items()},
            proposals=tuple(value["proposals"]),
            variants={k: tuple(texts) for k, texts in value["variants"].items()},
        )
