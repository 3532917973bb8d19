"""What readings of one evidence are worth: the score's arithmetic, and parts that earn their place."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.optimizer import beliefs
from benchmarks.optimizer.commands import main
from benchmarks.optimizer.tasks import CaseTask, get_task
from convergence_core.evidence.archive import Archive
from convergence_core.posterior.space_model import SpaceModel
from convergence_core.posterior.warped_posterior import WarpedPosterior
from convergence_core.records import Candidate, Cell
from convergence_core.space import Float, Space
from tests.support.mixed_problem import trial

pytestmark = pytest.mark.timeout(3600)  # minutes of arithmetic, more beside other work

SPACE = Space(parameters={"x": Float(min=0.0, max=1.0)})
EXAM = ("llm:jhu-acc", "llm:jhu-util")
PROMPTS = ("llm:prompt-rhyming_word", "llm:prompt-snarks")


def believed(rewards: np.ndarray) -> WarpedPosterior:
    """Beliefs of candidates in a row, some of whose rewards lie in the warp's tail."""
    archive = Archive().tell(
        [trial(c, {Cell(candidate_id=c.candidate_id, case_id="only"): r})
         for c, r in zip(row_of(len(rewards)), rewards.tolist(), strict=True)],
        0,
    )  # fmt: skip
    return SpaceModel(space=SPACE).fit(archive).posterior(row_of(len(rewards)))


def row_of(n: int) -> list[Candidate]:
    return [SPACE.candidate({"x": x}) for x in np.linspace(0, 1, n).tolist()]


def test_the_score_is_the_density_of_rewards():
    rng = np.random.default_rng(0)
    rewards = np.append(0.7 + 0.05 * rng.standard_normal(11), 0.1)
    found = believed(rewards)
    assert found.process is not None
    assert found.points is not None
    mean, covariance = found.process.joint(found.points, found.rows)
    true = np.append(rewards[:-1] + 0.01, 0.2)
    step = 1e-6
    slopes = (found.warp.forward(true + step) - found.warp.forward(true - step)) / (2 * step)
    density = stats.multivariate_normal(mean, covariance).logpdf(found.warp.forward(true))
    score = beliefs.score(found, true)
    assert score.log_density == pytest.approx((density + np.log(slopes).sum()) / 12, rel=1e-6)
    assert score.error == pytest.approx(np.sqrt(np.mean((found.mean - true) ** 2)))


def test_who_believes_the_truth_scores_higher_than_who_is_off():
    rewards = 0.7 + 0.05 * np.sin(np.arange(12))
    found = believed(rewards)
    assert (
        beliefs.score(found, found.mean).log_density
        > beliefs.score(found, found.mean + 3.0 * found.sd).log_density
    )


def test_its_table_and_what_it_refuses(capsys):
    arguments = ["beliefs", "--tasks", "llm:jhu-acc", "--seeds", "2", "--budgets", "40"]
    assert main([*arguments, "--parts", "n_readings=3", "case_effects=False"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| 40 | (as it is) |")
    assert lines[3] == (  # as it is
        "| | n_readings=3 | +0.000 [+0.000, +0.000] | 0 of 1 | +0.00 [+0.00, +0.00] |"
    )
    assert lines[4].startswith("| | case_effects=False |")
    with pytest.raises(SystemExit, match="AblatableModel"):
        main([*arguments, "--parts", "nothing=False"])
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--parts", "n_readings=1", "--seeds", "1"])
    assert "must be at least 2, not 1" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="cases"):
        main(["beliefs", "--tasks", "tab:hpobench-kc1", "--parts", "n_readings=1"])


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("part", "tasks", "budget", "n_seeds"),
    [
        ("case_effects=False", EXAM, 71, 15),
        ("interaction=False", EXAM, 71, 15),
        ("n_readings=1", PROMPTS, 100, 15),
    ],
)
def test_parts_bring_beliefs_nearer_to_what_candidates_are_worth(part, tasks, budget, n_seeds):
    """The ablation of each: scores are lower without it; paired over seeds, at .1 %."""
    change = []
    for seed in range(n_seeds):
        pairs = []
        for name in tasks:
            task = get_task(name)
            assert isinstance(task, CaseTask)
            whole, less = beliefs.scores(task, [part], seed=seed, budget=budget, batch=20)
            pairs.append(less.log_density - whole.log_density)
        change.append(np.mean(pairs))
    assert stats.ttest_1samp(change, 0.0, alternative="less").pvalue < 0.001
