"""How much a thought may say: its weight follows its predictions, its strength is bounded."""

import numpy as np
import pytest

from convergence_core.rlp.bins import TENTHS
from convergence_core.rlp.experts import Weights, strength
from tests.rlp.arm_worlds import regrets
from tests.rlp.thoughts import binned_normal


def test_the_first_weights_leave_most_to_the_base():
    w = Weights.first(4)
    assert w.values == pytest.approx((0.6, 0.1, 0.1, 0.1, 0.1))


def test_an_update_of_all_is_its_equation():
    w = Weights((0.6, 0.3, 0.1))
    e = np.array([1.0, 2.0, 0.5])
    shares = np.array(w.values) * e
    expected = 0.99 * shares / shares.sum() + 0.01 * np.array([0.6, 0.2, 0.2])
    assert w.after({1: 2.0, 2: 0.5}).values == pytest.approx(tuple(expected))


def test_an_expert_without_evidence_keeps_its_weight_and_has_no_place():
    w = Weights((0.6, 0.3, 0.1))
    after = w.after({1: 3.0})
    assert after.values[2] == 0.1
    assert sum(after.values) == pytest.approx(1.0)
    assert after.values[1] > 0.3
    assert w.lottery([1]) == pytest.approx({0: 2 / 3, 1: 1 / 3})
    assert w.after({}).values == pytest.approx(w.values)


def test_a_prediction_counts_for_one_to_five_trials():
    p = np.array([binned_normal(0.7, 0.02), binned_normal(0.5, 0.25), np.full(10, 0.1)])
    mu, variance = TENTHS.mean_of(p), TENTHS.variance_of(p)
    nu = strength(mu, variance)
    assert nu[0] == 5.0
    assert nu[1] == pytest.approx(mu[1] * (1 - mu[1]) / variance[1] - 1.0)
    assert 1.0 <= nu[2] < 2.5


def change(ours: np.ndarray, plain: np.ndarray) -> tuple[float, float]:
    """Return the one-sided 99 % bounds of the paired change of regret, as shares of the plain one."""
    differences = (ours - plain) / plain.mean()
    margin = 2.33 * differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean() - margin), float(differences.mean() + margin)


@pytest.mark.statistical
@pytest.mark.parametrize("caps", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_in_draws_one_by_one_good_thoughts_help_and_lies_cost_little(caps: bool):
    n = 60
    plain = regrets(("good",), n, batch=1, thinks=False)
    good = regrets(("good",), n, batch=1, caps=caps)
    lies = regrets(("adversarial",), n, batch=1, caps=caps)
    assert change(good, plain)[1] < -0.05
    assert change(lies, plain)[1] < 0.1


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize(("caps", "gain"), [(False, 0.1), (True, 0.05)])
def test_in_batches_good_thoughts_help_less_and_lies_cost_as_little(caps: bool, gain: float):
    n = 150
    plain = regrets(("good",), n, thinks=False)
    good = regrets(("good",), n, caps=caps)
    lies = regrets(("adversarial",), n, caps=caps)
    assert change(good, plain)[1] < -gain
    assert change(lies, plain)[1] < 0.1
    trusted = regrets(("adversarial",), n, thinks=False, trusts=True)
    assert change(trusted, plain)[0] > 0.3
