"""Contract of samplers: requests, advice, plans and the state of a search.

A sampler is a frozen dataclass of settings. What it learns is a separate, frozen
``SearchState``; ``ask`` and ``tell`` are functions of their arguments alone. Store the state and
the generator's state and a resumed run is the same run. No argument is ever changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from convergence_core.evidence import Archive, Measures
from convergence_core.records import Assignment, Cell, Json, Params, Trial

SETTLED = 0.95
"""Probability behind ``SearchState.regret_upper_bound``."""
REGRET_KEY = "left_to_gain"
"""Of that bound in a sampler's memory, as earlier versions wrote it."""
GENERATION_KEY = "generation"
"""Of the number of generations in a sampler's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert:
    """Source of predicted rewards; enters the draws as far as it is trusted."""

    name: str
    weight: float
    """Probability of a slot beyond the reserved ones; those of all experts add up to 1 at most."""
    points: tuple[Params, ...] = ()
    """Candidates whose reward it predicted."""
    means: tuple[float, ...] = ()
    """Predicted mean rewards, one per point, in [0, 1]."""
    variances: tuple[float, ...] = ()
    """Variances of these predictions, one per point."""
    proposals: tuple[Params, ...] = ()
    """Points that join the pool; its draws alone may choose them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Suggestions of thoughts, preferences and prior runs; may be empty, never binding."""

    proposals: tuple[Params, ...] = ()
    """Points to consider as candidates (origin ``rlp``)."""
    preferred: tuple[Params, ...] = ()
    """Points with texts that were distilled from preferences (origin ``sao``)."""
    written: tuple[Params, ...] = ()
    """Points with texts that were written for this generation (origin ``written``); all are asked,
    as far as the cells go."""
    winners: tuple[Params, ...] = ()
    """Best points of earlier runs, to be asked again first (origin ``elite``)."""
    experts: tuple[Expert, ...] = ()
    """With a weight above 0 they may fill slots; the rest is the sampler's own."""
    reserves: bool = False
    """Whether half of the slots is kept for choices that owe nothing to thoughts. They are the
    same whatever else is advised, so their outcomes can be predicted before the rest is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskRequest:
    """Limits and inputs of a generation to plan."""

    generation: int
    """From 0."""
    n_generations: int
    n_candidates: int
    """Population size: at most this many candidates are new."""
    n_cells: int
    """Capacity: the plan never holds more cells."""
    case_ids: tuple[str, ...]
    """Search cases in the run's order; held-out cases are not among them."""
    repeats: int = 1
    """Repeats a sampler may ask of one case, numbered 0 … repeats-1."""
    n_again: int = 0
    """Further repeats that it may ask of leaders and finalists, to tell noise from merit."""
    baseline: Params | None = None
    """The user's default configuration, to be among generation 0's candidates."""
    advice: Advice = field(default_factory=Advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Cells that a generation evaluates."""

    assignments: tuple[Assignment, ...]
    """One per candidate; no candidate and no cell twice, none of an earlier generation."""
    exogenous: frozenset[Cell] = frozenset()
    """Cells whose choice owed nothing to thoughts or preferences; information gain is measured on
    these."""

    @property
    def n_cells(self) -> int:
        """Cells in all assignments."""
        return sum(len(assignment.cells) for assignment in self.assignments)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """State of a search: the evidence, and the sampler's own memory."""

    archive: Archive = field(default_factory=Archive)
    memory: Mapping[str, Json] = field(default_factory=dict)
    """Small JSON of the sampler's own, e.g. the ids of the current population."""

    @property
    def generation(self) -> int:
        """Generations learned from."""
        number = self.memory.get(GENERATION_KEY, 0)
        return number if isinstance(number, int) else 0

    def tell(self, trials: Sequence[Trial], measures: Measures | None = None) -> "SearchState":
        """Return the state after a generation's trials; their order does not matter.

        Args:
            trials: of the generation.
            measures: what is tallied of cells besides rewards; ``None``: nothing.
        """
        return SearchState(
            archive=self.archive.tell(trials, self.generation, measures),
            memory={**self.memory, GENERATION_KEY: self.generation + 1},
        )

    @property
    def regret_upper_bound(self) -> float | None:
        """``SETTLED`` quantile of how far the best candidate considered lies above the leader.

        Asked or not; in units of reward, at least 0. ``None`` for samplers that know nothing of
        the space, and before the first reward.
        """
        value = self.memory.get(REGRET_KEY)
        return float(value) if isinstance(value, int | float) else None

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        return {"archive": self.archive.to_json(), "memory": dict(self.memory)}

    @classmethod
    def from_json(cls, value: Json) -> "SearchState":
        """Rebuild a state from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        memory = value.get("memory") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(memory, dict):
            raise ValueError(f"not a search state: {str(value)[:80]}")
        return cls(archive=Archive.from_json(value.get("archive")), memory=memory)


@runtime_checkable
class Sampler(Protocol):
    """Chooses candidates and cells; see the module's docstring for the contract."""

    @property
    def name(self) -> str:
        """The value of ``optimization.algorithm`` that selects this sampler."""
        ...

    def start(self) -> SearchState:
        """Return the state before any evidence."""
        ...

    def ask(self, state: SearchState, rng: np.random.Generator, request: AskRequest) -> Plan:
        """Plan a generation; an empty plan says that the sampler knows nothing new to ask."""
        ...

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state after a generation's trials; their order does not matter."""
        ...
