"""Joint posterior of candidates' mean rewards, from a process on warped rewards.

A crash or a refusal only excludes its point; on a linear scale, one reward far below the others
would bend the whole surface. High rewards keep their scale, since comparisons are between good
candidates:

    u = (reward - center) / spread,    bend(u) = u above the knee, knee - log(1 + knee - u) below  (1)
    warped = (bend(u) - mean) / sd                                                                 (2)

The process models warped rewards, but noise is measured in rewards. So measurements are converted
along the tangents of the warp:

    z = warped(x),    Cov(z) = slope(x) Cov(x) slope(x)                                            (3)

Notation: M candidates.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from convergence_core.posterior.case_effects import CaseEffects
from convergence_core.posterior.gaussian_process import GaussianProcess, matrix_root
from convergence_core.space.arrays import Points

Bounds = tuple[float, float] | None
"""Range of rewards; ``None`` means unbounded."""
KNEE = -1.5
"""Start of the compression, in units of the better half's spread from the median."""
PLATEAU = 1e-9
"""Minimum spread as a share of the range; below it, the better half counts as equal."""
ALIKE = 0.01
"""Minimum sd of all rewards as a share of their error; below it, they count as equal."""
ROUNDING = 1e-12
"""Minimum spread as a share of the highest reward."""


@dataclass(frozen=True, slots=True)
class Warp:
    """Monotone function of rewards: linear above the knee, logarithmic below."""

    center: float
    spread: float
    """Reward per unit above the knee, before standardization by ``mean`` and ``sd``."""
    mean: float
    sd: float

    @classmethod
    def learn(cls, rewards: np.ndarray, *, guess: float = 1.0, least: float = 0.0) -> "Warp":
        """Return the warp that standardizes these rewards to mean 0 and sd 1.

        If the better half is equal, the unit is the sd of all rewards. If all are equal, the unit
        is ``guess``, and the sd is 0.

        Args:
            rewards: Rewards, (n,), at least one.
            guess: Prior guess of the spread.
            least: Error of a reward; a smaller spread would come from noise.
        """
        center = float(np.median(rewards))
        upper = rewards[rewards >= center]
        spread = max(
            float(np.quantile(rewards, 0.9)) - center,
            0.5 * float(np.std(upper)) if len(rewards) > 3 else 0.0,
        )
        tiny = max(PLATEAU * float(np.ptp(rewards)), ROUNDING * float(np.abs(rewards).max()))
        if spread <= tiny:
            spread = float(np.std(rewards))
        spread = max(guess if spread <= tiny else spread, least)
        bent = _bend((rewards - center) / spread)
        sd = float(bent.std())
        are_equal = sd <= max(PLATEAU, ALIKE * least / spread)
        return cls(center, spread, float(bent.mean()), 1.0 if are_equal else sd)

    @property
    def scale(self) -> float:
        """Reward per warped unit above the knee."""
        return self.spread * self.sd

    def forward(self, rewards: np.ndarray) -> np.ndarray:
        """Return warped rewards (eq. 2)."""
        return (_bend((rewards - self.center) / self.spread) - self.mean) / self.sd

    def slope(self, rewards: np.ndarray) -> np.ndarray:
        """Return the derivative of ``forward``."""
        below = np.maximum(KNEE - (rewards - self.center) / self.spread, 0.0)
        return 1.0 / ((1.0 + below) * self.scale)

    def backward(self, warped: np.ndarray) -> np.ndarray:
        """Return the rewards; the inverse of ``forward``."""
        bent = warped * self.sd + self.mean
        # The cap keeps the exponential finite; a draw so far below the knee is worthless anyway.
        below = np.minimum(np.maximum(KNEE - bent, 0.0), 50.0)
        straight = np.where(bent < KNEE, KNEE - np.expm1(below), bent)
        return np.asarray(straight * self.spread + self.center, np.float64)


def _bend(units: np.ndarray) -> np.ndarray:
    """Return the values of (eq. 1), any shape."""
    below = np.maximum(KNEE - units, 0.0)
    return np.asarray(np.where(units < KNEE, KNEE - np.log1p(below), units), np.float64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WarpedEvidence:
    """Measurements of the process."""

    effects: CaseEffects
    warp: Warp
    targets: np.ndarray
    """z, (M,)."""
    errors: np.ndarray
    """Covariance of these targets, (M, M); up to a factor if the noise is not measured."""

    @classmethod
    def of(cls, effects: CaseEffects, bounds: Bounds) -> "WarpedEvidence":
        """Return the measurements.

        Args:
            effects: Estimates per candidate.
            bounds: Range of rewards.
        """
        low, high = bounds or (-1.0, 1.0)
        error = float(np.median(np.sqrt(np.diag(effects.errors)))) if effects.is_measured else 0.0
        warp = Warp.learn(effects.mean, guess=(high - low) / 4, least=error)
        slope = warp.slope(effects.mean) if effects.is_measured else np.ones(len(effects.mean))
        return cls(
            effects=effects,
            warp=warp,
            targets=warp.forward(effects.mean),
            errors=slope[:, None] * effects.errors * slope,  # (eq. 3)
        )


N_NODES = 11
"""Number of nodes of the Gauss-Hermite rule for means and variances of rewards."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WarpedPosterior:
    """Normal posterior of n warped rewards; methods without "warped" return rewards."""

    ids: tuple[str, ...]
    process: GaussianProcess | None
    """``None`` before any reward; every candidate then has the same guess."""
    warp: Warp
    points: Points | None
    rows: np.ndarray
    """Training row of each candidate, -1 if unseen, (n,)."""
    bounds: Bounds
    moved: np.ndarray | None = None
    """Shift of the warped means, (n,); see ``less``."""

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
        """Return the posterior of rewards minus a price each, (n,).

        The shift in warped units is that of the price at the candidate's mean.
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
        """Root of the joint covariance, (n, n)."""
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
        """Return the ends of central credible intervals, (n,) each."""
        mean, sd = self.marginals
        half = float(ndtri((1 + level) / 2)) * sd
        return self.rewards(mean - half), self.rewards(mean + half)

    @property
    def widening(self) -> np.ndarray:
        """Factors of the intervals' widths due to the unknown overall mean, at least 1, (n,)."""
        if self.process is None or self.points is None:
            return np.ones(len(self.ids))
        of_level = self.process.level_variance(self.points, self.rows)
        return np.asarray(np.sqrt(1.0 + of_level / self.marginals[1] ** 2), np.float64)

    def draws(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return joint draws of rewards, (n, n_members)."""
        return self.rewards(self.warped_draws(rng, n))

    def warped_draws(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return joint draws of warped rewards, in the same order as rewards, (n, n_members)."""
        lots = rng.standard_normal((n, self._root.shape[1]))
        return np.asarray(self._joint[0] + lots @ self._root.T, np.float64)

    def probability_above(self, index: int) -> np.ndarray:
        """Return each member's probability of a higher mean reward than member ``index``, (n,).

        The probability of that member itself is 1.
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
        """Return root mean square differences of warped rewards from member ``index``, (n,)."""
        mean, covariance = self._joint
        variance = np.diag(covariance)
        of_gap = variance + variance[index] - 2.0 * covariance[index]
        squares = (mean - mean[index]) ** 2 + np.maximum(of_gap, 0.0)
        return np.asarray(np.sqrt(squares), np.float64)

    def probability_within(
        self, rng: np.random.Generator, n: int, *, index: int, delta: float
    ) -> float:
        """Return the share of draws with member ``index`` at most ``delta`` below the highest."""
        drawn = self.warped_draws(rng, n)  # the warp preserves the maximum
        highest = self.rewards(drawn.max(axis=1))
        return float(np.mean(self.rewards(drawn[:, index]) >= highest - delta))

    def rewards(self, warped: np.ndarray) -> np.ndarray:
        """Return the rewards at warped values, any shape."""
        rewards = self.warp.backward(warped)
        return rewards if self.bounds is None else np.clip(rewards, *self.bounds)
