"""Builder of a plan: open cells, the order of cases, and the cells left.

New candidates of a generation share chunks of cases (common random numbers). A small generation
shares one chunk; a large one forms groups with a chunk each. Eighty new candidates on five cases
show little about the models or methods that they share. Sixteen groups of five on eighty cases
show more, and case effects correct for the different cases. The first generation shuffles the
cases. Later ones start with the cases seen least, so that chunks rotate and five lucky cases make
no winner.

Additional cells of a candidate start with this generation's chunk and continue with the most
evaluated cases, so that comparisons stay paired. With groups, all known candidates continue with
the cases seen least instead, in one order: comparisons stay paired and cover new cases.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from convergence_core.evidence import Archive, CellKey, Member
from convergence_core.records import Assignment, Candidate, Cell, Origin, Params, sha256_hex
from convergence_core.search.sampler import AskRequest, Plan
from convergence_core.space import Space

MIN_CHUNK = 5
"""Minimum cases per chunk, if there are as many."""
ADVICE_SHARE = 0.25
"""Maximum share of a generation's new candidates per kind of advice."""
WRITTEN_SHARE = 0.5
"""Maximum share for new prompts in a space with other parameters, which the search also needs."""


def default_chunk(n_cases: int) -> int:
    """Return the cases per new candidate while the noise is unknown.

    Args:
        n_cases: Affordable cases per candidate of a population.

    Five cases halve the regret at equal calls on measured tasks (chunks of 3 / 5 / 10: 13.3 / 11.7
    / 13.8). With many cases, the chunk is a quarter of them. A candidate has fixed costs (a task,
    an index, a model to load), so a generation evaluates at most four times its population.
    """
    return min(n_cases, max(MIN_CHUNK, -(-n_cases // 4)))


def informative_chunk(n_cases: int, worth_the_prior: float | None) -> int:
    """Return the cases per new candidate once noise and merit are separable.

    Args:
        n_cases: See ``default_chunk``.
        worth_the_prior: Cells that halve a new candidate's variance; ``None`` if unknown.

    If cases differ much and candidates little, a few answers are luck, and hundreds of lucky new
    candidates hide the best one. In the opposite case a few are enough.
    """
    least = default_chunk(n_cases)
    if worth_the_prior is None:
        return least
    return min(n_cases, max(least, round(min(worth_the_prior, n_cases))))


class PlanBuilder:
    """Plan under construction; lives for one ``ask``."""

    def __init__(
        self, space: Space, archive: Archive, request: AskRequest, rng: np.random.Generator
    ) -> None:
        self.space, self.archive, self.request = space, archive, request
        self.n_left = request.n_cells
        """Remaining capacity in cells."""
        self._cells: dict[str, list[Cell]] = {}
        self._candidates: dict[str, Candidate] = {}
        self.n_new = 0
        """Number of new candidates in the plan."""
        self.is_advised = False
        """Whether advice may influence the cells added from now on."""
        self.n_advisable = 0
        """See ``Plan.n_advisable``."""
        self._advised: set[Cell] = set()
        self.fresh_cases = self._least_seen_first(rng)
        """Cases, those seen least first."""
        self._known_cases = self.fresh_cases
        """Order of cases for known candidates."""
        self._group_cases: tuple[tuple[str, ...], ...] = (self.fresh_cases,)
        """Orders of cases for groups of new candidates, assigned in rotation."""
        self._group: dict[str, int] = {}
        """New candidate → its sequence number."""

    def group_cases(self, chunk: int, *, least_together: int, groups_from: int) -> None:
        """Choose the first cases of new and of known candidates.

        Args:
            chunk: Cases per slot.
            least_together: Minimum new candidates per group, if all slots were theirs.
            groups_from: Minimum slots for groups, each with a separate chunk.
        """
        fresh, n_slots = self.fresh_cases, self.n_left // chunk
        n_groups = min(len(fresh) // chunk, n_slots // least_together)
        if n_slots >= groups_from and n_groups >= 2:
            starts = range(0, n_groups * chunk, chunk)
            self._group_cases = tuple((*fresh[i:], *fresh[:i]) for i in starts)
        else:
            self._known_cases = (*fresh[:chunk], *reversed(fresh[chunk:]))
            self._group_cases = (self._known_cases,)

    def seen(self) -> set[str]:
        """Return the ids of known and planned candidates; for membership tests only."""
        return {*self.archive.members, *self._cells}

    def open_cells(self, candidate_id: str, *, again: bool = False) -> list[CellKey]:
        """Return cells without a reward that are not planned; failed cells come last.

        Args:
            candidate_id: Candidate of the cells.
            again: Whether to include repeats beyond ``repeats``, see ``AskRequest.n_again``.
        """
        member = self.archive.members.get(candidate_id)
        taken = {(cell.case_id, cell.repeat) for cell in self._cells.get(candidate_id, ())}
        cases = self._known_cases
        if member is None:
            number = self._group.get(candidate_id, self.n_new)
            cases = self._group_cases[number % len(self._group_cases)]
        keys = [
            (case, repeat)
            for repeat in range(self.request.repeats + again * self.request.n_again)
            for case in cases
            if (case, repeat) not in taken
        ]
        if member is None:
            return keys
        # Cells that failed in an earlier batch wait for the next generation.
        closed = {*member.rewards, *(member.missing if self.request.batch else ())}
        keys = [key for key in keys if key not in closed]
        return sorted(keys, key=lambda key: key in member.missing)

    def add(self, candidate: Candidate, keys: Iterable[CellKey]) -> int:
        """Plan as many of a candidate's cells as fit; return their number."""
        chosen = list(keys)[: self.n_left]
        if not chosen:
            return 0
        name = candidate.candidate_id
        if name not in self._cells:
            if name not in self.archive:
                self._group[name] = self.n_new
                self.n_new += 1
            self._candidates[name] = candidate
            self._cells[name] = []
        cells = [Cell(candidate_id=name, case_id=case, repeat=repeat) for case, repeat in chosen]
        self._cells[name] += cells
        if self.is_advised:
            self._advised.update(cells)
        self.n_left -= len(chosen)
        return len(chosen)

    def retry_missing(self) -> None:
        """Plan the failed cells of the last generation's new candidates once more."""
        for member in self.archive if self.request.batch == 0 else ():
            if member.missing and member.generation == self.request.generation - 1:
                self.add(member.candidate, self._offered_missing(member))

    def plan(self) -> Plan:
        """Return the plan; cells chosen by advice are not exogenous."""
        assignments = tuple(
            Assignment(
                candidate=candidate,
                cells=tuple(self._cells[name]),
                label=self.space.name(candidate, n=3),
            )
            for name, candidate in self._candidates.items()
        )
        exogenous = frozenset(
            cell
            for assignment in assignments
            if assignment.candidate.origin not in ("rlp", "sao", "written")
            for cell in assignment.cells
            if cell not in self._advised
        )
        return Plan(assignments=assignments, exogenous=exogenous, n_advisable=self.n_advisable)

    def add_probes(self) -> None:
        """Plan one cell of each setting that a hypothesis probes."""
        for candidate in self.proposed_candidates(self.request.advice.probes):
            self.add(candidate, self.open_cells(candidate.candidate_id)[:1])

    def proposed_candidates(self, proposals: Sequence[Params]) -> list[Candidate]:
        """Return the new settings among a hypothesis's proposals."""
        seen = self.seen()
        points = (point for point in proposals if not self.space.validate(point))
        candidates = [self.space.candidate(point, "rlp") for point in points]
        return [candidate for candidate in candidates if candidate.candidate_id not in seen]

    def _n_written(self, n: int) -> int:
        """Return how many of n candidates with new prompts a generation evaluates."""
        if all(parameter.kind == "text" for parameter in self.space.parameters.values()):
            return n
        return min(n, max(1, int(WRITTEN_SHARE * self.request.n_candidates)))

    def priority_candidates(self) -> list[Candidate]:
        """Return the first candidates: a new baseline, winners of earlier runs, then advice.

        Skips points outside the space and known points, since advice never binds.
        """
        candidates: dict[str, Candidate] = {}
        if self.request.baseline is not None:
            candidate = self.space.candidate(self.request.baseline, "default")
            if candidate.candidate_id not in self.archive:
                candidates[candidate.candidate_id] = candidate
        advice = self.request.advice
        offered: tuple[tuple[Sequence[Params], Origin], ...] = (
            (advice.winners, "elite"),
            (advice.preferred, "sao"),
            (advice.written, "written"),
        )
        for points, origin in offered:
            left = max(1, int(ADVICE_SHARE * self.request.n_candidates))
            if origin == "written":
                left = self._n_written(len(points))
            for point in points:
                if not left:
                    break
                if self.space.validate(point):
                    continue
                candidate = self.space.candidate(point, origin)
                name = candidate.candidate_id
                if name not in self.archive and name not in candidates:
                    candidates[name] = candidate
                    left -= 1
        return list(candidates.values())

    def _offered_missing(self, member: Member) -> list[CellKey]:
        """Return the member's missing cells that the request includes."""
        offered = set(self.request.case_ids)
        return [
            (case, repeat)
            for case, repeat in sorted(member.missing)
            if case in offered and repeat < self.request.repeats + self.request.n_again
        ]

    def _count_planned(self) -> dict[str, int]:
        """Return case → number of candidates evaluated on it."""
        counts = dict.fromkeys(self.request.case_ids, 0)
        for member in self.archive:
            for case in member.case_ids & counts.keys():
                counts[case] += 1
        return counts

    def _least_seen_first(self, rng: np.random.Generator) -> tuple[str, ...]:
        cases, counts = self.request.case_ids, self._count_planned()
        if not len(self.archive):
            return tuple(cases[i] for i in rng.permutation(len(cases)))
        # The run's first candidate salts the order of cases seen equally often.
        salt = next(iter(self.archive)).candidate.candidate_id
        return tuple(sorted(cases, key=lambda case: (counts[case], sha256_hex(salt + case))))
