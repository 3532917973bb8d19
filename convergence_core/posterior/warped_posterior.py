"""The joint posterior of some candidates by a process on warped rewards."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from convergence_core.posterior.gaussian_process import GaussianProcess
from convergence_core.posterior.warp import Warp, gauss_hermite
from convergence_core.space.encoding import Points

Bounds = tuple[float, float] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class WarpedBeliefs:
    """Normal in warped rewards, told in rewards; n candidates."""

    ids: tuple[str, ...]
    process: GaussianProcess | None
    """``None``: nothing was seen, every candidate is the same guess."""
    warp: Warp
    places: Points | None
    rows: np.ndarray
    """Training row of each, -1 for unseen ones, (n,)."""
    bounds: Bounds

    @classmethod
    def of_nothing(cls, ids: tuple[str, ...], bounds: Bounds) -> "WarpedBeliefs":
        """Return the beliefs before any reward: independent guesses."""
        low, high = bounds or (-1.0, 1.0)
        return cls(
            ids=ids,
            process=None,
            warp=Warp((low + high) / 2, (high - low) / 4, 0.0, 1.0),
            places=None,
            rows=np.full(len(ids), -1, dtype=np.intp),
            bounds=bounds,
        )

    @cached_property
    def marginals(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the warped rewards, (n,) each."""
        if self.process is None or self.places is None:
            return np.zeros(len(self.ids)), np.ones(len(self.ids))
        mean, variance = self.process.marginals(self.places, self.rows)
        return mean, np.sqrt(variance)

    @cached_property
    def _root(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and a root of the covariance of the warped rewards, (n,) and (n, n)."""
        if self.process is None or self.places is None:
            return np.zeros(len(self.ids)), np.eye(len(self.ids))
        mean, covariance = self.process.joint(self.places, self.rows)
        return mean, _root_of(covariance)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, sd = self.marginals
        nodes, weights = gauss_hermite()
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
        mean, root = self._root
        return np.asarray(mean + rng.standard_normal((n, root.shape[1])) @ root.T, np.float64)

    def probability_above(self, index: int) -> np.ndarray:
        """Return each member's probability of a higher mean reward than one of them, (n,).

        That of the one itself is 1.
        """
        above = self.probability_over(np.full(len(self.ids), index, dtype=np.intp))
        above[index] = 1.0
        return above

    def probability_over(self, rivals: np.ndarray) -> np.ndarray:
        """Return each member's probability of a higher mean reward than its rival's, (n,).

        Args:
            rivals: a member for each, (n,).
        """
        if self.process is None or self.places is None:
            return np.full(len(self.ids), 0.5)
        mean, covariance = self.process.joint(self.places, self.rows)
        variance, own = np.diag(covariance), np.arange(len(mean))
        of_gap = np.maximum(variance + variance[rivals] - 2.0 * covariance[rivals, own], 1e-12)
        return np.asarray(ndtr((mean - mean[rivals]) / np.sqrt(of_gap)), np.float64)

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


def _root_of(covariance: np.ndarray) -> np.ndarray:
    """Return R with R R^T = covariance, which rounding may have left slightly indefinite."""
    scale = float(np.diag(covariance).mean()) if len(covariance) else 1.0
    try:
        return np.linalg.cholesky(covariance + np.eye(len(covariance)) * (1e-6 * scale + 1e-12))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), np.float64)
