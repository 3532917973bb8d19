"""State of prompt writing: prompts, their origins, and their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from convergence_core.config.prompts import OperatorName
from convergence_core.prompts.failures import Observed, merged
from convergence_core.records import Category, Json, sha256_hex

MOST_OBSERVED: Final = 16
"""Maximum remembered answers of one prompt."""
DRAWN: Final = "drawn"
"""Writer of a prompt that differs from its parent only in demonstrations."""
RULES: Final = "rules"
"""Writer of a prompt from rules."""
KEPT: Final = "kept"
NO_ANSWER: Final = "no_answer"
"""Verdict on a request that failed."""
OVER_BUDGET: Final = "over_budget"
"""Verdict on a request that the budget refused."""
UNTAGGED: Final = "untagged"
"""Verdict on an answer without exactly one pair of ``prompt`` tags around a prompt."""


def text_id_of(text: str) -> str:
    """Return 16 hexadecimal digits of a prompt's SHA-256."""
    return sha256_hex(text)[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One written prompt: kept as a variant, or rejected."""

    mutation_id: str
    generation: int
    parameter: str
    operator: OperatorName
    parent_ids: tuple[str, ...]
    """Ids of its parents."""
    category: Category
    """Failure category of the first parent."""
    propensity: float
    """Probability of parameter and operator, given the parents and the state."""
    failures: tuple[str, ...]
    """Cases in the request."""
    diagnosis: str
    text_id: str
    text: str
    verdict: str
    """``kept``, ``no_answer``, ``over_budget``, ``untagged``, or the invariant that it breaks."""
    writer: str
    """``rules``, or the name of the model."""
    wording_version: str
    cost_usd: float | None = None
    reason: str = ""
    """Why there is no answer."""

    @property
    def is_kept(self) -> bool:
        """Whether the prompt became a variant."""
        return self.verdict == KEPT

    @property
    def is_refused(self) -> bool:
        """Whether there is an answer that did not become a variant."""
        return self.verdict not in (KEPT, NO_ANSWER, OVER_BUDGET)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Mutation":
        """Rebuild what ``asdict`` wrote."""
        lists = {name: tuple(value[name]) for name in ("parent_ids", "failures")}
        return cls(**{**value, **lists})


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptState:
    """Immutable state after a generation, saved with it."""

    mutations: tuple[Mutation, ...] = ()
    """Mutations in the order of writing."""
    observed: Mapping[str, tuple[Observed, ...]] = field(default_factory=dict)
    """Prompt id → its answers, worst first."""
    good: Mapping[str, str] = field(default_factory=dict)
    """Search case → a correct answer."""

    @property
    def variants(self) -> dict[str, list[str]]:
        """Parameter → its kept prompts."""
        by_parameter: dict[str, list[str]] = {}
        for mutation in self.mutations:
            if mutation.is_kept:
                by_parameter.setdefault(mutation.parameter, []).append(mutation.text)
        return by_parameter

    def parents_of(self, parameter: str) -> dict[str, str]:
        """Return kept prompt id → id of its first parent."""
        return {
            mutation.text_id: mutation.parent_ids[0]
            for mutation in self.mutations
            if mutation.is_kept and mutation.parameter == parameter and mutation.parent_ids
        }

    def n_edits_of(self, parameter: str, text: str) -> int:
        """Return the number of edits between a given prompt and this one, along first parents."""
        parents, name, n = self.parents_of(parameter), text_id_of(text), 0
        while name in parents and n < len(parents):
            name, n = parents[name], n + 1
        return n

    def after(self, mutations: Sequence[Mutation]) -> "PromptState":
        """Return the state with further mutations."""
        return replace(self, mutations=(*self.mutations, *mutations))

    def seen(
        self, observed: Mapping[str, Sequence[Observed]], good: Mapping[str, str]
    ) -> "PromptState":
        """Return the state with further answers.

        Args:
            observed: Prompt id → answers.
            good: Search case → a correct answer; the first one is kept.
        """
        known = {
            **self.observed,
            **{
                name: merged(self.observed.get(name, ()), new, MOST_OBSERVED)
                for name, new in observed.items()
            },
        }
        return replace(self, observed=known, good={**good, **self.good})

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        mutations: list[Json] = [
            {name: [*v] if isinstance(v, tuple) else v for name, v in asdict(mutation).items()}
            for mutation in self.mutations
        ]
        return {
            "variants": {name: [*texts] for name, texts in self.variants.items()},
            "mutations": mutations,
            "observed": {
                n: [o.to_json() for o in observations]
                for n, observations in sorted(self.observed.items())
            },
            "good": dict(sorted(self.good.items())),
        }

    @classmethod
    def from_json(cls, value: Json) -> "PromptState":
        """Rebuild what ``to_json`` wrote.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        if not isinstance(value, dict) or "mutations" not in value:
            raise ValueError("not a state of prompt writing")
        v: dict[str, Any] = value  # as ``to_json`` wrote it
        return cls(
            mutations=tuple(Mutation.from_json(item) for item in v["mutations"]),
            observed={
                n: tuple(map(Observed.from_json, items)) for n, items in v["observed"].items()
            },
            good=v["good"],
        )
