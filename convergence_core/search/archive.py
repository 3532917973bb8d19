"""The evidence of a run: every candidate asked, with the reward of each of its search cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from convergence_core.records import Candidate, Evaluation, Json, Origin, Trial
from convergence_core.search.tallies import Measures, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One candidate and what was seen of it."""

    candidate: Candidate
    generation: int
    """First asked, from 0."""
    rewards: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """(case_id, repeat) → reward in [0, 1]; search cells only."""
    missing: frozenset[tuple[str, int]] = frozenset()
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
        trials = tuple(trials)
        members = dict(self.members)
        for trial in sorted(trials, key=lambda trial: trial.candidate.candidate_id):
            candidate = trial.candidate
            old = members.get(
                candidate.candidate_id, Member(candidate=candidate, generation=generation)
            )
            rewards = dict(old.rewards)
            missing = set(old.missing)
            for evaluation in trial.evaluations:
                if evaluation.cell.role != "search":
                    continue
                cell = (evaluation.cell.case_id, evaluation.cell.repeat)
                if evaluation.reward is None:
                    missing.add(cell)
                else:
                    rewards[cell] = evaluation.reward
            members[candidate.candidate_id] = Member(
                candidate=old.candidate,
                generation=old.generation,
                rewards=dict(sorted(rewards.items())),
                missing=frozenset(missing - rewards.keys()),
                tallies=old.tallies,
            )
        if measures is not None:
            self._tally(members, trials, generation, measures)
        return Archive(members)

    def _tally(
        self,
        members: dict[str, Member],
        trials: Sequence[Trial],
        generation: int,
        measures: Measures,
    ) -> None:
        """Add the trials' cells that are new to the tallies of ``members``."""
        evaluations: dict[str, list[Evaluation]] = {}
        for trial in trials:
            evaluations.setdefault(trial.candidate.candidate_id, []).extend(trial.evaluations)
        for name, own in evaluations.items():
            before = self.members.get(name)
            tallies = measures.tallies(
                members[name].tallies,
                own,
                generation=generation,
                known=() if before is None else before.rewards,
            )
            members[name] = replace(members[name], tallies=tallies)

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
                **_tallies_json(member),
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


def _tallies_json(member: Member) -> dict[str, Json]:
    """Return the entry of a member's tallies; none where there are none."""
    return {"tallies": [tally.to_json() for tally in member.tallies]} if member.tallies else {}
