"""Runs whose breeding operators are chosen by credit: stored, interrupted, gone on with."""

from pathlib import Path

import pytest

from convergence_core.errors import RunInterruptedError
from convergence_core.search.meta_optimizer import META_KEY
from tasks.run.run import Run
from tests.support.optimizations import write_project
from tests.support.paid_runs import begin, evaluate, go_on, play, publish


def project(folder: Path, **overrides: object) -> Path:
    write_project(
        folder, optimization__meta_optimizer="credit", output__formats=["json"], **overrides
    )
    return folder


def asked(run: Run) -> list[str]:
    return [member.candidate.candidate_id for member in run.state.search.archive]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_the_credit_that_was_journaled(tmp_path: Path):
    unbroken = begin(project(tmp_path / "unbroken"))
    play(unbroken)
    assert META_KEY in unbroken.state.search.memory
    folder = project(tmp_path / "broken")
    broken = begin(folder)

    def interrupted() -> None:
        with broken:
            for generation in range(2):
                publish(
                    broken, broken.learn(evaluate(broken, broken.ask().assignments, generation))
                )
            broken.ask()  # planned, never evaluated
            broken.stop()
            broken.check_stop()

    with pytest.raises(RunInterruptedError):
        interrupted()
    resumed = go_on(folder, broken.run_id)
    assert resumed.state.search.memory[META_KEY] == broken.state.search.memory[META_KEY]
    play(resumed)
    assert asked(resumed) == asked(unbroken)
    assert resumed.state.search.memory[META_KEY] == unbroken.state.search.memory[META_KEY]
