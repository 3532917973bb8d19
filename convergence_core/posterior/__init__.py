"""What is believed of every candidate's mean reward, from partial, noisy, case-blocked evidence.

``Posterior`` and ``Surrogate`` are the walls; ``CaseModel`` is the surrogate at hand. It knows
candidates only by their evidence and their parents; one that knows the search space can take its
place without a change of the samplers.
"""

from convergence_core.posterior.beliefs import Beliefs
from convergence_core.posterior.case_model import CaseModel, FittedCaseModel
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.protocols import Fitted, Posterior, Surrogate
from convergence_core.posterior.variances import Variances

__all__ = [
    "Beliefs",
    "CaseModel",
    "Evidence",
    "Fitted",
    "FittedCaseModel",
    "Posterior",
    "Surrogate",
    "Variances",
]
