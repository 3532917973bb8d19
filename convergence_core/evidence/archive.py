"""Archive of a run: candidates asked, with the rewards of their search cells."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from convergence_core.evidence.tallies import CellKey, Measures, Tally, key_of
from convergence_core.records import Candidate, Evaluation, Json, Origin, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A candidate with its evidence."""

    candidate: Candidate
    generation: int
    """First asked, from 0."""
    rewards: Mapping[CellKey, float] = field(default_factory=dict)
    """(case_id, repeat) → reward in [0, 1]; search cells only."""
    missing: frozenset[CellKey] = frozenset()
    """Cells asked without a reward: a fault of infrastructure or evaluator, or skipped."""
    tallies: tuple[Tally, ...] = ()
    """Sums over cells that constraints and Pareto runs need; empty where none was asked for."""

    @property
    def n(self) -> int:
        """Rewards seen."""
        return len(self.rewards)


@dataclass(frozen=True, slots=True)
class Archive:
    """All members by candidate id, in the order they were first asked."""

    members: Mapping[str, Member] = field(default_factory=dict)

    def __len__(self) -> int:
        """Candidates asked so far."""
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        """Members in the order they were first asked."""
        return iter(self.members.values())

    def __contains__(self, candidate_id: object) -> bool:
        """Whether this candidate was ever asked."""
        return candidate_id in self.members

    def tell(
        self, trials: Iterable[Trial], generation: int, measures: Measures | None = None
    ) -> "Archive":
        """Return the archive with these trials' search cells added; cells seen twice count once.

        New members enter in the order of their candidate ids, so the order of ``trials`` does
        not matter.

        Args:
            trials: of one generation.
            generation: its number.
            measures: what is tallied of cells besides rewards; ``None``: nothing.
        """
        evaluations: dict[str, list[Evaluation]] = {}
        candidates: dict[str, Candidate] = {}
        for trial in sorted(trials, key=lambda trial: trial.candidate.candidate_id):
            name = trial.candidate.candidate_id
            candidates.setdefault(name, trial.candidate)
            evaluations.setdefault(name, []).extend(trial.evaluations)
        members = dict(self.members)
        for name, own in evaluations.items():
            old = members.get(name, Member(candidate=candidates[name], generation=generation))
            rewards, missing, tallies = dict(old.rewards), set(old.missing), old.tallies
            for evaluation in own:
                if evaluation.cell.role != "search":
                    continue
                if evaluation.reward is None:
                    missing.add(key_of(evaluation))
                else:
                    rewards[key_of(evaluation)] = evaluation.reward
            if measures is not None:
                tallies = measures.tallies(tallies, own, generation=generation, known=old.rewards)
            members[name] = Member(
                candidate=old.candidate,
                generation=old.generation,
                rewards=dict(sorted(rewards.items())),
                missing=frozenset(missing - rewards.keys()),
                tallies=tallies,
            )
        return Archive(members)

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal archive."""
        return [
            {
                "id": member.candidate.candidate_id,
                "params": dict(member.candidate.params),
                "origin": member.candidate.origin,
                "parents": list(member.candidate.parent_ids),
                "generation": member.generation,
                "rewards": [[case, repeat, r] for (case, repeat), r in member.rewards.items()],
                "missing": [[case, repeat] for case, repeat in sorted(member.missing)],
                **({"tallies": [t.to_json() for t in member.tallies]} if member.tallies else {}),
            }
            for member in self
        ]

    @classmethod
    def from_json(cls, value: object) -> "Archive":
        """Rebuild an archive from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
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
                tallies=tuple(Tally.from_json(tally) for tally in row.get("tallies", ())),
            )
        return cls(members)
