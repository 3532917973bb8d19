"""Beta arms with the night as prior, and a way out if the night was wrong.

A prior of weight w that is wrong costs about w rewards for each arm. So the night is one of two
hypotheses: *right*, every arm has its nightly prior; *wrong*, every arm begins without opinion.
Which one holds is learned too, from all arms together, since a night misleads as a whole:

    log odds = log (t / (1 - t)) + sum_k log B(a_k + s_k, b_k + f_k) / B(a_k, b_k)
                                 - sum_k log B(1 + s_k, 1 + f_k) / B(1, 1)

with t the trust before any reward and s, f the sums of rewards and of what they lack. It is the
robust mixture prior of H. Schmidli et al., "Robust meta-analytic-predictive priors in clinical
trials with historical control information", 2014, with one weight for all arms. Thompson sampling
draws the hypothesis first, so propensities are the mixture's.

Where the night was right it has explored already, so draws under that hypothesis are surer than its
posterior: counts are multiplied by ``1 + (SHARPNESS - 1) w_k / (w_k + n_k)``, with w the prior's weight
and n the arm's own rewards. It fades as those come, so a night that was nearly right misleads no one for
long. What is lost to exploration is then that of the doubt alone.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, expit

from convergence_core.bandit.arms import BetaArms
from convergence_core.bandit.propensities import Floats

TRUST = 0.5
"""Probability that the night is right, before any reward."""
SHARPNESS = 6.0
"""How many times as sure of the night its draws are before an arm has rewards of its own."""
_LEAST = 1e-4
"""Hypotheses less likely than this are not integrated."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WarmArms:
    """Two posteriors of the same arms."""

    night: BetaArms
    """If the night was right."""
    cold: BetaArms
    """If it was wrong."""
    trust_before: float = TRUST
    """``t``, in [0, 1]; 1: the night is never doubted, 0: never used."""

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
        night = BetaArms.begin(prior_alpha, prior_beta)
        ones = np.ones(night.alpha.size)
        return cls(night=night, cold=BetaArms.begin(ones, ones), trust_before=trust)

    @property
    def trust(self) -> float:
        """Probability that the night is right, given the rewards."""
        if self.trust_before in {0.0, 1.0}:
            return self.trust_before
        odds = np.log(self.trust_before) - np.log1p(-self.trust_before)
        return float(expit(odds + _log_evidence(self.night) - _log_evidence(self.cold)))

    @property
    def n(self) -> Floats:
        """Rewards learned from, (n_arms,)."""
        return self.cold.n

    @property
    def means(self) -> Floats:
        """Posterior means, (n_arms,)."""
        trust = self.trust
        return np.asarray(trust * self.night.means + (1.0 - trust) * self.cold.means)

    def draw(self, rng: np.random.Generator) -> Floats:
        """Draw a mean for each arm, (n_arms,)."""
        return (_sharpened(self.night) if rng.random() < self.trust else self.cold).draw(rng)

    def propensities(self) -> Floats:
        """Return the probability of each arm to be drawn highest, (n_arms,)."""
        trust = self.trust
        total = np.zeros(self.n.size)
        for share, arms in ((trust, _sharpened(self.night)), (1.0 - trust, self.cold)):
            if share > _LEAST:
                total += share * arms.propensities()
        return np.asarray(total / total.sum())

    def tell(self, arm: int, reward: float, *, discount: float = 1.0) -> "WarmArms":
        """Return the arms after one reward.

        Raises:
            ValueError: the reward is not in [0, 1], or the discount not in (0, 1].
        """
        return WarmArms(
            night=self.night.tell(arm, reward, discount=discount),
            cold=self.cold.tell(arm, reward, discount=discount),
            trust_before=self.trust_before,
        )

    def reset(self) -> "WarmArms":
        """Return the arms without their nightly priors, all rewards kept."""
        return WarmArms(night=self.cold, cold=self.cold, trust_before=0.0)


def _sharpened(arms: BetaArms) -> BetaArms:
    """Return the night's arms as they are drawn from."""
    weight = arms.prior_alpha + arms.prior_beta
    own = np.maximum(arms.alpha + arms.beta - weight, 0.0)
    factor = 1.0 + (SHARPNESS - 1.0) * weight / (weight + own)
    return replace(arms, alpha=factor * arms.alpha, beta=factor * arms.beta)


def _log_evidence(arms: BetaArms) -> float:
    """Return the logarithm of the rewards' probability under the arms' priors, nats."""
    gained = betaln(arms.alpha, arms.beta) - betaln(arms.prior_alpha, arms.prior_beta)
    return float(np.sum(gained))
