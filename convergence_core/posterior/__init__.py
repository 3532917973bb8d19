"""What is believed of every candidate's mean reward, from partial, noisy, case-blocked evidence.

``Posterior`` and ``Surrogate`` are the walls. ``SpaceModel`` knows the search space: a Gaussian
process that says what to expect of candidates nobody has asked. ``CaseModel`` knows candidates only
by their evidence and their parents; it serves where no space is at hand.
"""

from convergence_core.posterior.beliefs import Beliefs
from convergence_core.posterior.case_model import CaseModel, FittedCaseModel
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.protocols import Fitted, Posterior, Surrogate
from convergence_core.posterior.space_model import FittedSpaceModel, SpaceModel
from convergence_core.posterior.variances import Variances

__all__ = [
    "Beliefs",
    "CaseModel",
    "Evidence",
    "Fitted",
    "FittedCaseModel",
    "FittedSpaceModel",
    "Posterior",
    "SpaceModel",
    "Surrogate",
    "Variances",
]
