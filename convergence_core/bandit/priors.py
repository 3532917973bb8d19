"""Priors of arms from the night before.

The run's posterior of a candidate's mean reward has a mean m and a standard deviation sd. As a Beta
it would weigh as many rewards as

    n = m (1 - m) / sd^2 - 1                                                                       (1)

Test cases are not production, so what enters is this weight times a discount, and never more than a
cap; the prior's mean stays m. One more pseudo-reward, half of it a success, keeps an arm that never
failed from being certain.

If the run was right, a heavier prior saves more; if it was wrong, an arm must earn about as many
rewards as the prior weighs before it is believed, unless the prior itself may be doubted
(``WarmArms``), which is why the default can be as high as it is.

A prior of weight w that is wrong costs about w rewards for each arm. So it is a hypothesis: either
every arm has its nightly prior, or every arm begins without opinion. Which one holds is learned too,
from all arms together, since a nightly run misleads as a whole:

    log odds = log (t / (1 - t)) + sum_k log B(a_k + s_k, b_k + f_k) / B(a_k, b_k)
                                 - sum_k log B(1 + s_k, 1 + f_k) / B(1, 1)                         (1)

with t the trust before any reward and s, f the sums of rewards and of what they lack. It is the
robust mixture prior of H. Schmidli et al., "Robust meta-analytic-predictive priors in clinical
trials with historical control information", 2014, with one weight for all arms. Thompson sampling
draws the hypothesis first, so propensities are the mixture's.

Where the nightly prior is right, the nightly run has explored already, so draws under it are surer
than its posterior: counts are multiplied by

    1 + (SHARPNESS - 1) w_k / (w_k + n_k)                                                          (2)

with w the prior's weight and n the arm's own rewards. It fades as those come, so a prior that was
nearly right misleads for a short time only. Only the doubt then costs exploration.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, expit

from convergence_core.bandit.arms import BetaArms
from convergence_core.bandit.propensities import Floats

MOST = 20.0
"""Largest weight of a prior, in rewards."""
_MAX_EQUIVALENT = 1e12
"""Rewards beyond which more of them change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyPrior:
    """Prior of an arm and its source; shown beside the arm, and dropped by a reset."""

    mean: float
    """The run's posterior mean reward."""
    sd: float
    """Its standard deviation."""
    weight: float
    """Rewards that it counts for in production, the one of no opinion left out."""
    run_id: str | None = None
    """The run that learned it."""

    @property
    def alpha(self) -> float:
        """First count of the prior."""
        return self.mean * self.weight + 0.5

    @property
    def beta(self) -> float:
        """Second count of the prior."""
        return (1.0 - self.mean) * self.weight + 0.5


def nightly_prior(
    mean: float,
    sd: float,
    *,
    run_id: str | None = None,
) -> NightlyPrior:
    """Return the prior that a batch posterior is worth.

    Args:
        mean: the posterior's mean reward, in [0, 1].
        sd: its standard deviation, above 0.
        run_id: the run it comes from.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0.0 <= mean <= 1.0:
        raise ValueError(f"a mean reward must lie in [0, 1], but got {mean}")
    if not sd > 0.0:
        raise ValueError(f"a standard deviation must be positive, but got {sd}")
    # At 0 or 1 a Beta has no variance; a hundredth inside, it has some.
    inside = min(max(mean, 0.01), 0.99)
    # Divided twice: the square of a huge deviation is no float.
    n_equivalent = inside * (1.0 - inside) / sd / sd - 1.0  # (eq. 1)
    n_equivalent = min(max(n_equivalent, 0.0), _MAX_EQUIVALENT)
    return NightlyPrior(
        mean=mean,
        sd=sd,
        weight=min(n_equivalent, MOST),
        run_id=run_id,
    )


TRUST = 0.5
"""Probability that nightly priors are right, before any reward."""
SHARPNESS = 6.0
"""Factor of the informed counts before an arm has rewards of its own."""
_LEAST = 1e-4
"""Hypotheses less likely than this are not integrated."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WarmArms:
    """Two posteriors of the same arms."""

    informed: BetaArms
    """If the nightly priors are right."""
    vague: BetaArms
    """If they are wrong."""
    trust_before: float = TRUST
    """``t``, in [0, 1]; 1: nightly priors are never doubted, 0: never used."""

    @classmethod
    def begin(cls, prior_alpha: ArrayLike, prior_beta: ArrayLike, *, trust: float = TRUST) -> Self:
        """Return the arms before any reward.

        Args:
            prior_alpha: first counts of the nightly priors, (n_arms,); 1 for an arm without.
            prior_beta: second counts, (n_arms,).
            trust: see ``trust_before``.

        Raises:
            ValueError: a count is not positive, or the trust not in [0, 1].
        """
        if not 0.0 <= trust <= 1.0:
            raise ValueError(f"trust must lie in [0, 1], but got {trust}")
        informed = BetaArms.begin(prior_alpha, prior_beta)
        ones = np.ones(informed.alpha.size)
        return cls(informed=informed, vague=BetaArms.begin(ones, ones), trust_before=trust)

    @property
    def trust(self) -> float:
        """Probability that the nightly priors are right, given the rewards."""
        if self.trust_before in {0.0, 1.0}:
            return self.trust_before
        odds = np.log(self.trust_before) - np.log1p(-self.trust_before)
        evidence = _log_evidence(self.informed) - _log_evidence(self.vague)
        return float(expit(odds + evidence))  # (eq. 1)

    def draw(self, rng: np.random.Generator) -> Floats:
        """Draw a mean for each arm, (n_arms,)."""
        is_informed = rng.random() < self.trust
        return (_sharpened(self.informed) if is_informed else self.vague).draw(rng)

    def propensities(self) -> Floats:
        """Return the probability of each arm to be drawn highest, (n_arms,)."""
        trust = self.trust
        total = np.zeros(self.vague.n.size)
        for share, arms in ((trust, _sharpened(self.informed)), (1.0 - trust, self.vague)):
            if share > _LEAST:
                total += share * arms.propensities()
        return np.asarray(total / total.sum())

    def tell(self, arm: int, reward: float) -> Self:
        """Return the arms after one reward.

        Raises:
            ValueError: the reward is not in [0, 1].
        """
        return replace(
            self, informed=self.informed.tell(arm, reward), vague=self.vague.tell(arm, reward)
        )


def _sharpened(arms: BetaArms) -> BetaArms:
    """Return informed arms as they are drawn from."""
    weight = arms.prior_alpha + arms.prior_beta
    n_rewards = np.maximum(arms.alpha + arms.beta - weight, 0.0)
    factor = 1.0 + (SHARPNESS - 1.0) * weight / (weight + n_rewards)  # (eq. 2)
    return replace(arms, alpha=factor * arms.alpha, beta=factor * arms.beta)


def _log_evidence(arms: BetaArms) -> float:
    """Return the logarithm of the rewards' probability under the arms' priors, nats."""
    gained = betaln(arms.alpha, arms.beta) - betaln(arms.prior_alpha, arms.prior_beta)
    return float(np.sum(gained))
