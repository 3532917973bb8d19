"""What is learned of preferences: small numbers, kept with each generation's checkpoint.

Texts, judgements and counters are in the tables; a state holds what a further round needs besides.
Checkpoints of earlier versions hold more keys (the judge's say in the draws), which are passed over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from convergence_core.judges.coverage.alarms import Alarms, Windows
from convergence_core.judges.trust.audit import Audit, Trust
from convergence_core.judges.trust.drift import Drift
from convergence_core.judges.trust.exploitation import Exploitation, Standing
from convergence_core.records import Json
from convergence_core.sao.filters import Filter
from convergence_core.sao.preferences import Comparison, Judgement, Preference, Split
from convergence_core.sao.rounds import Rounds, split_of

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
    is_collapsed: bool = False
    """Whether the texts of its round raised an alarm of coverage."""

    @property
    def split(self) -> Split:
        """``audit`` is frozen: never trained on, fitted to or shown."""
        return split_of(self.comparison.prompt)

    @property
    def teaches(self) -> bool:
        """Whether its judgement may have any effect, if its judge is believed.

        Those of frozen prompts may not, nor those of a round that was aborted or raised an alarm of coverage.
        """
        return self.split == "train" and self.dropped_by != ABORTED and not self.is_collapsed

    @property
    def preference(self) -> Preference | None:
        """The preference, if it was kept."""
        if self.dropped_by is not None:
            return None
        return Preference(comparison=self.comparison, judgement=self.judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLessons:
    """What a round found, as the state after it needs it."""

    found: Audit
    coverage: Windows
    agreement_with_frozen: float | None
    standing: Standing | None
    """The incumbent as judge and rewards see it; ``None``: the judge did not compare it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaoState:
    """See the module."""

    rounds: Rounds
    asked: tuple[int, ...] = ()
    """Indices of the personas that were asked in this run."""
    walk_from: int = 0
    """Steps of the walk of personas that earlier runs have taken."""
    walk_to: int = 0
    """Steps after which the walk of this run ends, and a further run's begins."""
    alarms: Alarms = field(default_factory=Alarms)
    trust: Trust = field(default_factory=Trust)
    drift: Drift = field(default_factory=Drift)
    exploitation: Exploitation = field(default_factory=Exploitation)
    n_silences: int = 0
    """How often drift or exploitation silenced the judge."""
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Text parameter → variants distilled for it, in their order."""

    @property
    def is_silenced(self) -> bool:
        """Whether drift or exploitation silences the judge, whatever its trust."""
        return self.exploitation.is_frozen or self.drift.is_alarming

    @property
    def is_believed(self) -> bool:
        """Whether what the judge said may have any effect: its trust suffices and nothing silences it."""
        return self.trust.is_enabled and not self.is_silenced

    def after(self, lessons: RoundLessons, asked: Sequence[int]) -> "SaoState":
        """Return the state after a round.

        Args:
            lessons: what it found.
            asked: indices of its personas.
        """
        drift, exploitation = self.drift, self.exploitation
        if lessons.standing is not None:
            drift = drift.after(lessons.standing.judge_mean, lessons.standing.grounded_mean)
            exploitation = exploitation.after(lessons.standing)
        found = replace(
            self,
            rounds=self.rounds.after(lessons.agreement_with_frozen),
            asked=(*self.asked, *asked),
            alarms=self.alarms.after(lessons.coverage),
            trust=self.trust.after(lessons.found),
            drift=drift,
            exploitation=exploitation,
        )
        begins = found.is_silenced and not self.is_silenced
        return replace(found, n_silences=self.n_silences + begins)

    def with_variant(self, name: str, text: str) -> "SaoState":
        """Return the state with one more variant of a text parameter."""
        found = {**self.variants, name: (*self.variants.get(name, ()), text)}
        return replace(self, variants=found)

    def released(self, *, alarms: int, silences: int) -> "SaoState":
        """Return the state once a person has looked into so many alarms and silences.

        A judge that is silenced begins to be watched anew then.
        """
        found = replace(self, alarms=self.alarms.released(alarms))
        if not self.is_silenced or self.n_silences > silences:
            return found
        return replace(found, drift=Drift(), exploitation=Exploitation())

    def next_run(self, *, limit: int, n_personas: int, same_judge: bool) -> "SaoState":
        """Return what a further run of the same system begins with.

        What is known of the texts goes on: alarms, and where the walk of personas stands. What is known
        of the judge goes on as long as the same one judges: trust, drift, exploitation, and how far it
        repeated itself. Distilled texts belong to a run's own evidence.

        Args:
            limit: rounds that the further run may have.
            n_personas: personas drawn for it.
            same_judge: whether its judge is this state's.
        """
        known = SaoState(
            rounds=Rounds(limit=limit),
            walk_from=self.walk_to,
            walk_to=self.walk_to + n_personas,
            alarms=self.alarms,
        )
        if not same_judge:
            return known
        return replace(
            known,
            rounds=Rounds(limit=limit, best_agreement=self.rounds.best_agreement),
            trust=self.trust,
            drift=self.drift,
            exploitation=self.exploitation,
            n_silences=self.n_silences,
        )

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        return {
            "rounds": self.rounds.to_json(),
            "asked": [*self.asked],
            "walk": [self.walk_from, self.walk_to],
            "n_silences": self.n_silences,
            "alarms": self.alarms.to_json(),
            "trust": {
                "n_right": self.trust.n_right,
                "n_items": self.trust.n_items,
                "n_different": self.trust.n_different,
            },
            "drift": self.drift.to_json(),
            "exploitation": self.exploitation.to_json(),
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
            rounds=Rounds.from_json(value["rounds"], limit),
            asked=tuple(value["asked"]),
            walk_from=int(walk_from),
            walk_to=int(walk_to),
            n_silences=int(value.get("n_silences", 0)),
            alarms=Alarms.from_json(value["alarms"]),
            trust=Trust(**value["trust"]),
            drift=Drift.from_json(value["drift"]),
            exploitation=Exploitation.from_json(value["exploitation"]),
            variants={k: tuple(texts) for k, texts in value["variants"].items()},
        )
