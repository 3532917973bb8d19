"""Opponents without a model: random search, and sequential halving over test cases."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.optimizer.opponents.base import Asked, BestSeen, CellOpponent, Claim, Setup
from benchmarks.optimizer.spaces import Point

FIRST_CASES = 5
"""Cases per candidate in the first round; each round doubles them."""
MOST_ROUNDS = 6
"""Maximum rounds with equal budgets; fewer if candidates run out of cases."""
_COMPLETE = 0.8
"""Share of the maximum number of cases that a recommendation needs."""


class RandomSearch(BestSeen):
    """Uniform points, with the highest observation as recommendation."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._rng = np.random.default_rng(setup.seed)

    def ask(self, n: int) -> list[Point]:
        """Return uniform points."""
        return [self.setup.space.sample(self._rng) for _ in range(n)]

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Record the highest value."""
        self.note(points, values)


@dataclass(slots=True, eq=False)
class _Runner:
    """One candidate in the race."""

    point: Point
    rewards: dict[int, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.rewards.values()))) if self.rewards else -1.0


class SequentialHalving(CellOpponent):
    """Karnin, Koren & Somekh 2013 over cases: the better half continues with twice as many.

    A round evaluates all its candidates on the same cases, except those they have already seen.
    """

    is_budget_aware = True
    cells_at_once = FIRST_CASES

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        assert setup.n_cases is not None
        self._n_cases = setup.n_cases
        self._rng = np.random.default_rng(setup.seed)
        # as many candidates as spend the whole budget
        ends = [min(setup.n_cases, FIRST_CASES * (2**r - 1)) for r in range(MOST_ROUNDS + 1)]
        each = sum(n / 2**r for r, n in enumerate(np.diff(ends)))
        n_runners = int(setup.budget * setup.cases_per_evaluation / each)
        found: dict[object, _Runner] = {}
        for _ in range(20 * n_runners):
            if len(found) == n_runners:
                break
            point = setup.space.sample(self._rng)
            found.setdefault(setup.space.key(point), _Runner(point))
        self._alive = list(found.values())
        self._round = 0
        self._open: list[tuple[_Runner, list[int]]] = []
        self._begin_round()

    def _begin_round(self) -> None:
        n = FIRST_CASES * 2**self._round
        order = [int(case) for case in self._rng.permutation(self._n_cases)]
        fresh = [(r, [case for case in order if case not in r.rewards][:n]) for r in self._alive]
        self._open = [(runner, cases) for runner, cases in fresh if cases]

    def ask_cells(self, n_cells: int) -> list[Asked]:
        """Return a runner's next cells. A round ends before the next one starts."""
        if not self._open:
            self._alive = sorted(self._alive, key=lambda r: r.mean, reverse=True)
            self._alive = self._alive[: max(1, len(self._alive) // 2)]
            self._round += 1
            self._begin_round()
        if not self._open:
            return []
        self._asked, cases = self._open.pop(0)
        if cases[n_cells:]:
            self._open.insert(0, (self._asked, cases[n_cells:]))
        return [Asked(point=self._asked.point, cases=tuple(cases[:n_cells]))]

    def tell_cells(self, asked: Sequence[Asked], rewards: Sequence[Sequence[float]]) -> None:
        """Store the rewards."""
        for cells, values in zip(asked, rewards, strict=True):
            self._asked.rewards.update(zip(cells.cases, values, strict=True))

    def recommend(self) -> Claim:
        """Return the candidate with the best mean in the last round."""
        most = max(len(runner.rewards) for runner in self._alive)
        complete = [r for r in self._alive if len(r.rewards) >= _COMPLETE * most]
        return Claim(point=max(complete or self._alive, key=lambda r: r.mean).point)
