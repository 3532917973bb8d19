"""Builder of a plan: open cells, the order of cases, and the cells left.

Cases are asked in chunks that new candidates of a generation share (common random numbers): all of
few, groups of many, a chunk each. Eighty new candidates on five cases tell little of the models or
methods they have in common; sixteen groups of five on eighty cases tell more, and that they met
different cases is made up for by the cases' effects. The first generation shuffles the cases; later
ones begin with the cases seen least, so that chunks rotate and no winner is made by five lucky cases.
Further cells of a candidate begin with the chunk of this generation, then take the cases most others
have been asked: comparisons stay paired. Where there are groups, all known candidates take the cases
seen least instead, in one order: still paired, and what they have in common is seen on new cases.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from convergence_core.evidence import Archive, CellKey, Member
from convergence_core.records import Assignment, Candidate, Cell, Origin, Params, sha256_hex
from convergence_core.search.sampler import AskRequest, Plan
from convergence_core.space import Space

MIN_CHUNK = 5
"""Cases of a chunk, if there are so many."""
ADVICE_SHARE = 0.25
"""Share of a generation's new candidates that each kind of advice may take."""
WRITTEN_SHARE = 0.5
"""The same of new texts, where the space holds more than texts: what else it holds is searched, too."""


def default_chunk(n_cases: int) -> int:
    """Return how many cases a new candidate is asked before anything is known of the noise.

    Args:
        n_cases: cases that a generation could ask each candidate of a population.

    Five cases halve the regret at equal calls on measured tasks (chunks of 3 / 5 / 10: 13.3 /
    11.7 / 13.8). Where there are many, a quarter of them: a candidate costs more than its cells (a
    task, an index, a model to load), so a generation tries four times its population at most.
    """
    return min(n_cases, max(MIN_CHUNK, -(-n_cases // 4)))


def informative_chunk(n_cases: int, worth_the_prior: float | None) -> int:
    """Return how many cases a new candidate is asked once noise and merit were told apart.

    Args:
        n_cases: as above.
        worth_the_prior: cells that leave half the variance of a new candidate; ``None``: unknown.

    Where questions differ much and candidates little, a few answers are luck, and hundreds of
    lucky new candidates hide the best one; where it is the other way round, a few are enough.
    """
    least = default_chunk(n_cases)
    if worth_the_prior is None:
        return least
    return min(n_cases, max(least, round(min(worth_the_prior, n_cases))))


class PlanBuilder:
    """A plan in the making; used within one ``ask`` and never kept."""

    def __init__(
        self, space: Space, archive: Archive, request: AskRequest, rng: np.random.Generator
    ) -> None:
        self.space, self.archive, self.request = space, archive, request
        self.n_left = request.n_cells
        """Cells that still fit."""
        self._cells: dict[str, list[Cell]] = {}
        self._candidates: dict[str, Candidate] = {}
        self.n_new = 0
        """Candidates never asked before."""
        self.is_advised = False
        """Whether advice may have had a say in what is added from now on."""
        self.n_advisable = 0
        """See ``Plan``."""
        self._advised: set[Cell] = set()
        self.fresh_cases = self._least_seen_first(rng)
        """Cases, those seen least first."""
        self._known_cases = self.fresh_cases
        """In the order that known candidates are asked."""
        self._group_cases: tuple[tuple[str, ...], ...] = (self.fresh_cases,)
        """In the orders that groups of new candidates are asked, which join them in turn."""
        self._group: dict[str, int] = {}
        """New candidate → its number among them."""

    def group_cases(self, chunk: int, *, least_together: int, groups_from: int) -> None:
        """Choose the cases that new and known candidates begin with.

        Args:
            chunk: cases of one slot.
            least_together: members of a group of new candidates, were all slots theirs.
            groups_from: slots from which on there are groups, each with a chunk of its own.
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
        """Return ids of candidates asked before or planned; for membership only."""
        return {*self.archive.members, *self._cells}

    def open_cells(self, candidate_id: str, *, again: bool = False) -> list[CellKey]:
        """Return cells neither rewarded nor planned: first unasked ones, then missing ones.

        Args:
            candidate_id: of the candidate.
            again: whether those beyond ``repeats`` are among them, see ``AskRequest.n_again``.
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
        # What an earlier batch of the generation lost waits for the next generation.
        closed = {*member.rewards, *(member.missing if self.request.batch else ())}
        keys = [key for key in keys if key not in closed]
        return sorted(keys, key=lambda key: key in member.missing)

    def add(self, candidate: Candidate, keys: Iterable[CellKey]) -> int:
        """Plan cells of a candidate as far as they fit; return how many did."""
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
        """Ask once more the cells of the last generation's new candidates that got no reward."""
        for member in self.archive if self.request.batch == 0 else ():
            if member.missing and member.generation == self.request.generation - 1:
                self.add(member.candidate, self._offered_missing(member))

    def plan(self) -> Plan:
        """Return the plan; cells that advice chose are not exogenous."""
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
        """Plan one cell of each setting that a hypothesis wants probed."""
        for candidate in self.proposed_candidates(self.request.advice.probes):
            self.add(candidate, self.open_cells(candidate.candidate_id)[:1])

    def proposed_candidates(self, proposals: Sequence[Params]) -> list[Candidate]:
        """Return the settings that a hypothesis wants evaluated, new ones alone."""
        seen = self.seen()
        points = (point for point in proposals if not self.space.validate(point))
        candidates = [self.space.candidate(point, "rlp") for point in points]
        return [candidate for candidate in candidates if candidate.candidate_id not in seen]

    def _n_written(self, n: int) -> int:
        """Return how many of n candidates with new texts a generation asks."""
        if all(parameter.kind == "text" for parameter in self.space.parameters.values()):
            return n
        return min(n, max(1, int(WRITTEN_SHARE * self.request.n_candidates)))

    def priority_candidates(self) -> list[Candidate]:
        """Return candidates that go first: the baseline, until it was asked, old winners, advice.

        Advice never binds: a point outside of the space, or known already, is passed over.
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
        """Return missing cells that the request still offers."""
        offered = set(self.request.case_ids)
        return [
            (case, repeat)
            for case, repeat in sorted(member.missing)
            if case in offered and repeat < self.request.repeats + self.request.n_again
        ]

    def _count_planned(self) -> dict[str, int]:
        """Return case → candidates that were asked it."""
        counts = dict.fromkeys(self.request.case_ids, 0)
        for member in self.archive:
            for case in member.case_ids & counts.keys():
                counts[case] += 1
        return counts

    def _least_seen_first(self, rng: np.random.Generator) -> tuple[str, ...]:
        cases, counts = self.request.case_ids, self._count_planned()
        if not len(self.archive):
            return tuple(cases[i] for i in rng.permutation(len(cases)))
        # The first candidate of the run salts the order among cases seen equally often.
        salt = next(iter(self.archive)).candidate.candidate_id
        return tuple(sorted(cases, key=lambda case: (counts[case], sha256_hex(salt + case))))
