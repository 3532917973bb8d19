"""Evidence in the units of the process, which lie on a curve: linear where the posterior lies.

The process works on warped rewards, the noise is that of rewards. A candidate's measurement is
carried over along the warp's tangent. Taken at the measurement itself, that tangent is as noisy as
the measurement is; and p (1 - p), the noise of pass and fail, is too small for whoever was lucky.
So evidence is read again at the posterior mean, as generalized linear models are fitted by weights of
the fitted means (McCullagh & Nelder 1989, §2.5), and filters by tangents at the posterior
(García-Fernández, Svensson & Särkkä 2015).

Notation: M candidates.
"""

from dataclasses import dataclass

import numpy as np

from convergence_core.posterior.case_effects import CaseEffects
from convergence_core.posterior.warp import Warp
from convergence_core.posterior.warped_posterior import Bounds, WarpedBeliefs


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reading:
    """What the process is fitted to."""

    effects: CaseEffects
    warp: Warp
    targets: np.ndarray
    """Warped measurements, (M,)."""
    errors: np.ndarray
    """Their covariance, (M, M); up to a factor where the noise is not measured."""

    @classmethod
    def of(
        cls, effects: CaseEffects, bounds: Bounds, believed: WarpedBeliefs | None = None
    ) -> "Reading":
        """Return the reading.

        Args:
            effects: evidence per candidate.
            bounds: where rewards lie; ``None``: anywhere.
            believed: of these candidates, by an earlier reading; ``None``: this is the first.
        """
        low, high = bounds or (-1.0, 1.0)
        error = float(np.median(np.sqrt(np.diag(effects.errors)))) if effects.is_measured else 0.0
        # Of the measurements in every reading: a warp learned of shrunken rewards would shrink them
        # further, and so on to nothing.
        warp = Warp.learn(effects.mean, guess=(high - low) / 4, least=error)
        at = effects.mean if believed is None else believed.mean
        slope = warp.slope(at) if effects.is_measured else np.ones(len(at))
        return cls(
            effects=effects,
            warp=warp,
            targets=warp.forward(at) + slope * (effects.mean - at),
            errors=slope[:, None] * effects.errors * slope,
        )
