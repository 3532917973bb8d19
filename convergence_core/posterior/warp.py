"""Warp of rewards to the scale of the process, its lower tail compressed.

A crash or a refusal says "not here" and no more; on a linear scale one reward far below the others
would bend the whole surface. What is good keeps its scale, since it is good candidates that are
compared:

    u = (reward - center) / spread,    bend(u) = u above the knee, knee - log(1 + knee - u) below   (1)
    warped = (bend(u) - mean) / sd                                                                 (2)

The process works on warped rewards, the noise is that of rewards, so measurements are carried over
along the tangents of the warp:

    z = warped(x),    Cov(z) = slope(x) Cov(x) slope(x)                                            (3)

Notation: M candidates.
"""

from dataclasses import dataclass

import numpy as np

from convergence_core.posterior.case_effects import CaseEffects

Bounds = tuple[float, float] | None
"""Of rewards; ``None``: anywhere."""
KNEE = -1.5
"""Where compression begins, in units of the spread of the better half below the median."""
PLATEAU = 1e-9
"""A spread below this share of the range is none: the better half got the same reward."""
ROUNDING = 1e-12
"""The same as a share of the highest reward."""


@dataclass(frozen=True, slots=True)
class Warp:
    """Monotone function of rewards: linear above the knee, logarithmic below."""

    center: float
    spread: float
    """Reward per unit above the knee, before the last two."""
    mean: float
    sd: float

    @classmethod
    def learn(cls, rewards: np.ndarray, *, guess: float = 1.0, least: float = 0.0) -> "Warp":
        """Return the warp that makes these rewards mean 0 and sd 1.

        Where all of the better half got the same reward, the unit is the sd of all of them; where
        all got the same, it is ``guess``, and the sd is 0.

        Args:
            rewards: (n,), at least one.
            guess: spread of rewards before any were seen.
            least: error of a reward; a spread below it would be read out of noise.
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
        return cls(center, spread, float(bent.mean()), sd if sd > PLATEAU else 1.0)

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
        # A draw far below the knee is worthless, however far: keep its exponential finite.
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
    """Their covariance, (M, M); up to a factor where the noise is not measured."""

    @classmethod
    def of(cls, effects: CaseEffects, bounds: Bounds) -> "WarpedEvidence":
        """Return the measurements.

        Args:
            effects: evidence per candidate.
            bounds: of rewards.
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
