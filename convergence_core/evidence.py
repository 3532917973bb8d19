"""Evidence of a run: its candidates, their rewards, and sums over their cells.

A tally holds the count, sum and sum of squares of one quantity over the cells that one generation
evaluated for one candidate. A state therefore grows with candidates rather than cells, and the
state after an earlier generation can be rebuilt.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

from convergence_core.objective import RewardModel
from convergence_core.records import Candidate, Evaluation, Json, Origin, Trial, canonical_json

KEPT = "kept"
"""Quantity: 1 for a cell that satisfies every hard constraint, else 0."""
METRIC = "metric:"
"""Prefix of quantities that are scaled metrics in [0, 1], where 1 is good."""

CellKey = tuple[str, int]
"""(case_id, repeat)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Sums of one quantity over some cells of one candidate."""

    name: str
    """Name of the quantity."""
    generation: int
    """Generation that evaluated the cells."""
    n: int
    """Number of cells with a known quantity, at least 1."""
    total: float
    squares: float
    """Sum of squares."""

    def to_json(self) -> Json:
        """Return a JSON value for ``from_json``."""
        return [self.name, self.generation, self.n, self.total, self.squares]

    @classmethod
    def from_json(cls, value: Sequence[object]) -> "Tally":
        """Rebuild a tally from ``to_json``."""
        name, generation, n, total, squares = value
        return cls(name=name, generation=generation, n=n, total=total, squares=squares)  # type: ignore[arg-type]  # as written


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Quantities to tally, and their values in a cell."""

    rewards: RewardModel
    constraints: bool
    """Whether to count cells that satisfy the hard constraints."""
    metrics: tuple[str, ...] = ()
    """Metrics whose scaled values are summed."""

    def of(self, evaluation: Evaluation) -> dict[str, float]:
        """Return quantity → value of a cell with a reward; unknown quantities are absent.

        If a candidate fails before the measurement, every metric is 0, like the reward; whether
        the cell would have satisfied the constraints stays unknown.
        """
        quantities: dict[str, float | None] = {}
        if self.constraints:
            broken = self.rewards.breaks(evaluation.metrics)
            quantities[KEPT] = None if broken is None else float(not broken)
        parts = self.rewards.parts(evaluation.metrics) if self.metrics else {}
        unknown = 0.0 if evaluation.fault == "candidate" else None
        quantities |= {METRIC + name: parts.get(name, unknown) for name in self.metrics}
        return {name: value for name, value in quantities.items() if value is not None}

    def tallies(
        self,
        old: Sequence[Tally],
        evaluations: Iterable[Evaluation],
        *,
        generation: int,
        known: Iterable[CellKey],
    ) -> tuple[Tally, ...]:
        """Return a candidate's tallies with these search cells added.

        Args:
            old: Tallies of the candidate so far.
            evaluations: Evaluations in any order; those without a reward do not count.
            generation: Generation of evaluations that name none.
            known: Cells already in ``old``; no cell counts twice.
        """
        cells = set(known)
        sums = {(t.name, t.generation): (t.n, t.total, t.squares) for t in old}
        for evaluation in sorted(evaluations, key=key_of):
            key = key_of(evaluation)
            if evaluation.cell.role != "search" or evaluation.reward is None or key in cells:
                continue
            cells.add(key)
            number = generation if evaluation.generation is None else evaluation.generation
            for name, value in self.of(evaluation).items():
                n, total, squares = sums.get((name, number), (0, 0.0, 0.0))
                sums[name, number] = n + 1, total + value, squares + value * value
        return tuple(
            Tally(name=name, generation=number, n=n, total=total, squares=squares)
            for (name, number), (n, total, squares) in sorted(sums.items())
        )


def total_of(tallies: Iterable[Tally], name: str) -> tuple[int, float, float]:
    """Return count, sum and sum of squares of one quantity over all generations."""
    selected = [tally for tally in tallies if tally.name == name]
    return (
        sum(t.n for t in selected),
        sum(t.total for t in selected),
        sum(t.squares for t in selected),
    )


def key_of(evaluation: Evaluation) -> CellKey:
    """Return the case and the repeat of an evaluation."""
    return evaluation.cell.case_id, evaluation.cell.repeat


@dataclass(frozen=True, kw_only=True)
class Member:
    """Candidate with its evidence; caches values, since many archives share a member."""

    candidate: Candidate
    generation: int
    """Generation of its first evaluation, from 0."""
    rewards: Mapping[CellKey, float] = field(default_factory=dict)
    """(case_id, repeat) → reward in [0, 1]; search cells only."""
    missing: frozenset[CellKey] = frozenset()
    """Evaluated cells without a reward: skipped, or failed by infrastructure or evaluator."""
    unmeasured: frozenset[CellKey] = frozenset()
    """Cells of ``missing`` with an answer that a metric could not measure: evaluator fault."""
    tallies: tuple[Tally, ...] = ()
    """Sums over cells for constraints and Pareto runs; empty if neither needs them."""

    @cached_property
    def n(self) -> int:
        """Number of rewards."""
        return len(self.rewards)

    @cached_property
    def total(self) -> float:
        """Sum of the rewards."""
        return sum(self.rewards.values())

    @cached_property
    def case_ids(self) -> frozenset[str]:
        """Test cases with a reward."""
        return frozenset(case_id for case_id, _ in self.rewards)

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value for ``Archive.from_json``."""
        return {
            "id": self.candidate.candidate_id,
            "params": dict(self.candidate.params),
            "origin": self.candidate.origin,
            "parents": list(self.candidate.parent_ids),
            "generation": self.generation,
            "rewards": [[case, repeat, r] for (case, repeat), r in self.rewards.items()],
            "missing": [[case, repeat] for case, repeat in sorted(self.missing)],
            **(
                {"unmeasured": [[*key] for key in sorted(self.unmeasured)]}
                if self.unmeasured
                else {}
            ),
            **({"tallies": [t.to_json() for t in self.tallies]} if self.tallies else {}),
        }

    @cached_property
    def canonical_json(self) -> str:
        """Canonical JSON of ``to_json``."""
        return canonical_json(self.to_json())


@dataclass(frozen=True, slots=True)
class Archive:
    """All members by candidate id, in order of their first evaluation.

    Example:
        >>> archive = Archive().tell(trials, generation=0)
        >>> [member.n for member in archive]
    """

    members: Mapping[str, Member] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of evaluated candidates."""
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        """Iterate over members in order of first evaluation."""
        return iter(self.members.values())

    def __contains__(self, candidate_id: object) -> bool:
        """Return whether this candidate was evaluated."""
        return candidate_id in self.members

    def tell(
        self, trials: Iterable[Trial], generation: int, measures: Measures | None = None
    ) -> "Archive":
        """Return the archive with these trials' search cells added; repeated cells count once.

        New members enter in the order of their candidate ids, so the order of ``trials`` does not
        matter.

        Args:
            trials: Trials of one generation.
            generation: Number of the generation.
            measures: Additional quantities to tally besides rewards, or ``None``.
        """
        evaluations: dict[str, list[Evaluation]] = {}
        candidates: dict[str, Candidate] = {}
        for trial in sorted(trials, key=lambda trial: trial.candidate.candidate_id):
            name = trial.candidate.candidate_id
            candidates.setdefault(name, trial.candidate)
            evaluations.setdefault(name, []).extend(trial.evaluations)
        members = dict(self.members)
        for name, added in evaluations.items():
            old = members.get(name, Member(candidate=candidates[name], generation=generation))
            rewards, missing, tallies = dict(old.rewards), set(old.missing), old.tallies
            unmeasured = set(old.unmeasured)
            for evaluation in added:
                if evaluation.cell.role != "search":
                    continue
                if evaluation.reward is None:
                    missing.add(key_of(evaluation))
                    if evaluation.fault == "evaluator":
                        unmeasured.add(key_of(evaluation))
                else:
                    rewards[key_of(evaluation)] = evaluation.reward
            if measures is not None:
                tallies = measures.tallies(
                    tallies, added, generation=generation, known=old.rewards
                )
            members[name] = Member(
                candidate=old.candidate,
                generation=old.generation,
                rewards=dict(sorted(rewards.items())),
                missing=frozenset(missing - rewards.keys()),
                unmeasured=frozenset(unmeasured - rewards.keys()),
                tallies=tallies,
            )
        return Archive(members)

    def to_json(self) -> Json:
        """Return a JSON value for ``from_json``."""
        return [member.to_json() for member in self]

    @classmethod
    def from_json(cls, value: object) -> "Archive":
        """Rebuild an archive from ``to_json``.

        Raises:
            ValueError: The value does not come from ``to_json``.
        """
        if not isinstance(value, list):
            raise ValueError(f"not an archive: {str(value)[:80]}")
        members: dict[str, Member] = {}
        for row in value:
            if row["origin"] not in get_args(Origin):
                raise ValueError(f"unknown origin {row['origin']!r}")
            members[row["id"]] = Member(
                candidate=Candidate(
                    candidate_id=row["id"],
                    params=row["params"],
                    origin=row["origin"],
                    parent_ids=tuple(row["parents"]),
                ),
                generation=row["generation"],
                rewards={(case, repeat): reward for case, repeat, reward in row["rewards"]},
                missing=frozenset((case, repeat) for case, repeat in row["missing"]),
                unmeasured=frozenset((case, n) for case, n in row.get("unmeasured", ())),
                tallies=tuple(Tally.from_json(tally) for tally in row.get("tallies", ())),
            )
        return cls(members)
