"""Test functions: noise by kind, and what the engine hands over where there is none."""

import numpy as np
import pytest

from benchmarks.optimizer.running import run
from benchmarks.optimizer.spaces import Point
from benchmarks.optimizer.tasks import SETS, get_task
from benchmarks.optimizer.tasks.functions import FUNCTIONS, HEAVY_SCALE, N_DIMS, NOISE_SD

pytestmark = pytest.mark.timeout(3600)  # minutes of arithmetic, more beside other work

AT_BEST = {"rastrigin": 0.0, "ackley": 0.0, "levy": 1.0}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_lie_between_0_and_1_with_1_at_the_optimum(name):
    task, rng = get_task(f"fn0:{name}-{N_DIMS}"), np.random.default_rng(0)
    best: Point = {p.name: AT_BEST[name] for p in task.space.parameters}
    assert task.true(best) == pytest.approx(1.0, abs=1e-12)
    values = [
        task.true({p.name: p.sample(rng) for p in task.space.parameters}) for _ in range(2000)
    ]
    assert min(values) >= 0.0
    assert max(values) < 1.0


@pytest.mark.parametrize(
    ("kind", "spread"), [("fn0", 0.0), ("fnN", NOISE_SD), ("fnT", HEAVY_SCALE)]
)
def test_noise_is_of_the_kind_that_the_name_says(kind, spread):
    task, rng = get_task(f"{kind}:levy-{N_DIMS}"), np.random.default_rng(1)
    point: Point = {p.name: 0.5 for p in task.space.parameters}
    errors = np.array([task.evaluate(point, rng) for _ in range(4000)]) - task.true(point)
    # Quartiles of the standard distributions: .674 and .816.
    quartile = {"fn0": 0.0, "fnN": 0.6745, "fnT": 0.8165}[kind]
    assert np.quantile(np.abs(errors), 0.5) == pytest.approx(quartile * spread, rel=0.1)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("name", [n for n in SETS["functions"] if n.startswith("fn0")])
def test_without_noise_the_best_evaluated_is_handed_over_and_claimed_as_measured(name):
    for seed in range(5):
        (row,) = run("ours:repeats=1", get_task(name), seed=seed, budgets=[200], batch=20)
        assert row.true_best_seen is not None
        assert row.true >= row.true_best_seen - 0.015
        assert row.claimed_low is not None
        assert row.claimed_high is not None
        assert row.claimed_low - 1e-6 <= row.true <= row.claimed_high + 1e-6
