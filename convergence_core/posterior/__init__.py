"""Posteriors of candidates' mean rewards, from partial and noisy evidence.

``SpaceModel`` is the surrogate of the search: a Gaussian process over the space that jointly
predicts evaluated and new candidates.
"""

from convergence_core.posterior.space_model import FittedSpaceModel, SpaceModel

__all__ = ["FittedSpaceModel", "SpaceModel"]
