"""Runtime bandit: posteriors, propensities, drift detection, reward receipts.

``BetaArms``, ``WarmArms`` (with a nightly prior) and ``ContextualArms`` are posteriors;
``Policy`` is one version of their exact propensities; ``DriftWatch`` detects that a mean has changed;
``receive`` says whether a reward is learned, stored or refused.
"""

from convergence_core.bandit.arms import BetaArms, OpenDecision, Receipt, receive
from convergence_core.bandit.contextual import ContextPosterior, ContextualArms
from convergence_core.bandit.drift import Alarm, DriftWatch
from convergence_core.bandit.features import checked_features
from convergence_core.bandit.priors import NightlyPrior, WarmArms, nightly_prior
from convergence_core.bandit.propensities import ArmChoice, Policy

__all__ = [
    "Alarm",
    "ArmChoice",
    "BetaArms",
    "ContextPosterior",
    "ContextualArms",
    "DriftWatch",
    "NightlyPrior",
    "OpenDecision",
    "Policy",
    "Receipt",
    "WarmArms",
    "checked_features",
    "nightly_prior",
    "receive",
]
