"""What is believed of every candidate's mean reward, from partial, noisy, case-blocked evidence.

``Posterior`` and ``Surrogate`` are the walls. ``SpaceModel`` knows the search space: a Gaussian
process that says what to expect of candidates nobody has asked.
"""

from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.protocols import Fitted, Posterior, Surrogate
from convergence_core.posterior.space_model import FittedSpaceModel, SpaceModel

__all__ = [
    "Evidence",
    "Fitted",
    "FittedSpaceModel",
    "Posterior",
    "SpaceModel",
    "Surrogate",
]
