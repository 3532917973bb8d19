"""Linear Thompson sampling: what it finds, and what it does not see."""

import numpy as np
import pytest
from scipy.stats import chisquare

from convergence_core.policy import PROMPT_ACTIONS, LinearThompson


def test_it_knows_what_a_step_is_worth_and_not_what_a_later_one_is():
    # The first action costs a little, and opens the second, which earns much; the third ends with nothing.
    first, second = np.array([True, False, True]), np.array([False, True, True])
    state, linear = np.ones(2), LinearThompson(2, 3)
    for _ in range(20):
        linear.tell(state, 0, -0.1)
        linear.tell(state, 1, 0.5)
    assert linear.choose(state, first) == 2
    assert linear.choose(state, second) == 1
    assert linear.n == 40
    with pytest.raises(ValueError, match="`variance` must be above 0"):
        LinearThompson(2, 2, variance=-1.0)


@pytest.mark.statistical
def test_the_prior_chooses_uniformly_among_the_legal():
    policy = LinearThompson(3, len(PROMPT_ACTIONS))
    legal = np.array([True, False, True, True, False, True, True])
    rng = np.random.default_rng(7)
    chosen = [policy.choose(np.array([0.2, -0.4, 0.1]), legal, rng) for _ in range(2_000)]
    counts = np.bincount(chosen, minlength=legal.size)
    assert counts[~legal].sum() == 0
    p = chisquare(counts[legal]).pvalue
    assert p > 1e-3, (counts, p)
