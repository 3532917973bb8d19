"""Building a plan: which cells are open, in which order cases are asked, what still fits.

Cases are asked in chunks that newcomers of a generation share (common random numbers): all of few,
groups of many, a chunk each. What eighty newcomers say of five cases says little of the models or
methods they have in common; what sixteen groups of five say of eighty cases says more, and who met
which cases is made up for by the cases' effects. The first generation shuffles the cases; later ones
begin with the cases seen least, so that chunks rotate and no winner is made by five lucky cases.
Further cells of a candidate begin with the chunk of this generation, then take the cases most others
have been asked: comparisons stay paired. Where there are groups, all known candidates take the cases
seen least instead, in one order: still paired, and what they have in common is seen on new cases.
Where it is known what answers tell (``Field.telling``), known candidates take the cases that tell most,
and newcomers begin with each case as often as it tells.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from convergence_core.records import Assignment, Candidate, Cell, Origin, Params, sha256_hex
from convergence_core.search.archive import Archive, Member
from convergence_core.search.sampler import AskRequest, Plan
from convergence_core.space import Space

CellKey = tuple[str, int]
"""(case_id, repeat)."""

LEAST_TELLING = 0.1
"""Least that a case counts for: those that tell nothing of today's leaders may tell of tomorrow's."""
MOST_OF_IT = 0.6
"""Share of what all cases tell that is enough to compare candidates by."""
_ADVICE_SHARE = 0.25
"""Share of a generation's newcomers that advice may take."""


def default_chunk(n_cases: int) -> int:
    """Return how many cases a newcomer is asked before anything is known of the noise.

    Args:
        n_cases: cases that a generation could ask each candidate of a population.

    Five cases halve the regret at equal calls on measured tasks (chunks of 3 / 5 / 10: 13.3 /
    11.7 / 13.8). Where there are many, a quarter of them: a candidate costs more than its cells (a
    task, an index, a model to load), so a generation tries four times its population at most.
    """
    return min(n_cases, max(5, -(-n_cases // 4)))


def informative_chunk(n_cases: int, worth_the_prior: float | None) -> int:
    """Return how many cases tell enough of a newcomer, once noise and merit were told apart.

    Args:
        n_cases: as above.
        worth_the_prior: cells that leave half of what is unknown of a newcomer; ``None``: unknown.

    Where questions differ much and candidates little, a few answers are luck, and hundreds of
    lucky newcomers hide the best one; where it is the other way round, a few tell enough.
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
        self._cells: dict[str, list[Cell]] = {}
        self._candidates: dict[str, Candidate] = {}
        self.n_new = 0
        """Candidates never asked before."""
        self.is_touched = False
        """Whether thoughts may have had a say in what is added from now on."""
        self._touched: set[Cell] = set()
        self._asked = self._asked_so_far()
        self.fresh_cases = self._least_seen_first(rng)
        """Cases, those seen least first."""
        self._known_cases = self.fresh_cases
        """In the order that known candidates are asked."""
        self._telling: Mapping[str, float] | None = None
        self.n_telling = len(self.fresh_cases)
        """Cases that together tell ``MOST_OF_IT``, those that tell most, did all weigh the same."""
        self._group_cases: tuple[tuple[str, ...], ...] = (self.fresh_cases,)
        """In the orders that groups of newcomers are asked, who join them in turn."""
        self._turn: dict[str, int] = {}

    def share_out(
        self,
        chunk: int,
        *,
        least_together: int,
        large_from: int,
        telling: Mapping[str, float] | None = None,
        case_weights: Mapping[str, float] | None = None,
    ) -> None:
        """Say which cases newcomers and known candidates begin with.

        Args:
            chunk: cases of one place.
            least_together: members of a group of newcomers, were all places newcomers'.
            large_from: places from which on there are groups, each with a chunk of its own.
            telling: case → what an answer tells, 1 of the case that tells most; ``None``: all tell
                the same.
            case_weights: case → weight that this contains; absent ones weigh 1.
        """
        if telling is not None:
            self._prefer(telling, case_weights or {})
        fresh, n_places = self.fresh_cases, self.n_left // chunk
        n_begun = min(len(fresh), math.ceil(self.n_telling / chunk) * chunk)
        n_groups = min(n_begun // chunk, n_places // least_together)
        if n_places < large_from or n_groups < 2:
            later = reversed(fresh[chunk:])
            if telling is not None:
                later = (case for case in self._known_cases if case not in fresh[:chunk])
            self._group_cases = ((*fresh[:chunk], *later),)
            if telling is None:
                self._known_cases = self._group_cases[0]
        else:
            starts = range(0, n_groups * chunk, chunk)
            self._group_cases = tuple((*fresh[i:], *fresh[:i]) for i in starts)

    def _prefer(self, telling: Mapping[str, float], case_weights: Mapping[str, float]) -> None:
        """Ask known candidates the cases that tell most, and newcomers each as often as it tells."""
        fresh = self.fresh_cases  # sorting keeps its order among equals
        asked = self._asked
        self._known_cases = tuple(sorted(fresh, key=lambda case: -telling[case]))
        self.fresh_cases = tuple(
            sorted(fresh, key=lambda c: (asked[c] + 0.5) / max(telling[c], LEAST_TELLING))
        )
        self._telling = telling
        # One heavy case is not enough to compare candidates by.
        plain = [telling[case] / case_weights.get(case, 1.0) for case in fresh]
        most = np.cumsum(np.sort(plain)[::-1])
        self.n_telling = int(np.searchsorted(most, MOST_OF_IT * most[-1])) + 1

    def seen(self) -> set[str]:
        """Return ids of candidates asked before or planned; for membership only."""
        return {*self.archive.members, *self._cells}

    def open_cells(self, candidate_id: str, *, again: bool = False) -> list[CellKey]:
        """Return cells neither rewarded nor planned: first unasked ones, then missing ones.

        Args:
            candidate_id: whose.
            again: whether those beyond ``repeats`` are among them, see ``AskRequest.n_again``.
        """
        member = self.archive.members.get(candidate_id)
        taken = {(cell.case_id, cell.repeat) for cell in self._cells.get(candidate_id, ())}
        cases = self._known_cases
        if member is None:
            turn = self._turn.get(candidate_id, self.n_new)
            cases = self._group_cases[turn % len(self._group_cases)]
        keys = [
            (case, repeat)
            for repeat in range(self.request.repeats + again * self.request.n_again)
            for case in cases
            if (case, repeat) not in taken
        ]
        if member is None:
            return keys
        keys = [key for key in keys if key not in member.rewards]
        told = self._telling
        if told is not None:  # a repeat tells less than the answer before it
            keys.sort(key=lambda key: -told[key[0]] / (1 + key[1]))
        return sorted(keys, key=lambda key: key in member.missing)

    def add(self, candidate: Candidate, keys: Iterable[CellKey]) -> int:
        """Plan cells of a candidate as far as they fit; return how many did."""
        chosen = list(keys)[: self.n_left]
        if not chosen:
            return 0
        name = candidate.candidate_id
        if name not in self._cells:
            if name not in self.archive:
                self._turn[name] = self.n_new
                self.n_new += 1
            self._candidates[name] = candidate
            self._cells[name] = []
        cells = [Cell(candidate_id=name, case_id=case, repeat=repeat) for case, repeat in chosen]
        self._cells[name] += cells
        if self.is_touched:
            self._touched.update(cells)
        self.n_left -= len(chosen)
        return len(chosen)

    def retry_missing(self) -> None:
        """Ask once more what the last generation's newcomers were asked in vain."""
        for member in self.archive:
            if member.missing and member.generation == self.request.generation - 1:
                known = self._known_missing(member)
                self.add(member.candidate, known)

    def plan(self) -> Plan:
        """Return the plan; cells that advice chose are not exogenous."""
        assignments = tuple(
            Assignment(
                candidate=candidate,
                cells=tuple(self._cells[name]),
                label=self.space.label(candidate.params, n=3),
            )
            for name, candidate in self._candidates.items()
        )
        exogenous = frozenset(
            cell
            for assignment in assignments
            if assignment.candidate.origin not in ("rlp", "sao")
            for cell in assignment.cells
            if cell not in self._touched
        )
        return Plan(assignments=assignments, exogenous=exogenous)

    def _known_missing(self, member: Member) -> list[CellKey]:
        """Return missing cells that the request still offers."""
        offered = set(self.request.case_ids)
        return [
            (case, repeat)
            for case, repeat in sorted(member.missing)
            if case in offered and repeat < self.request.repeats + self.request.n_again
        ]

    def _asked_so_far(self) -> dict[str, int]:
        """Return case → candidates that were asked it."""
        counts = dict.fromkeys(self.request.case_ids, 0)
        for member in self.archive:
            for case in {case for case, _ in member.rewards}:
                if case in counts:
                    counts[case] += 1
        return counts

    def _least_seen_first(self, rng: np.random.Generator) -> tuple[str, ...]:
        cases, counts = self.request.case_ids, self._asked
        if not len(self.archive):
            return tuple(cases[i] for i in rng.permutation(len(cases)))
        # The first candidate of the run salts the order among cases seen equally often.
        salt = next(iter(self.archive)).candidate.candidate_id
        return tuple(sorted(cases, key=lambda case: (counts[case], sha256_hex(salt + case))))


def advised(
    space: Space,
    proposals: Sequence[Params],
    seen: set[str],
    n: int,
    origin: Origin = "rlp",
) -> list[Candidate]:
    """Return candidates of valid, unseen proposals: at most a quarter of ``n`` places, one at least.

    Advice never binds: a proposal outside of the space, or known already, is passed over.
    """
    found: dict[str, Candidate] = {}
    for proposal in proposals:
        if len(found) >= max(1, int(_ADVICE_SHARE * n)):
            break
        if space.validate(proposal):
            continue
        candidate = space.candidate(proposal, origin)
        if candidate.candidate_id not in seen:
            found.setdefault(candidate.candidate_id, candidate)
    return list(found.values())


def first_in(space: Space, request: AskRequest, archive: Archive) -> list[Candidate]:
    """Return candidates that go first: the baseline, until it was asked, old winners, advice."""
    found: dict[str, Candidate] = {}
    if request.baseline is not None:
        candidate = space.candidate(request.baseline, "default")
        if candidate.candidate_id not in archive:
            found[candidate.candidate_id] = candidate
    advice, n = request.advice, request.n_candidates
    offered: tuple[tuple[tuple[Params, ...], Origin], ...] = (
        (advice.winners, "elite"),
        (advice.proposals, "rlp"),
        (advice.preferred, "sao"),
    )
    for points, origin in offered:
        seen = {*archive.members, *found}
        for candidate in advised(space, points, seen, n, origin):
            found[candidate.candidate_id] = candidate
    return list(found.values())
