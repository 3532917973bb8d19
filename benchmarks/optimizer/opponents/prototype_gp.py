"""The prototype's surrogate: a Gaussian process on mixed spaces, and a recommender for anyone.

    K = s_p prod_d k_d + sum_d s_d k_d + s_id [same point] + noise / count

k_d is Matern 5/2 for numbers and {1, exp(-w)} for categories. Inactive parameters are imputed
(numbers at .5, categories at a code of their own), which keeps K positive definite.

Notation: A, B encoded points; z standardised values; theta = log of (length scales, category
weights, s_d, s_id, s_p, noise).
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from benchmarks.optimizer.spaces import Key, Point, Space

ROOT_5 = np.sqrt(5.0)
IDENTITY, PRODUCT, NOISE = -3, -2, -1
"""Places of the last three hyper-parameters in theta."""

Encoded = tuple[np.ndarray, np.ndarray]
"""Places of the numbers, (n, n_numbers), and codes of the categories, (n, n_categories)."""


class Encoder:
    """From points to arrays."""

    def __init__(self, space: Space) -> None:
        self.numbers = [p for p in space.parameters if p.kind != "categorical"]
        self.categories = [p for p in space.parameters if p.kind == "categorical"]
        self._codes = [{c: i for i, c in enumerate(p.choices)} for p in self.categories]

    def __call__(self, points: Sequence[Point]) -> Encoded:
        """Encode; inactive numbers lie at .5, inactive categories have code -1."""
        places = np.full((len(points), len(self.numbers)), 0.5)
        codes = np.full((len(points), len(self.categories)), -1, int)
        for i, point in enumerate(points):
            for j, p in enumerate(self.numbers):
                if p.name in point:
                    places[i, j] = p.place(point[p.name])
            for j, p in enumerate(self.categories):
                if p.name in point:
                    codes[i, j] = self._codes[j][point[p.name]]
        return places, codes


def warp(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Standardise robustly and compress the bad tail by a logarithm.

    Returns:
        z, (n,), and the size of one unit of z in the better half.
    """
    y = np.asarray(values, float)
    median = np.median(y)
    up = np.quantile(y, 0.9) - median
    spread = 0.5 * np.std(y[y >= median]) if len(y) > 3 else 0.0
    sd = max(up, spread, 1e-12 * (1 + abs(median)), 1e-12)
    z = (y - median) / sd
    is_bad = z < -1.5
    z[is_bad] = -1.5 - np.log1p(-1.5 - z[is_bad])
    m, s = z.mean(), z.std() + 1e-9
    return (z - m) / s, float(sd * s)


class MixedGp:
    """The process; its hyper-parameters are MAP estimates, started from the last ones."""

    def __init__(self, n_numbers: int, n_categories: int) -> None:
        self.n_numbers, self.n_categories = n_numbers, n_categories
        self.n_dims = n_numbers + n_categories
        self.is_additive = self.n_dims > 1
        n_additive = self.n_dims if self.is_additive else 0
        self.prior = np.concatenate(
            [
                np.full(n_numbers, np.log(0.5)),
                np.full(n_categories, np.log(1.0)),
                np.full(n_additive, np.log(0.3 / max(1, self.n_dims))),
                [np.log(0.03), np.log(0.7), np.log(0.2)],
            ]
        )
        self.prior_sd = np.concatenate(
            [
                np.full(n_numbers, 0.8),
                np.full(n_categories, 0.8),
                np.full(n_additive, 1.2),
                [1.5, 1.0, 1.2],
            ]
        )
        self.theta = self.prior.copy()
        self._knows_noise = False

    def set_identity(self, *, log: float, sd: float) -> None:
        """Set prior and value of s_id."""
        self.prior[IDENTITY] = self.theta[IDENTITY] = log
        self.prior_sd[IDENTITY] = sd

    def _dimensions(
        self, a: Encoded, b: Encoded, theta: np.ndarray, slope: np.ndarray | None = None
    ) -> np.ndarray:
        """Return k_d, (n_dims, n_a, n_b); fill ``slope`` with its derivative by log theta_d."""
        k = np.empty((self.n_dims, len(a[0]), len(b[0])))
        for d in range(self.n_numbers):
            r = np.abs(a[0][:, d][:, None] - b[0][:, d][None, :]) * (ROOT_5 * np.exp(-theta[d]))
            e = np.exp(-r)
            k[d] = (1 + r + r * r / 3) * e
            if slope is not None:
                slope[d] = r * r * (1 + r) / 3 * e
        for j in range(self.n_categories):
            d = self.n_numbers + j
            w = np.exp(theta[d])
            ew = np.exp(-w)
            differs = a[1][:, j][:, None] != b[1][:, j][None, :]
            k[d] = np.where(differs, ew, 1.0)
            if slope is not None:
                slope[d] = np.where(differs, -w * ew, 0.0)
        return k

    def _kernel(self, k: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Return K without identity and noise."""
        total: np.ndarray = np.exp(theta[PRODUCT]) * np.prod(k, axis=0)
        if self.is_additive:
            s_d = np.exp(theta[self.n_dims : 2 * self.n_dims])
            total = total + np.tensordot(s_d, k, axes=1)
        return total

    def loss(
        self, theta: np.ndarray, a: Encoded, z: np.ndarray, count: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return the negative log posterior of theta and its gradient."""
        n, dims = len(z), self.n_dims
        slope = np.empty((dims, n, n))
        k = self._dimensions(a, a, theta, slope)
        s_p, noise, s_id = (np.exp(theta[i]) for i in (PRODUCT, NOISE, IDENTITY))
        product = np.prod(k, axis=0)
        big_k = s_p * product
        s_d = np.exp(theta[dims : 2 * dims])
        if self.is_additive:
            big_k = big_k + np.tensordot(s_d, k, axes=1)
        big_k[np.diag_indices(n)] += s_id + noise / count + 1e-6
        try:
            factor = cho_factor(big_k, lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        alpha = cho_solve(factor, z)
        inverse = cho_solve(factor, np.eye(n))
        f = 0.5 * z @ alpha + np.log(np.diag(factor[0])).sum()
        m = 0.5 * (inverse - np.outer(alpha, alpha))
        gradient = np.zeros_like(theta)
        m_product = m * product
        for d in range(dims):
            by_d = s_p * np.sum(m_product * (slope[d] / k[d]))
            if self.is_additive:
                by_d += s_d[d] * np.sum(m * slope[d])
                gradient[dims + d] = s_d[d] * np.sum(m * k[d])
            gradient[d] = by_d
        gradient[IDENTITY] = s_id * np.trace(m)
        gradient[PRODUCT] = s_p * m_product.sum()
        gradient[NOISE] = noise * np.sum(np.diag(m) / count)
        r = (theta - self.prior) / self.prior_sd
        return float(f + 0.5 * r @ r), gradient + r / self.prior_sd

    def fit(
        self,
        a: Encoded,
        z: np.ndarray,
        count: np.ndarray,
        n_steps: int,
        noise: float | None = None,
    ) -> None:
        """Learn from values ``z`` that are means of ``count`` observations.

        Args:
            a: the points.
            z: standardised values, (n,).
            count: observations of each, (n,).
            n_steps: steps of L-BFGS-B at most.
            noise: variance of one observation where it is known; ``None``: learned.
        """
        self._a = a
        if noise is not None:
            self.prior[NOISE] = np.log(max(noise, 1e-3))
            self.prior_sd[NOISE] = 0.25
            if not self._knows_noise:
                self.theta[NOISE] = self.prior[NOISE]
                self._knows_noise = True
        low, high = self.prior - 4 * self.prior_sd, self.prior + 4 * self.prior_sd
        low[NOISE] = np.log(1e-4)
        found = minimize(
            self.loss,
            self.theta,
            args=(a, z, count),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": n_steps, "maxfun": n_steps + 5},
        )
        self.theta = np.asarray(found.x)
        big_k = self._kernel(self._dimensions(a, a, self.theta), self.theta)
        nugget = np.exp(self.theta[IDENTITY]) + np.exp(self.theta[NOISE]) / count + 1e-6
        big_k[np.diag_indices(len(z))] += nugget
        self._root = np.linalg.cholesky(big_k)
        half = solve_triangular(self._root, z, lower=True)
        self._alpha = solve_triangular(self._root.T, half, lower=False)

    def predict(self, b: Encoded, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances, (n,) each.

        Args:
            b: the points.
            rows: which training row each point is, -1: none, (n,).
        """
        mean, v, known = self._project(b, rows)
        prior = np.exp(self.theta[PRODUCT]) + np.exp(self.theta[IDENTITY])
        if self.is_additive:
            prior = prior + np.exp(self.theta[self.n_dims : 2 * self.n_dims]).sum()
        variance = np.full(len(mean), prior - np.exp(self.theta[IDENTITY]))
        variance[known] += np.exp(self.theta[IDENTITY])
        return mean, np.maximum(variance - (v * v).sum(0), 1e-10)

    def predict_jointly(self, b: Encoded, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means, (n,), and covariances, (n, n)."""
        mean, v, known = self._project(b, rows)
        covariance = self._kernel(self._dimensions(b, b, self.theta), self.theta) - v.T @ v
        covariance[known, known] += np.exp(self.theta[IDENTITY])
        return mean, covariance

    def _project(self, b: Encoded, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        cross = self._kernel(self._dimensions(b, self._a, self.theta), self.theta)
        known = np.flatnonzero(rows >= 0)
        cross[known, rows[known]] += np.exp(self.theta[IDENTITY])
        return cross @ self._alpha, solve_triangular(self._root, cross.T, lower=True), known


def merge(
    space: Space, points: Sequence[Point], values: Sequence[float], weights: Sequence[float]
) -> tuple[list[Point], np.ndarray, np.ndarray]:
    """Merge repeats: return different points, their mean values and their total weights."""
    row: dict[Key, int] = {}
    unique: list[Point] = []
    sums: list[float] = []
    totals: list[float] = []
    for point, value, weight in zip(points, values, weights, strict=True):
        key = space.key(point)
        if key not in row:
            row[key] = len(unique)
            unique.append(point)
            sums.append(0.0)
            totals.append(0.0)
        sums[row[key]] += value * weight
        totals[row[key]] += weight
    n = np.array(totals)
    return unique, np.array(sums) / n, n


def pick(
    space: Space, points: Sequence[Point], values: Sequence[float], weights: Sequence[float]
) -> Point:
    """Return the evaluated point of highest posterior mean: one recommender for all opponents."""
    unique, means, counts = merge(space, points, values, weights)
    encoder = Encoder(space)
    z, _ = warp(means)
    gp = MixedGp(len(encoder.numbers), len(encoder.categories))
    encoded = encoder(unique)
    gp.fit(encoded, z, counts, 25)
    mean, _ = gp.predict(encoded, np.arange(len(unique)))
    return unique[int(np.argmax(mean))]
