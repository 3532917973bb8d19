"""State of SAO: small numbers, stored with each generation's checkpoint.

Texts, judgements and counters are in the tables; the state holds everything else for the next
round. Unknown keys of older checkpoints are ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from convergence_core.judges.trust import Audit, Trust
from convergence_core.records import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class SaoState:
    """See the module."""

    limit: int
    """``iterative_rounds``: maximum rounds of a run."""
    n_rounds: int = 0
    """Number of rounds in this run."""
    asked: tuple[int, ...] = ()
    """Indices of the personas used in this run."""
    walk_from: int = 0
    """Number of steps in the walk of personas before this run."""
    walk_to: int = 0
    """Number of steps at which this run's walk ends and the next run's starts."""
    trust: Trust = field(default_factory=Trust)
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Text parameter → variants distilled for it, in their order."""

    @property
    def is_believed(self) -> bool:
        """Whether the judge's verdicts may have any effect."""
        return self.trust.is_enabled

    @property
    def stop_reason(self) -> str | None:
        """Why no further round runs; ``None`` if one may."""
        return f"all {self.limit} rounds were run" if self.n_rounds >= self.limit else None

    def after(self, personas: Sequence[int], audit: Audit) -> "SaoState":
        """Return the state after a round.

        Args:
            personas: Indices of its personas.
            audit: Audit of the judge.
        """
        return replace(
            self,
            n_rounds=self.n_rounds + 1,
            asked=(*self.asked, *personas),
            trust=self.trust.after(audit),
        )

    def with_variants(self, texts: Mapping[str, str]) -> "SaoState":
        """Return the state with one more variant of each named text parameter."""
        added = {name: (*self.variants.get(name, ()), text) for name, text in texts.items()}
        return replace(self, variants={**self.variants, **added})

    def next_run(self, *, limit: int, n_personas: int, same_judge: bool) -> "SaoState":
        """Return the initial state of another run of the same system.

        The position in the walk of personas stays. Trust in the judge stays if the same model
        judges. Distilled prompts belong to the evidence of one run.

        Args:
            limit: Maximum rounds of the other run.
            n_personas: Number of personas drawn for it.
            same_judge: Whether it has the same judge.
        """
        return SaoState(
            limit=limit,
            walk_from=self.walk_to,
            walk_to=self.walk_to + n_personas,
            trust=self.trust if same_judge else Trust(),
        )

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        return {
            "rounds": {"n_done": self.n_rounds},
            "asked": [*self.asked],
            "walk": [self.walk_from, self.walk_to],
            "trust": asdict(self.trust),
            "variants": {name: [*texts] for name, texts in self.variants.items()},
        }

    @classmethod
    def from_json(cls, value: Any, *, limit: int) -> "SaoState":
        """Rebuild a state from ``to_json``.

        Args:
            value: as ``to_json`` returned it.
            limit: rounds that a run may have today.
        """
        walk_from, walk_to = value.get("walk", (0, 0))
        return cls(
            limit=limit,
            n_rounds=int(value["rounds"]["n_done"]),
            asked=tuple(value["asked"]),
            walk_from=int(walk_from),
            walk_to=int(walk_to),
            trust=Trust(**value["trust"]),
            variants={k: tuple(texts) for k, texts in value["variants"].items()},
        )
