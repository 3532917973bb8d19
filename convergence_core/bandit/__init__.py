"""Runtime bandit: posteriors, propensities, drift detection, reward receipts.

``BetaArms``, ``WarmArms`` (with a nightly prior), ``GaussianArms`` and ``LinearArms`` are posteriors;
``Policy`` is one version of their exact propensities; ``DriftWatch`` detects that a mean has changed;
``receive`` says whether a reward is learned, stored or refused.
"""

from convergence_core.bandit.arms import BetaArms, GaussianArms
from convergence_core.bandit.constraints import QualityConstraint
from convergence_core.bandit.drift import Alarm, DriftWatch
from convergence_core.bandit.features import Encoder
from convergence_core.bandit.linear import LinearArms, LinearLearner
from convergence_core.bandit.policy import ArmChoice, Policy
from convergence_core.bandit.priors import NightlyPrior, nightly_prior
from convergence_core.bandit.receipts import OpenDecision, Receipt, receive
from convergence_core.bandit.warm_start_arms import WarmArms

__all__ = [
    "Alarm",
    "ArmChoice",
    "BetaArms",
    "DriftWatch",
    "Encoder",
    "GaussianArms",
    "LinearArms",
    "LinearLearner",
    "NightlyPrior",
    "OpenDecision",
    "Policy",
    "QualityConstraint",
    "Receipt",
    "WarmArms",
    "nightly_prior",
    "receive",
]
