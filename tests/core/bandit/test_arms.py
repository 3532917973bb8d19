"""Posteriors of arms, their exact propensities, and the policy that chooses by them."""

import numpy as np
import pytest
from scipy import integrate, stats

from convergence_core.bandit.arms import BetaArms
from convergence_core.bandit.priors import WarmArms, nightly_prior
from convergence_core.bandit.propensities import Policy, of_beta, of_gaussian


def test_propensities_of_two_beta_arms_have_a_closed_form():
    # P(Beta(2, 1) > Beta(1, 1)) = integral of 2x x dx.
    assert of_beta([2.0, 1.0], [1.0, 1.0]) == pytest.approx([2 / 3, 1 / 3], abs=1e-10)


def test_propensities_of_gaussian_arms_have_a_closed_form():
    found = of_gaussian([0.3, 0.1], [0.2, 0.4])
    expected = stats.norm.cdf(0.2 / np.hypot(0.2, 0.4))
    assert found == pytest.approx([expected, 1 - expected], abs=1e-9)


def test_propensities_agree_with_quadrature_of_scipy():
    alpha, beta = np.array([3.0, 8.0, 5.0]), np.array([4.0, 9.0, 6.0])
    for arm in range(3):
        others = [j for j in range(3) if j != arm]

        def integrand(x: float, arm: int = arm, others: list[int] = others) -> float:
            below = np.prod([stats.beta.cdf(x, alpha[j], beta[j]) for j in others])
            return float(stats.beta.pdf(x, alpha[arm], beta[arm]) * below)

        expected = integrate.quad(integrand, 0.0, 1.0)[0]
        assert of_beta(alpha, beta)[arm] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    "wrong", [([0.0], [1.0]), ([1.0], [np.nan]), ([], []), ([[1.0]], [[1.0]])]
)
def test_counts_that_are_no_posterior_are_refused(wrong: tuple[list[float], list[float]]):
    with pytest.raises(ValueError, match="positive"):
        of_beta(*wrong)
    with pytest.raises(ValueError, match="positive"):
        of_gaussian(wrong[0], np.negative(wrong[1]))


def test_beta_arms_are_their_prior_plus_the_sum_of_rewards_in_any_order():
    rewards = [(0, 1.0), (1, 0.25), (0, 0.0), (1, 1.0), (0, 0.5)]
    for order in (rewards, rewards[::-1]):
        arms = BetaArms.begin([2.0, 1.0], [1.0, 3.0])
        for arm, reward in order:
            arms = arms.tell(arm, reward)
        assert arms.alpha == pytest.approx([3.5, 2.25])
        assert arms.beta == pytest.approx([2.5, 3.75])
        assert arms.n.tolist() == [3, 2]


def test_means_of_beta_arms_are_those_of_scipy():
    arms = BetaArms.begin([2.0, 7.0], [5.0, 1.0])
    assert arms.alpha / (arms.alpha + arms.beta) == pytest.approx(
        stats.beta.mean([2.0, 7.0], [5.0, 1.0])
    )


@pytest.mark.parametrize("reward", [-0.1, 1.1, float("nan"), float("inf")])
def test_beta_arms_refuse_rewards_out_of_range(reward: float):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        BetaArms.begin(1.0, 1.0).tell(0, reward)


@pytest.mark.parametrize("count", [0.0, -1.0, float("inf")])
def test_priors_without_meaning_are_refused(count: float):
    with pytest.raises(ValueError, match="positive"):
        BetaArms.begin(count, 1.0)


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


@pytest.mark.parametrize("wrong", [(1.1, 0.1), (0.5, 0.0)])
def test_nightly_priors_out_of_range_are_refused(wrong: tuple[float, float]):
    with pytest.raises(ValueError, match="must"):
        nightly_prior(*wrong)


def test_trust_in_nightly_priors_is_the_posterior_of_two_hypotheses():
    arms = WarmArms.begin([9.0, 2.0], [2.0, 9.0], trust=0.7)
    for arm, reward in ((0, 1.0), (0, 1.0), (1, 0.0), (0, 0.0)):
        arms = arms.tell(arm, reward)
    # Informed: arm 0 pays 9/11, 10/12 and fails 2/13; arm 1 fails 9/11.
    informed = 9 / 11 * 10 / 12 * 2 / 13 * 9 / 11
    vague = 1 / 2 * 2 / 3 * 1 / 4 * 1 / 2
    assert arms.trust == pytest.approx(0.7 * informed / (0.7 * informed + 0.3 * vague))


def test_nightly_priors_that_promised_too_much_lose_their_trust():
    arms = WarmArms.begin([36.0, 8.0], [4.0, 32.0])
    for _ in range(15):
        arms = arms.tell(0, 0.0)
    assert arms.trust < 0.01
    assert arms.propensities()[1] > 0.9


def test_priors_that_are_never_or_always_trusted_stay_so():
    assert WarmArms.begin([9.0], [2.0], trust=1.0).tell(0, 0.0).trust == 1.0
    never = WarmArms.begin([9.0, 5.0], [2.0, 5.0], trust=0.0).tell(0, 1.0).tell(1, 0.5)
    assert never.trust == 0.0
    assert never.propensities() == pytest.approx(of_beta([2.0, 1.5], [1.0, 1.5]))


def test_trust_out_of_range_is_refused():
    with pytest.raises(ValueError, match="trust"):
        WarmArms.begin([1.0], [1.0], trust=1.1)
