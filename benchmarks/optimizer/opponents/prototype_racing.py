"""The prototype with racing: the unit is a chunk of test cases, and draws decide who gets one.

    reward(i, j) = f_i + b_j + noise

Case effects b_j are shrunk by a moment estimate of their variance, so points seen on different
cases compare; the pooled variance within points is the known noise of one chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.optimizer.opponents.base import Asked, CellOpponent, Claim, Setup
from benchmarks.optimizer.opponents.prototype import Prototype
from benchmarks.optimizer.spaces import Key, Point

CHUNK = 5
"""Cases of one place."""
LEVELS = 20
"""Places of a real parameter, so that evidence accumulates on one point."""
END_GAME = 0.30
"""Last part of the budget, which only asks evaluated points."""


@dataclass(slots=True, eq=False)
class _Record:
    point: Point
    rewards: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Draft:
    """Cells planned in one batch."""

    n_left: int
    planned: dict[Key, tuple[Point, list[int]]] = field(default_factory=dict)

    def add(self, key: Key, point: Point, cases: list[int]) -> None:
        if cases:
            self.planned.setdefault(key, (point, []))[1].extend(cases)
            self.n_left -= len(cases)


class _Model(Prototype):
    """The prototype whose evidence is per case."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        assert setup.n_cases is not None
        self.n_cases = setup.n_cases
        self._gp.set_identity(log=np.log(0.03), sd=1.5)
        self.records: dict[Key, _Record] = {}
        self._case_variance = 0.0
        self._popularity = np.zeros(self.n_cases)

    def _snap(self, point: Point) -> Point:
        """Return the point with its real numbers on a grid."""
        snapped = dict(point)
        for p in self.setup.space.parameters:
            if p.kind == "float" and p.name in snapped:
                unit = round(p.place(snapped[p.name]) * LEVELS) / LEVELS
                snapped[p.name] = p.number_at(unit)
        return self.setup.space.canonical(snapped)

    def _evidence(self) -> tuple[list[Point], np.ndarray, np.ndarray]:
        """Return points, means less case effects, and chunks seen."""
        records = list(self.records.values())
        cells = [(i, j, s) for i, r in enumerate(records) for j, s in r.rewards.items()]
        i = np.array([cell[0] for cell in cells])
        j = np.array([cell[1] for cell in cells])
        s = np.array([cell[2] for cell in cells], float)
        n = np.bincount(i, minlength=len(records))
        b = self._case_effects(i, j, s, n)
        corrected = s - b[j]
        mean = np.bincount(i, corrected, minlength=len(records)) / np.maximum(n, 1)
        residual = float(((corrected - mean[i]) ** 2).sum())
        self._case_variance = residual / max(1, len(s) - (n > 0).sum())
        return [record.point for record in records], mean, n / CHUNK

    def _case_effects(
        self, i: np.ndarray, j: np.ndarray, s: np.ndarray, n: np.ndarray
    ) -> np.ndarray:
        """Return b, (n_cases,), of rewards s of points i on cases j, all (n_cells,)."""
        b = np.zeros(self.n_cases)
        center = s.mean()
        n_j = np.bincount(j, minlength=self.n_cases)
        for _ in range(8):
            f = (np.bincount(i, s - b[j], minlength=len(n)) + center * 2) / (n + 2.0)
            r = np.bincount(j, s - f[i], minlength=self.n_cases)
            noise = max((s - f[i] - b[j]).var(), 1e-6)
            raw = r / np.maximum(n_j, 1)
            spread = np.average(raw**2, weights=n_j + 1e-9) - noise / max(n_j[n_j > 0].mean(), 1)
            b = r / (n_j + noise / max(spread, 1e-6))
        return np.asarray(b - np.average(b))

    def _known_noise(self, scale: float) -> float:
        return max(self._case_variance, 1e-4) / CHUNK / scale**2

    def design(self, n_cells: int) -> list[Asked]:
        """Return the first batch, whose points share one block of cases."""
        k = n_cells // CHUNK
        space = self.setup.space
        block = self._rng.permutation(self.n_cases)[: max(CHUNK * 4, 20)]
        asked: list[Asked] = []
        seen: set[Key] = set()
        for designed in self._design(k):
            point = designed
            if space.key(point) in seen:
                if self._all is not None and len(seen) >= min(k, len(self._all)):
                    continue
                point = self._snap(space.sample(self._rng))
                if space.key(point) in seen:
                    continue
            seen.add(space.key(point))
            cases = self._rng.choice(block, CHUNK, replace=False)
            asked.append(Asked(point=point, cases=tuple(int(case) for case in cases)))
        return asked

    def plan(self, n_cells: int, *, is_last: bool) -> list[Asked]:
        """Return a later batch."""
        fit = self._fit()
        self._popularity = np.zeros(self.n_cases)
        for record in self.records.values():
            self._popularity[list(record.rewards)] += 1
        draft = _Draft(n_cells)
        k = n_cells // CHUNK
        for point in self._draw(fit, k, is_last=is_last, max_repeats=k):
            self._add(draft, point)
        # Cells of points that are complete go to the next best.
        for i in np.argsort(-fit.mean):
            if draft.n_left < 1:
                break
            self._add(draft, fit.points[i])
        return [Asked(point=p, cases=tuple(cases)) for p, cases in draft.planned.values()]

    def _add(self, draft: _Draft, point: Point) -> None:
        """Plan a chunk of a point: cases that many points have seen, so pairs compare."""
        key = self.setup.space.key(point)
        done = set(self.records[key].rewards) if key in self.records else set()
        done.update(draft.planned[key][1] if key in draft.planned else ())
        free = np.array([case for case in range(self.n_cases) if case not in done])
        if not len(free):
            return
        n = min(CHUNK, draft.n_left, len(free))
        liked = self._popularity[free] + self._rng.random(len(free)) * 1e-3
        draft.add(key, point, [int(case) for case in free[np.argsort(-liked)[:n]]])


class RacingPrototype(CellOpponent):
    """The prototype on test cases."""

    is_budget_aware = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._model = _Model(setup)
        self._n_used = 0

    def ask_cells(self, n_cells: int) -> list[Asked]:
        """Return a batch."""
        if not self._model.records:
            return self._model.design(n_cells)
        total = self.setup.budget * self.setup.cases_per_evaluation
        is_last = self._n_used >= total * (1 - END_GAME) - 1e-9
        return self._model.plan(n_cells, is_last=is_last)

    def tell_cells(self, asked: Sequence[Asked], rewards: Sequence[Sequence[float]]) -> None:
        """Keep the rewards."""
        for cells, values in zip(asked, rewards, strict=True):
            key = self.setup.space.key(cells.point)
            record = self._model.records.setdefault(key, _Record(cells.point))
            record.rewards.update(zip(cells.cases, values, strict=True))
            self._n_used += len(cells.cases)

    def recommend(self) -> Claim:
        """Return the evaluated point of highest posterior mean."""
        return self._model.recommend()
