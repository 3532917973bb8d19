"""Trust: a bound that a coin does not pass."""

import numpy as np
import pytest
from scipy.stats import binomtest

from convergence_core.judges.trust import LEAST_TRUST, Trust, audit


def items(accuracy: float, n: int, rng: np.random.Generator) -> list[float]:
    """Return the probability that a judge of this accuracy gave to the truth, of n items."""
    return [0.8 if rng.random() < accuracy else 0.2 for _ in range(n)]


def enabled(accuracy: float, n: int, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    return Trust().after(audit(items(accuracy, n, rng))).is_enabled


@pytest.mark.statistical
def test_a_coin_is_disabled_and_a_judge_of_eighty_percent_is_believed():
    coins = sum(enabled(0.5, 50, seed) for seed in range(100))
    judges = sum(enabled(0.8, 50, seed) for seed in range(100))
    assert coins <= 5
    assert judges >= 90


@pytest.mark.parametrize(("n_right", "trusts"), [(34, False), (35, True), (25, False)])
def test_thirty_five_of_fifty_is_where_trust_begins(n_right: int, trusts: bool):
    found = Trust(n_right=n_right, n_items=50, n_different=50)
    assert found.is_enabled == trusts
    assert (found.value >= LEAST_TRUST) == trusts
    assert (found.value == 0.0) == (n_right == 25)
    assert (Trust().value, Trust().is_enabled) == (0.0, False)


@pytest.mark.statistical
def test_ten_items_at_a_time_enable_no_coin_before_the_fiftieth():
    n, heard = 300, 0
    for seed in range(n):
        rng, state = np.random.default_rng(seed), Trust()
        for _ in range(4):
            state = state.after(audit(items(0.5, 10, rng)))
            assert not state.is_enabled
            assert state.value == 0.0
        state = state.after(audit(items(0.5, 10, rng)))
        assert state.n_missing == 0
        heard += state.is_enabled
    # The bound is one of 10 %: 3 % more than a coin is what trust asks for.
    assert binomtest(heard, n, 0.05, "greater").pvalue > 1e-3, heard
    rng = np.random.default_rng(0)
    lucky = Trust().after(audit(items(1.0, 10, rng)))
    assert (lucky.value, lucky.n_missing) == (0.0, 40)
    # Asked again, the same ten are no further evidence of how many there are.
    assert lucky.after(audit(items(1.0, 10, rng), n_new=0)).n_missing == 40


def test_older_audits_weigh_less_and_empty_ones_age_nothing():
    rng = np.random.default_rng(0)
    good, bad = audit(items(1.0, 10, rng)), audit(items(0.0, 10, rng))
    state = Trust().after(good).after(bad)
    assert (state.n_right, state.n_items) == pytest.approx((8.0, 18.0))
    assert state.after(audit([])) is state
