"""Runtime bandit: posteriors, propensities, drift detection, reward receipts.

``BetaArms``, ``WarmArms`` (with a nightly prior), ``GaussianArms`` and ``LinearArms`` are posteriors;
``Policy`` is one version of their exact propensities; ``DriftWatch`` detects that a mean has changed;
``receive`` says whether a reward is learned, stored or refused.
"""

from convergence_core.bandit.arms import BetaArms, GaussianArms, OpenDecision, Receipt, receive
from convergence_core.bandit.constraints import QualityConstraint
from convergence_core.bandit.drift import Alarm, DriftWatch
from convergence_core.bandit.linear import Encoder, LinearArms, LinearLearner
from convergence_core.bandit.priors import NightlyPrior, WarmArms, nightly_prior
from convergence_core.bandit.propensities import ArmChoice, Policy

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
