"""Searches that are told more than any opponent: their arithmetic."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.optimizer import told
from benchmarks.optimizer.commands import main
from benchmarks.optimizer.regret import read_scales
from benchmarks.optimizer.tasks import PromptTask, get_task

NAME = "llm:prompt-snarks"


def prompts() -> PromptTask:
    task = get_task(NAME)
    assert isinstance(task, PromptTask)
    return task


def test_before_any_answer_the_posterior_is_each_models_mean_and_spread():
    task = prompts()
    search = told.Search.of(task)
    mean, sd = search.posterior()
    n_models = task.accuracy.shape[1]
    assert mean.reshape(-1, n_models) == pytest.approx(
        np.broadcast_to(task.accuracy.mean(axis=0), task.accuracy.shape)
    )
    assert sd[:n_models] == pytest.approx(np.maximum(task.accuracy.std(axis=0), 0.01))


def test_every_cell_is_spent_and_no_case_twice():
    search, rng = told.Search.of(prompts()), np.random.default_rng(0)
    search.draw(403, rng)
    assert search.count.sum() == 403
    assert search.count.max() <= told.CHUNK
    search.ask_finalists(450, 4, rng)
    assert search.count.sum() == 853
    assert np.sum(search.count == search.n_cases) >= 4
    assert np.all(search.hits <= search.count)
    assert search.count[search.handed_over()] > 0


def test_more_answers_leave_less_regret():
    task, scale = prompts(), read_scales()[NAME]
    few, many = (
        np.mean(
            [
                told.regret(task, scale, n_batches=n, n_cells=400, end_share=0.4, seed=seed)
                for seed in range(12)
            ]
        )
        for n in (2, 10)
    )
    assert many < few


@pytest.mark.statistical
def test_ever_fewer_finalists_find_better_prompts_than_draws_throughout():
    """Paired over 40 seeds, one-sided at .1 %."""
    task, scale = prompts(), read_scales()[NAME]
    narrowed, drawn = (
        np.array(
            [
                told.regret(task, scale, n_batches=5, n_cells=400, end_share=share, seed=seed)
                for seed in range(40)
            ]
        )
        for share in (0.4, 0.0)
    )
    assert stats.ttest_rel(narrowed, drawn, alternative="less").pvalue < 0.001


def test_its_table_and_what_it_refuses(capsys):
    assert main(["told", "--tasks", NAME, "--seeds", "2", "--budgets", "40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| 1 tasks, 2 seeds | 40 |"
    assert len(lines) == 5
    with pytest.raises(SystemExit, match="llm:prompt-snarks"):
        main(["told", "--tasks", "llm:jhu-acc"])
