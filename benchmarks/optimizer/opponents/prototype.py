"""The prototype: Thompson sampling on a mixed Gaussian process, its candidates bred by evolution.

An opponent, kept as it was measured: same seed, same candidates. Nothing of the product uses it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.optimizer.opponents.base import Claim, PointOpponent, Setup
from benchmarks.optimizer.opponents.prototype_gp import NOISE, Encoder, MixedGp, merge, warp
from benchmarks.optimizer.spaces import Key, Parameter, Point, Value

N_POOL = 500
"""Candidates bred for one batch."""
N_KEPT = 160
"""Candidates, best by mean + 2 sd, that the joint draws compare."""
N_ROWS = 300
"""Training rows at most."""
N_STEPS = 8
"""Steps of fitting; three times as many at first."""
N_ELITES = 25
"""Evaluated points in the pool, best posterior mean first."""
END_GAME = 0.10
"""Last part of a noisy budget, which only asks evaluated points again."""
_NOISY = 0.02
"""Noise, in variances of z, above which a task counts as noisy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The training rows and what the model says of them."""

    points: list[Point]
    row: dict[Key, int]
    mean: np.ndarray
    """Posterior means, (n,)."""


class Prototype(PointOpponent):
    """The prototype without test cases."""

    is_budget_aware = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        space = setup.space
        self._rng = np.random.default_rng(setup.seed)
        self._encoder = Encoder(space)
        self._gp = MixedGp(len(self._encoder.numbers), len(self._encoder.categories))
        if any(p.kind in ("float", "int") for p in space.parameters):
            # Without evidence per case, an effect of its own only hurts where points differ a bit.
            self._gp.set_identity(log=np.log(1e-6), sd=0.1)
        self._points: list[Point] = []
        self._values: list[float] = []
        self._n_used = 0.0
        self._all = space.points(6000) if space.size() <= 1e6 else None
        self._has_fitted = False

    # -- ask and tell ------------------------------------------------------------------------

    def ask(self, n: int) -> list[Point]:
        """Return a batch."""
        if not self._points:
            return self._design(n)
        fit = self._fit()
        share = END_GAME if np.exp(self._gp.theta[NOISE]) > _NOISY else 0.0
        is_last = self._n_used >= self.setup.budget * (1 - share) - 1e-9
        return self._draw(fit, n, is_last=is_last, max_repeats=n if is_last else 2)

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Keep the values."""
        self._points += points
        self._values += [float(value) for value in values]
        self._n_used += len(points)

    def recommend(self) -> Claim:
        """Return the evaluated point of highest posterior mean."""
        fit = self._fit(20)
        return Claim(point=fit.points[int(np.argmax(fit.mean))])

    # -- the first batch ---------------------------------------------------------------------

    def _design(self, n: int) -> list[Point]:
        """Return a Latin hypercube; choices appear equally often."""
        columns: dict[str, list[Value]] = {}
        for p in self.setup.space.parameters:
            if p.choices:
                column: list[Value] = []
                while len(column) < n:
                    column += [p.choices[i] for i in self._rng.permutation(len(p.choices))]
                columns[p.name] = column[:n]
                continue
            unit = (self._rng.permutation(n) + self._rng.random(n)) / n
            if p.log:
                low, high = math.log(p.low), math.log(p.high)
                columns[p.name] = list(np.exp(low + unit * (high - low)))
            else:
                columns[p.name] = list(p.low + unit * (p.high - p.low))
        rows = [{name: column[i] for name, column in columns.items()} for i in range(n)]
        return [self._snap(self.setup.space.canonical(row)) for row in rows]

    def _snap(self, point: Point) -> Point:
        """Return the point at which evidence accumulates; here the point itself."""
        return point

    # -- evolution ---------------------------------------------------------------------------

    def _move(self, p: Parameter, value: Value, step: float) -> Value:
        """Mutate one value; numbers are reflected at their bounds."""
        rng = self._rng
        if p.kind == "categorical":
            return p.sample(rng)
        if p.kind == "ordered":
            n, i = len(p.choices), p.choices.index(value)
            n_steps = max(1, round(abs(rng.normal()) * step * n))
            sign = 1 if rng.random() < 0.5 else -1
            return p.choices[min(n - 1, max(0, i + sign * n_steps))]
        unit = abs(p.place(value) + rng.normal() * step)
        unit = 2 - unit if unit > 1 else unit
        number = p.number_at(min(1.0, max(0.0, unit)))
        if p.kind == "int" and round(number) == value:
            number = int(value) + (1 if rng.random() < 0.5 else -1)
        return number

    def _breed(self, parents: Sequence[Point], score: np.ndarray, n: int) -> list[Point]:
        """Return children of tournament winners: uniform crossover, mutation of random size."""
        rng, parameters = self._rng, self.setup.space.parameters
        children = []
        for _ in range(n):
            entrants = rng.integers(len(parents), size=(2, 4))
            child = dict(parents[entrants[0][np.argmax(score[entrants[0]])]])
            for p in parameters:
                if p.name not in child:
                    child[p.name] = p.sample(rng)
            if rng.random() < 0.5 and len(parents) > 1:
                other = parents[entrants[1][np.argmax(score[entrants[1]])]]
                for p in parameters:
                    if p.name in other and rng.random() < 0.5:
                        child[p.name] = other[p.name]
            rate = min(1.0, rng.choice([1.0, 2.0, 3.0]) / len(parameters))
            step = 10 ** rng.uniform(-2.0, -0.5)
            is_hit = rng.random(len(parameters)) < rate
            if not is_hit.any():
                is_hit[rng.integers(len(parameters))] = True
            for i in np.flatnonzero(is_hit):
                p = parameters[i]
                child[p.name] = self._move(p, child[p.name], step)
            children.append(self._snap(self.setup.space.canonical(child)))
        return children

    # -- the model ---------------------------------------------------------------------------

    def _evidence(self) -> tuple[list[Point], np.ndarray, np.ndarray]:
        """Return different points, mean values and counts."""
        return merge(self.setup.space, self._points, self._values, [1.0] * len(self._points))

    def _known_noise(self, scale: float) -> float | None:
        """Return the variance of one observation in units of z, if it is known."""
        del scale
        return None

    def _fit(self, n_steps: int | None = None) -> Fit:
        points, y, n = self._evidence()
        z, scale = warp(y)
        if len(points) > N_ROWS:
            # The best half, the newest quarter, a random quarter.
            kept = np.unique(
                np.concatenate(
                    [
                        np.argsort(-z)[: N_ROWS // 2],
                        np.arange(len(points))[-N_ROWS // 4 :],
                        self._rng.choice(len(points), N_ROWS // 4, replace=False),
                    ]
                )
            )
            points, z, n = [points[i] for i in kept], z[kept], n[kept]
        encoded = self._encoder(points)
        noise = self._known_noise(scale)
        default = N_STEPS if self._has_fitted else 3 * N_STEPS
        self._gp.fit(encoded, z, n, default if n_steps is None else n_steps, noise)
        self._has_fitted = True
        mean, _ = self._gp.predict(encoded, np.arange(len(points)))
        row = {self.setup.space.key(point): i for i, point in enumerate(points)}
        return Fit(points=points, row=row, mean=mean)

    # -- the draws ---------------------------------------------------------------------------

    def _pool(self, fit: Fit, *, is_last: bool) -> tuple[list[Point], int]:
        """Return candidates, evaluated ones first, and how many those are."""
        space, rng = self.setup.space, self._rng
        order = np.argsort(-fit.mean)
        elites = [fit.points[i] for i in order[:N_ELITES]]
        if is_last:
            return elites, len(elites)
        if self._all is not None and len(self._all) <= N_POOL:
            candidates = list(self._all)
        else:
            top = order[: max(10, len(fit.points) // 4)]
            candidates = self._breed([fit.points[i] for i in top], fit.mean[top], N_POOL // 2)
            score = np.arange(4, 0, -1.0)[: len(elites[:4])]
            candidates += self._breed(elites[:4], score, N_POOL // 4)
            if self._all is not None:
                drawn = rng.integers(len(self._all), size=N_POOL // 4)
                candidates += [self._all[i] for i in drawn]
            else:
                candidates += [self._snap(space.sample(rng)) for _ in range(N_POOL // 4)]
        seen = {space.key(point) for point in elites}
        pool = list(elites)
        for point in candidates:
            key = space.key(point)
            if key not in seen:
                seen.add(key)
                pool.append(point)
        return pool, len(elites)

    def _draw(self, fit: Fit, n: int, *, is_last: bool, max_repeats: int) -> list[Point]:
        """Return the best of each of ``n`` joint draws; evaluated points may win several."""
        pool, n_elites = self._pool(fit, is_last=is_last)
        encoded = self._encoder(pool)
        rows = np.array([fit.row.get(self.setup.space.key(point), -1) for point in pool])
        if len(pool) > N_KEPT:
            mean, variance = self._gp.predict(encoded, rows)
            best = np.argsort(-(mean + 2 * np.sqrt(variance)))[:N_KEPT]
            kept = np.unique(np.concatenate([np.arange(n_elites), best]))
            pool, rows = [pool[i] for i in kept], rows[kept]
            encoded = (encoded[0][kept], encoded[1][kept])
        mean, covariance = self._gp.predict_jointly(encoded, rows)
        jitter = 1e-6 * max(1e-9, float(np.mean(np.diag(covariance)))) + 1e-9
        covariance[np.diag_indices(len(mean))] += jitter
        try:
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            w, vectors = np.linalg.eigh(covariance)
            root = vectors * np.sqrt(np.maximum(w, 0))
        draws = mean[:, None] + root @ self._rng.normal(size=(root.shape[1], n))
        count = np.zeros(len(pool), int)
        picks = []
        for j in range(n):
            order = np.argsort(-draws[:, j])
            free = (i for i in order if count[i] < (max_repeats if i < n_elites else 1))
            chosen = next(free, None)
            if chosen is None:
                chosen = int(np.argmax(draws[:, j]))
            else:
                count[chosen] += 1
            picks.append(pool[chosen])
        return picks
