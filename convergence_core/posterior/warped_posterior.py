"""Joint posterior of candidates' mean rewards, by a process on warped rewards."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from convergence_core.posterior.gaussian_process import GaussianProcess, matrix_root
from convergence_core.posterior.warp import Bounds, Warp
from convergence_core.space.arrays import Points

N_NODES = 11
"""Of the Gauss-Hermite rule for means and variances of rewards."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WarpedPosterior:
    """Normal in warped rewards; n candidates. Methods without "warped" speak of rewards."""

    ids: tuple[str, ...]
    process: GaussianProcess | None
    """``None``: nothing was seen, every candidate is the same guess."""
    warp: Warp
    points: Points | None
    rows: np.ndarray
    """Training row of each, -1 for unseen ones, (n,)."""
    bounds: Bounds
    moved: np.ndarray | None = None
    """Added to the means of warped rewards, (n,); see ``less``."""

    @classmethod
    def of_nothing(cls, ids: tuple[str, ...], bounds: Bounds) -> "WarpedPosterior":
        """Return the posterior before any reward: independent guesses."""
        low, high = bounds or (-1.0, 1.0)
        return cls(
            ids=ids,
            process=None,
            warp=Warp((low + high) / 2, (high - low) / 4, 0.0, 1.0),
            points=None,
            rows=np.full(len(ids), -1, dtype=np.intp),
            bounds=bounds,
        )

    def less(self, price: np.ndarray) -> "WarpedPosterior":
        """Return the posterior of rewards less a price each, (n,).

        In warped units a price moves a candidate by what it does at its mean.
        """
        mean = self.marginals[0]
        after = self.warp.forward(self.warp.backward(mean) - price)
        return replace(self, moved=after - mean + (0.0 if self.moved is None else self.moved))

    @cached_property
    def marginals(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the warped rewards, (n,) each."""
        if self.process is None or self.points is None:
            return self._after_move(np.zeros(len(self.ids))), np.ones(len(self.ids))
        mean, variance = self.process.marginals(self.points, self.rows)
        return self._after_move(mean), np.sqrt(variance)

    @cached_property
    def _joint(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the warped rewards, (n,) and (n, n)."""
        if self.process is None or self.points is None:
            return self._after_move(np.zeros(len(self.ids))), np.eye(len(self.ids))
        mean, covariance = self.process.joint(self.points, self.rows)
        return self._after_move(mean), covariance

    def _after_move(self, mean: np.ndarray) -> np.ndarray:
        return mean if self.moved is None else np.asarray(mean + self.moved, np.float64)

    @cached_property
    def _root(self) -> np.ndarray:
        """Root of that covariance, (n, n)."""
        if self.process is None:
            return np.eye(len(self.ids))
        covariance = self._joint[1]
        scale = float(np.diag(covariance).mean()) if len(covariance) else 1.0
        return matrix_root(covariance, jitter=1e-6 * scale + 1e-12)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, sd = self.marginals
        nodes, weights = np.polynomial.hermite_e.hermegauss(N_NODES)
        weights = weights / np.sqrt(2.0 * np.pi)
        rewards = self.rewards(mean + sd * nodes[:, None])  # (n_nodes, n)
        first = weights @ rewards
        second = weights @ (rewards - first) ** 2
        return first, np.sqrt(np.maximum(second, 0.0))

    @property
    def mean(self) -> np.ndarray:
        """Posterior mean rewards, (n,)."""
        return self._moments[0]

    @property
    def sd(self) -> np.ndarray:
        """Posterior standard deviations of rewards, (n,)."""
        return self._moments[1]

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of central credible intervals, (n,) each.

        Raises:
            ValueError: the level is not within (0, 1).
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie within (0, 1), not {level}")
        mean, sd = self.marginals
        half = float(ndtri((1 + level) / 2)) * sd
        return self.rewards(mean - half), self.rewards(mean + half)

    def draws(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return joint draws of rewards, (n, n_members)."""
        return self.rewards(self.warped_draws(rng, n))

    def warped_draws(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return joint draws before the warp is undone, which keeps every order, (n, n_members)."""
        lots = rng.standard_normal((n, self._root.shape[1]))
        return np.asarray(self._joint[0] + lots @ self._root.T, np.float64)

    def probability_above(self, index: int) -> np.ndarray:
        """Return each member's probability of a higher mean reward than one of them, (n,).

        That of the one itself is 1.
        """
        if self.process is None and self.moved is None:
            above = np.full(len(self.ids), 0.5)
        else:
            mean, covariance = self._joint
            variance = np.diag(covariance)
            of_gap = variance + variance[index] - 2.0 * covariance[index]
            above = ndtr((mean - mean[index]) / np.sqrt(np.maximum(of_gap, 1e-12)))
        above[index] = 1.0
        return np.asarray(above, np.float64)

    def changes_from(self, index: int) -> np.ndarray:
        """Return how far warped rewards lie from one of them, root mean square, (n,)."""
        mean, covariance = self._joint
        variance = np.diag(covariance)
        of_gap = variance + variance[index] - 2.0 * covariance[index]
        squares = (mean - mean[index]) ** 2 + np.maximum(of_gap, 0.0)
        return np.asarray(np.sqrt(squares), np.float64)

    def probability_within(
        self, rng: np.random.Generator, n: int, *, index: int, delta: float
    ) -> float:
        """Return the share of draws with this member at most ``delta`` below the highest."""
        drawn = self.draws(rng, n)
        return float(np.mean(drawn[:, index] >= drawn.max(axis=1) - delta))

    def rewards(self, warped: np.ndarray) -> np.ndarray:
        """Return the rewards of warped ones, any shape."""
        rewards = self.warp.backward(warped)
        return rewards if self.bounds is None else np.clip(rewards, *self.bounds)
