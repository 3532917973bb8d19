"""Contract of samplers: requests, advice, plans and the state of a search.

A sampler is a frozen dataclass of settings. What it learns is a separate, frozen
``SearchState``; ``ask`` and ``tell`` are functions of their arguments alone. Saving the state and
the generator's state makes a resumed run the same run. No method changes an argument.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from convergence_core.evidence import Archive, Measures
from convergence_core.records import Assignment, Cell, Json, Params, Trial, canonical_json

SETTLED = 0.95
"""Probability level of ``SearchState.regret_upper_bound``."""
REGRET_KEY = "left_to_gain"
"""Key of that bound in a sampler's memory; the name is that of earlier versions."""
GENERATION_KEY = "generation"
"""Key of the number of generations in a sampler's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert:
    """Source of predicted rewards, whose influence grows with its weight."""

    weight: float
    """Probability of an unreserved slot, in [0, 1]; all weights sum to at most 1."""
    points: tuple[Params, ...] = ()
    """Candidates with predicted rewards."""
    means: tuple[float, ...] = ()
    """Predicted mean rewards, one per point, in [0, 1]."""
    variances: tuple[float, ...] = ()
    """Variances of these predictions, one per point."""
    proposals: tuple[Params, ...] = ()
    """Points that join the pool; only this expert's draws may choose them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Suggestions from hypotheses, preferences and prior runs; never binding."""

    proposals: tuple[Params, ...] = ()
    """Points that a thought proposes (origin ``rlp``); they get the first unreserved slots."""
    probes: tuple[Params, ...] = ()
    """Points that a thought proposes for one cell each (origin ``rlp``)."""
    preferred: tuple[Params, ...] = ()
    """Points with prompts derived from preferences (origin ``sao``)."""
    written: tuple[Params, ...] = ()
    """Points with prompts written for this generation (origin ``written``); all are evaluated,
    capacity permitting."""
    winners: tuple[Params, ...] = ()
    """Best points of earlier runs, to re-evaluate first (origin ``elite``)."""
    experts: tuple[Expert, ...] = ()
    """Experts; those with a weight above 0 may fill slots, the sampler fills the rest."""
    reserves: bool = False
    """Whether half of the slots are reserved for choices independent of hypotheses. Other advice
    never changes them, so their outcomes can be forecast before the other half is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskRequest:
    """Limits and inputs for planning a generation."""

    generation: int
    """Counted from 0."""
    n_generations: int
    batch: int = 0
    """Number of the batch within its generation, from 0."""
    n_batches: int = 1
    """Batches of the generation; the evidence of each is known before the next is planned."""
    n_candidates: int
    """Population size: maximum number of new candidates."""
    n_cells: int
    """Capacity: maximum number of cells in the plan."""
    case_ids: tuple[str, ...]
    """Search cases in the run's order, without held-out cases."""
    repeats: int = 1
    """Repeats of one case that a sampler may plan, numbered 0 … repeats-1."""
    n_again: int = 0
    """Additional repeats for leaders and finalists, to separate noise from merit."""
    baseline: Params | None = None
    """The user's defaults, a candidate of generation 0."""
    advice: Advice = field(default_factory=Advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Cells that a generation evaluates."""

    assignments: tuple[Assignment, ...]
    """One per candidate; candidates and cells are unique, and no cell repeats an earlier
    generation."""
    exogenous: frozenset[Cell] = frozenset()
    """Cells chosen independently of hypotheses and preferences, which measure information gain."""
    n_advisable: int = 0
    """Slots that a hypothesis may fill if half are reserved; 0 in an end game."""

    @property
    def n_cells(self) -> int:
        """Number of cells in all assignments."""
        return sum(len(assignment.cells) for assignment in self.assignments)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """State of a search: the evidence and the sampler's memory."""

    archive: Archive = field(default_factory=Archive)
    memory: Mapping[str, Json] = field(default_factory=dict)
    """Small JSON value of the sampler, for example hyper-parameters."""

    @property
    def generation(self) -> int:
        """Number of generations in the evidence."""
        number = self.memory.get(GENERATION_KEY, 0)
        return number if isinstance(number, int) else 0

    def tell(self, trials: Sequence[Trial], measures: Measures | None = None) -> "SearchState":
        """Return the state after a generation's trials; their order does not matter.

        Args:
            trials: Trials of the generation.
            measures: Additional quantities to tally besides rewards, or ``None``.
        """
        archive = self.archive.tell(trials, self.generation, measures)
        return SearchState(archive=archive, memory=self.memory).at(self.generation + 1)

    def at(self, generation: int) -> "SearchState":
        """Return the state with another number of generations."""
        return SearchState(
            archive=self.archive, memory={**self.memory, GENERATION_KEY: generation}
        )

    @property
    def regret_upper_bound(self) -> float | None:
        """``SETTLED`` quantile of the best considered candidate's lead over the leader.

        In units of reward, at least 0; includes candidates without an evaluation. ``None`` before
        the first reward, and for samplers without a model of the space.
        """
        value = self.memory.get(REGRET_KEY)
        return float(value) if isinstance(value, int | float) else None

    def to_json(self) -> Json:
        """Return a JSON value for ``from_json``."""
        return {"archive": self.archive.to_json(), "memory": dict(self.memory)}

    @property
    def canonical_json(self) -> str:
        """Canonical JSON of ``to_json``; encodes only members that the last generation changed."""
        archive = ",".join(member.canonical_json for member in self.archive)
        return f'{{"archive":[{archive}],"memory":{canonical_json(dict(self.memory))}}}'

    @classmethod
    def from_json(cls, value: Json) -> "SearchState":
        """Rebuild a state from ``to_json``.

        Raises:
            ValueError: The value does not come from ``to_json``.
        """
        memory = value.get("memory") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(memory, dict):
            raise ValueError(f"not a search state: {str(value)[:80]}")
        return cls(archive=Archive.from_json(value.get("archive")), memory=memory)


@runtime_checkable
class Sampler(Protocol):
    """Chooses candidates and cells; see the module's docstring for the contract.

    Example:
        >>> state = sampler.start()
        >>> plan = sampler.ask(state, rng, request)
        >>> state = sampler.tell(state, [evaluate(a) for a in plan.assignments])
    """

    @property
    def name(self) -> str:
        """The value of ``optimization.algorithm`` that selects this sampler."""

    def start(self) -> SearchState:
        """Return the state before any evidence."""

    def ask(self, state: SearchState, rng: np.random.Generator, request: AskRequest) -> Plan:
        """Plan a generation; the plan is empty if no untried candidate or cell remains."""

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state after a generation's trials; their order does not matter."""
