"""The joint posterior of some candidates, made of independent parts.

A seen candidate is a *base*: an own part (Gaussian or Beta) plus what the common effects, of cases
and of the center, bring. An unseen child is the mean of its parents' bases, draw by draw, plus a
shift and noise of its own; an unseen candidate without parents stands on the center alone.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, stdtrit

EDGE = 1e-3
"""A Beta's mean stays this far from 0 and 1: case effects may push it beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """Joint posterior; notation: n members, B bases, N factors common to all."""

    ids: tuple[str, ...]
    mean: np.ndarray
    """Posterior means, (n,)."""
    variance: np.ndarray
    """Posterior variances, (n,)."""
    base_mean: np.ndarray
    """(B,)"""
    base_variance: np.ndarray
    """Of the own part, (B,)."""
    base_concentration: np.ndarray | None
    """alpha + beta of the own part's Beta, (B,); ``None``: Gaussian."""
    loading: np.ndarray
    """Weights of the common factors, which are independent N(0, 1), (B, N)."""
    bases: np.ndarray
    """Bases of each member, (n, 2); twice the same: a single one."""
    shift: np.ndarray
    """Added to the mean of the bases, (n,)."""
    extra: np.ndarray
    """Variance of a Gaussian of the member's own, (n,)."""
    dof: float
    """Degrees of freedom behind the variances; infinite where they are known."""

    @classmethod
    def build(
        cls,
        *,
        ids: tuple[str, ...],
        base_mean: np.ndarray,
        base_variance: np.ndarray,
        base_concentration: np.ndarray | None,
        loading: np.ndarray,
        bases: np.ndarray,
        shift: np.ndarray,
        extra: np.ndarray,
        dof: float,
    ) -> "Beliefs":
        """Return the joint posterior of these parts."""
        if base_concentration is not None:
            base_mean = np.clip(base_mean, EDGE, 1 - EDGE)
            base_variance = base_mean * (1 - base_mean) / (base_concentration + 1)
        first, second = bases[:, 0], bases[:, 1]
        mean = shift + (base_mean[first] + base_mean[second]) / 2
        own = (base_variance[first] + base_variance[second]) / 4
        common = ((loading[first] + loading[second]) / 2) ** 2
        variance = extra + np.where(first == second, 2 * own, own) + common.sum(axis=1)
        return cls(
            ids=ids,
            mean=mean,
            variance=variance,
            base_mean=base_mean,
            base_variance=base_variance,
            base_concentration=base_concentration,
            loading=loading,
            bases=bases,
            shift=shift,
            extra=extra,
            dof=dof,
        )

    @property
    def sd(self) -> np.ndarray:
        """Posterior standard deviations, (n,)."""
        return np.asarray(np.sqrt(self.variance), np.float64)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of central credible intervals within [0, 1], (n,) each.

        Of a Beta with a common part, the ends are those of the Beta with its mean and variance.

        Raises:
            ValueError: the level is not within (0, 1).
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie within (0, 1), not {level}")
        tail = (1 - level) / 2
        if self.base_concentration is None:
            half = float(stdtrit(min(self.dof, 1e9), 1 - tail)) * self.sd
            return np.clip(self.mean - half, 0, 1), np.clip(self.mean + half, 0, 1)
        mean = np.clip(self.mean, EDGE, 1 - EDGE)
        spread = mean * (1 - mean)
        strength = np.maximum(spread / np.maximum(self.variance, 1e-12) - 1, 1.0)
        alpha, beta = strength * mean, strength * (1 - mean)
        low, high = (betaincinv(alpha, beta, p) for p in (tail, 1 - tail))
        return np.asarray(low, np.float64), np.asarray(high, np.float64)

    def draws(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return joint draws, (n, n_members); a Gaussian's may leave [0, 1]."""
        n_bases, n_factors = self.loading.shape
        if self.base_concentration is None:
            base = self.base_mean + np.sqrt(self.base_variance) * rng.standard_normal((n, n_bases))
        else:
            alpha = self.base_concentration * self.base_mean
            beta = self.base_concentration * (1 - self.base_mean)
            base = rng.beta(alpha, beta, size=(n, n_bases))
        base = base + rng.standard_normal((n, n_factors)) @ self.loading.T  # (n, B)
        own = rng.standard_normal((n, len(self.ids)))
        drawn = np.asarray(self.shift + np.sqrt(self.extra) * own, np.float64)
        first, second = self.bases[:, 0], self.bases[:, 1]
        drawn += (base[:, first] + base[:, second]) / 2
        return drawn

    def probability_within(
        self, rng: np.random.Generator, n: int, *, index: int, delta: float
    ) -> float:
        """Return the share of draws with this member at most ``delta`` below the highest."""
        drawn = self.draws(rng, n)
        return float(np.mean(drawn[:, index] >= drawn.max(axis=1) - delta))
