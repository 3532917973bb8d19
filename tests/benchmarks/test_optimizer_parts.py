"""What a part of the engine is worth on recorded answers; ``docs/benchmarks.md`` has more of them."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.optimizer.regret import read_scales
from benchmarks.optimizer.running import run
from benchmarks.optimizer.tasks import get_task

EXAM = "llm:jhu-acc"


def regrets(opponent: str, n_seeds: int) -> np.ndarray:
    """Return the regret x 100 of each seed's recommendation after 100 evaluations, (n_seeds,)."""
    task, scale = get_task(EXAM), read_scales()[EXAM]
    rows = [
        row
        for seed in range(n_seeds)
        for row in run(opponent, task, seed=seed, budgets=[100], batch=20)
    ]
    return np.array([100 * scale.regret(row.true) for row in rows])


@pytest.mark.slow
@pytest.mark.statistical
def test_newcomers_in_groups_find_better_models_than_newcomers_that_all_meet_five_cases():
    """The ablation of ``Rules.least_together``: paired and one-sided over 40 seeds, at 1 %.

    Answers of one model go along, so eighty newcomers on five cases say little of nine models.
    """
    grouped = regrets("ours", 40)
    together = regrets("ours:rules.least_together=1000", 40)
    found = stats.ttest_rel(grouped, together, alternative="less")
    assert found.pvalue < 0.01, (grouped.mean(), together.mean())
