"""How much a thought may say: its weight follows its predictions, its strength is bounded."""

import numpy as np
import pytest

from convergence_core.rlp.bins import binned_normal
from convergence_core.rlp.experts import (
    Weights,
    beta_prior,
    pooled,
    pooled_evidence,
    strength_of,
)
from tests.support.arm_worlds import mean_regret


def test_the_first_weights_leave_most_to_the_base():
    w = Weights.first(4)
    assert w.values == pytest.approx((0.6, 0.1, 0.1, 0.1, 0.1))
    assert Weights.first(0).values == (1.0,)


def test_an_update_with_all_heard_is_its_equation():
    w = Weights((0.6, 0.3, 0.1))
    e = np.array([1.0, 2.0, 0.5])
    shares = np.array(w.values) * e
    expected = 0.99 * shares / shares.sum() + 0.01 * np.array([0.6, 0.2, 0.2])
    assert w.after({1: 2.0, 2: 0.5}).values == pytest.approx(tuple(expected))


def test_an_expert_that_was_not_heard_keeps_its_weight_and_has_no_place():
    w = Weights((0.6, 0.3, 0.1))
    after = w.after({1: 3.0})
    assert after.values[2] == 0.1
    assert sum(after.values) == pytest.approx(1.0)
    assert after.values[1] > 0.3
    assert w.lottery([1]) == pytest.approx({0: 2 / 3, 1: 1 / 3})
    assert w.after({}).values == pytest.approx(w.values)


def test_a_prior_counts_for_one_to_five_trials():
    sure, vague = binned_normal(0.7, 0.02), np.full(10, 0.1)
    mu, nu = strength_of(np.array([sure, vague]))
    assert nu[0] == 5.0
    assert 1.0 <= nu[1] < 2.5
    alpha, beta = beta_prior(np.array([sure, vague]))
    assert alpha + beta == pytest.approx(nu)
    assert alpha / (alpha + beta) == pytest.approx(mu)


def test_thoughts_of_one_strategy_speak_with_one_voice():
    p, q = binned_normal(0.2, 0.1), binned_normal(0.8, 0.1)
    assert pooled([p, q]) == pytest.approx((p + q) / 2)
    assert pooled_evidence([1.0, 3.0]) == 2.0


@pytest.mark.statistical
@pytest.mark.parametrize("caps", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_in_draws_one_by_one_good_thoughts_help_and_lies_cost_little(caps: bool):
    n = 60
    plain = mean_regret(("good",), n, batch=1, thinks=False)
    good = mean_regret(("good",), n, batch=1, caps=caps)
    lies = mean_regret(("adversarial",), n, batch=1, caps=caps)
    assert good <= 0.9 * plain, (good, plain)
    assert lies <= 1.1 * plain, (lies, plain)


@pytest.mark.statistical
@pytest.mark.slow
def test_in_batches_good_thoughts_help_less_and_lies_cost_as_little():
    n = 150
    plain = mean_regret(("good",), n, thinks=False)
    good = mean_regret(("good",), n)
    lies = mean_regret(("adversarial",), n)
    assert good <= 0.9 * plain, (good, plain)
    assert lies <= 1.1 * plain, (lies, plain)
    assert mean_regret(("adversarial",), n, thinks=False, trusts=True) > 1.3 * plain
