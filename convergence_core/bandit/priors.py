"""Priors of arms from the night before.

The run's posterior of a candidate's mean reward has a mean m and a standard deviation sd. The Beta
with these moments has a weight in rewards of

    n = m (1 - m) / sd^2 - 1                                                                       (1)

Test cases differ from production, so the weight is capped; the prior's mean stays m. One more
pseudo-reward, half of it a success, prevents certainty about an arm without failures.

A heavier prior saves more if the run was right. If it was wrong, an arm needs about as many
rewards as the prior weighs to correct it, unless the prior itself may be doubted (``WarmArms``).
That is why the cap can be as high as it is.

A wrong prior of weight w costs about w rewards per arm. So it is a hypothesis: either every arm
has its nightly prior, or every arm starts with a uniform one. The rewards of all arms together
decide, since a nightly run misleads as a whole:

    log odds = log (t / (1 - t)) + sum_k log B(a_k + s_k, b_k + f_k) / B(a_k, b_k)
                                 - sum_k log B(1 + s_k, 1 + f_k) / B(1, 1)                         (2)

with t the trust before any reward, s the sum of rewards and f the sum of their complements. It is
the robust mixture prior of H. Schmidli et al., "Robust meta-analytic-predictive priors in clinical
trials with historical control information", 2014, with one weight for all arms. Thompson sampling
draws the hypothesis first, so propensities are the mixture's.

If the nightly prior is right, the nightly run has already explored. So draws under it are sharper
than its posterior: counts are multiplied by

    1 + (SHARPNESS - 1) w_k / (w_k + n_k)                                                          (3)

with w the prior's weight and n the arm's production rewards. The factor fades with these, so a
nearly right prior misleads only briefly. Then only doubt about the prior costs exploration.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaln, expit

from convergence_core.bandit.arms import BetaArms
from convergence_core.bandit.propensities import Floats

MOST = 20.0
"""Maximum weight of a prior, in rewards."""
_MAX_EQUIVALENT = 1e12
"""Maximum equivalent rewards; more change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyPrior:
    """Prior of an arm with its source; a reset drops it."""

    mean: float
    """Posterior mean reward in the run."""
    sd: float
    """Posterior standard deviation in the run."""
    weight: float
    """Weight in production, in rewards, without the extra pseudo-reward."""
    run_id: str | None = None
    """Run of the posterior."""

    @property
    def alpha(self) -> float:
        """First count of the prior."""
        return self.mean * self.weight + 0.5

    @property
    def beta(self) -> float:
        """Second count of the prior."""
        return (1.0 - self.mean) * self.weight + 0.5


def nightly_prior(mean: float, sd: float, *, run_id: str | None = None) -> NightlyPrior:
    """Return the prior that corresponds to a nightly posterior.

    Args:
        mean: Posterior mean reward, in [0, 1].
        sd: Posterior standard deviation, positive.
        run_id: Run of the posterior.
    """
    # A Beta has no variance at 0 or 1, so the mean is moved a hundredth inside.
    inside = min(max(mean, 0.01), 0.99)
    # Divided twice: the square of a huge deviation overflows.
    n_equivalent = inside * (1.0 - inside) / sd / sd - 1.0  # (eq. 1)
    n_equivalent = min(max(n_equivalent, 0.0), _MAX_EQUIVALENT)
    return NightlyPrior(mean=mean, sd=sd, weight=min(n_equivalent, MOST), run_id=run_id)


TRUST = 0.5
"""Probability that nightly priors are right, before any reward."""
SHARPNESS = 6.0
"""Factor of the informed counts before an arm has production rewards."""
_LEAST = 1e-4
"""Minimum probability of a hypothesis that is integrated."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WarmArms:
    """Informed and vague posteriors of the same arms."""

    informed: BetaArms
    """Posterior if the nightly priors are right."""
    vague: BetaArms
    """Posterior if they are wrong."""
    trust_before: float = TRUST
    """``t``, in [0, 1]; 1 means that nightly priors are never doubted, 0 that they are never
    used."""

    @property
    def trust(self) -> float:
        """Probability that the nightly priors are right, given the rewards."""
        if self.trust_before in {0.0, 1.0}:
            return self.trust_before
        odds = np.log(self.trust_before) - np.log1p(-self.trust_before)
        evidence = _log_evidence(self.informed) - _log_evidence(self.vague)
        return float(expit(odds + evidence))  # (eq. 2)

    def propensities(self) -> Floats:
        """Return each arm's probability of the highest draw, (n_arms,)."""
        trust = self.trust
        total = np.zeros(self.vague.alpha.size)
        for share, arms in ((trust, sharpened(self.informed)), (1.0 - trust, self.vague)):
            if share > _LEAST:
                total += share * arms.propensities()
        return np.asarray(total / total.sum())


def sharpened(arms: BetaArms) -> BetaArms:
    """Return informed arms with sharpened counts for draws."""
    weight = arms.prior_alpha + arms.prior_beta
    n_rewards = np.maximum(arms.alpha + arms.beta - weight, 0.0)
    factor = 1.0 + (SHARPNESS - 1.0) * weight / (weight + n_rewards)  # (eq. 3)
    return replace(arms, alpha=factor * arms.alpha, beta=factor * arms.beta)


def _log_evidence(arms: BetaArms) -> float:
    """Return the log probability of the rewards under the arms' priors, in nats."""
    gained = betaln(arms.alpha, arms.beta) - betaln(arms.prior_alpha, arms.prior_beta)
    return float(np.sum(gained))
