"""Fronts of the benchmark: their true volumes, and a hollow one that is covered, not crowded."""

import math

import numpy as np
import pytest

from benchmarks.fronts import POWERS, REFERENCE, Problem, ours

pytestmark = pytest.mark.timeout(3600)  # minutes of arithmetic, more beside other work


@pytest.mark.parametrize("shape", POWERS)
def test_the_volume_of_the_whole_front_is_that_of_the_closed_form(shape):
    whole = [{"x0": x, "x1": 0.5, "x2": 0.5, "x3": 0.5} for x in np.linspace(0.0, 1.0, 2001)]
    # The area below a quarter circle, and below the line from (0, 1) to (1, 0).
    below = {"hollow": math.pi / 4, "straight": 0.5}[shape]
    expected = 1.0 - below / REFERENCE ** (2 * POWERS[shape])
    assert Problem(shape=shape).volume(whole) == pytest.approx(expected, abs=0.001)
    assert Problem(shape=shape).volume([{**whole[900], "x1": 0.9}]) < 0.5 * expected


@pytest.mark.slow
@pytest.mark.statistical
def test_of_a_hollow_front_most_late_evaluations_lie_between_its_ends():
    """Observed: a fifth at the ends, and .335 of at most .351; it was a half, and .333."""
    for seed in range(2):
        found = ours(Problem(shape="hollow"), seed)
        assert found.at_ends < 0.30
        assert found.volume > 0.325


@pytest.mark.slow
@pytest.mark.statistical
def test_a_metric_that_noise_hides_keeps_its_end_of_a_hollow_front():
    """Observed: 39 % at the ends; two thirds where draws are measured by the front of the means."""
    problem = Problem(shape="hollow", noise=0.05, narrow=0.1)
    found = [ours(problem, seed) for seed in range(4)]
    assert np.mean([one.at_ends for one in found]) < 0.55
