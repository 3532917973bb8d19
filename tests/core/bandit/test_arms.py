"""Posteriors of arms, their exact propensities, and the policy that chooses by them."""

import numpy as np
import pytest
from scipy import integrate, stats

from convergence_core.bandit.arms import BetaArms
from convergence_core.bandit.priors import TRUST, WarmArms, nightly_prior
from convergence_core.bandit.propensities import Policy, of_beta, of_gaussian


def test_propensities_of_two_beta_arms_have_a_closed_form():
    # P(Beta(2, 1) > Beta(1, 1)) = integral of 2x x dx.
    assert of_beta(np.array([2.0, 1.0]), np.ones(2)) == pytest.approx([2 / 3, 1 / 3], abs=1e-10)


def test_propensities_of_gaussian_arms_have_a_closed_form():
    propensities = of_gaussian(np.array([0.3, 0.1]), np.array([0.2, 0.4]))
    expected = stats.norm.cdf(0.2 / np.hypot(0.2, 0.4))
    assert propensities == pytest.approx([expected, 1 - expected], abs=1e-9)


def test_propensities_agree_with_quadrature_of_scipy():
    alpha, beta = np.array([3.0, 8.0, 5.0]), np.array([4.0, 9.0, 6.0])
    for arm in range(3):
        others = [j for j in range(3) if j != arm]

        def integrand(x: float, arm: int = arm, others: list[int] = others) -> float:
            below = np.prod([stats.beta.cdf(x, alpha[j], beta[j]) for j in others])
            return float(stats.beta.pdf(x, alpha[arm], beta[arm]) * below)

        expected = integrate.quad(integrand, 0.0, 1.0)[0]
        assert of_beta(alpha, beta)[arm] == pytest.approx(expected, abs=1e-8)


def test_a_policy_chooses_each_arm_on_its_part_of_the_unit_interval():
    policy = Policy.of([0.2, 0.0, 0.5, 0.3])
    uniforms = (np.arange(1_000) + 0.5) / 1_000
    chosen = [policy.choose(float(u)) for u in uniforms]
    assert np.bincount(chosen, minlength=4).tolist() == [200, 0, 500, 300]
    assert policy.choose(1.0 - 2**-53) == 3


def test_a_last_arm_without_a_chance_is_never_chosen():
    policy = Policy.of([0.1] * 10 + [0.0])
    assert policy.choose(1.0 - 2**-53) == 9


def test_exploration_is_spread_evenly():
    assert Policy.of([3.0, 1.0], explore=0.5).propensities == pytest.approx((0.625, 0.375))


def test_a_policy_is_stale_when_the_evidence_has_grown():
    assert Policy.of([1.0], n=0).is_stale(1)
    assert not Policy.of([1.0], n=1_000).is_stale(1_019)
    assert Policy.of([1.0], n=1_000).is_stale(1_020)
    assert not Policy.of([1.0], n=1_000).is_stale(1_039, patience=2.0)
    assert Policy.of([1.0], n=1_000).stale_at(2.0) == 1_040


@pytest.mark.parametrize("wrong", [[], [-0.1, 1.0], [0.0, 0.0], [float("nan")]])
def test_what_are_no_propensities_is_refused(wrong: list[float]):
    with pytest.raises(ValueError, match="propensities"):
        Policy.of(wrong)
    with pytest.raises(ValueError, match="explore"):
        Policy.of([1.0], explore=1.5)


def test_the_weight_of_a_nightly_prior_is_that_of_a_beta_of_its_mean_and_deviation():
    beta = stats.beta(14.0, 6.0)
    prior = nightly_prior(beta.mean(), beta.std())
    assert prior.weight == pytest.approx(20.0)
    assert (prior.alpha, prior.beta) == pytest.approx((14.5, 6.5))


def test_the_weight_of_a_nightly_prior_is_capped():
    assert nightly_prior(0.5, 0.001).weight == 20.0
    assert nightly_prior(0.5, 0.6).weight == 0.0
    certain = nightly_prior(1.0, 0.01)
    assert certain.beta == 0.5


def warm(
    alpha: list[float], beta: list[float], rewards: list[tuple[int, float]], trust: float = TRUST
) -> WarmArms:
    """Arms with these nightly priors after some rewards."""
    gained = np.zeros((2, len(alpha)))
    for arm, reward in rewards:
        gained[:, arm] += reward, 1.0 - reward
    informed, vague = (
        BetaArms(prior_alpha=a, prior_beta=b, alpha=a + gained[0], beta=b + gained[1])
        for a, b in (np.array([alpha, beta]), np.ones((2, len(alpha))))
    )
    return WarmArms(informed=informed, vague=vague, trust_before=trust)


def test_trust_in_nightly_priors_is_the_posterior_of_two_hypotheses():
    arms = warm([9.0, 2.0], [2.0, 9.0], [(0, 1.0), (0, 1.0), (1, 0.0), (0, 0.0)], trust=0.7)
    # Informed: arm 0 pays 9/11, 10/12 and fails 2/13; arm 1 fails 9/11.
    informed = 9 / 11 * 10 / 12 * 2 / 13 * 9 / 11
    vague = 1 / 2 * 2 / 3 * 1 / 4 * 1 / 2
    assert arms.trust == pytest.approx(0.7 * informed / (0.7 * informed + 0.3 * vague))


def test_nightly_priors_that_promised_too_much_lose_their_trust():
    arms = warm([36.0, 8.0], [4.0, 32.0], [(0, 0.0)] * 15)
    assert arms.trust < 0.01
    assert arms.propensities()[1] > 0.9


def test_priors_that_are_never_or_always_trusted_stay_so():
    assert warm([9.0], [2.0], [(0, 0.0)], trust=1.0).trust == 1.0
    never = warm([9.0, 5.0], [2.0, 5.0], [(0, 1.0), (1, 0.5)], trust=0.0)
    assert never.trust == 0.0
    expected = of_beta(np.array([2.0, 1.5]), np.array([1.0, 1.5]))
    assert never.propensities() == pytest.approx(expected)
