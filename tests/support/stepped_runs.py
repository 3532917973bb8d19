"""Runs taken through the steps of the flow one generation at a time, without Prefect."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.inputs.loader import load
from tasks.run.conclusion import choose_finalists, conclude
from tasks.run.opener import prepare_run, resume_run
from tasks.run.run import Run
from tasks.steps import prefer, sample_candidates, save_generation, think, write_prompts

STORE = "convergence-data"
LEARNERS = {"prompts": write_prompts, "rlp": think, "sao": prefer}
"""The step before a generation's candidates, of each learner that may be due."""


def begin(folder: Path, **options: Any) -> Run:
    """Open a new run."""
    return prepare_run(load(folder / "optimization.yaml"), **options)


def go_on(folder: Path, **options: Any) -> Run:
    """Open the run again."""
    return resume_run(folder / STORE, **options)


def play_generation(run: Run, *, stop_before: Callable[[str], bool] = lambda _: False) -> bool:
    """Run one generation as the flow does; ``stop_before`` leaves it before a step."""
    number = run.next_generation
    for name, step in LEARNERS.items():
        if run.is_due(name):
            step.fn(run.run_id, number)
    if stop_before("sample"):
        return False
    plan = sample_candidates.fn(run.run_id, number)
    trials = [run.session.evaluate(assignment, number) for assignment in plan.assignments]
    if stop_before("learn"):
        return False
    save_generation.fn(run.run_id, number, run.learn(trials))
    return True


def play(run: Run) -> Any:
    """Take an open run to its end; return its result."""
    with run:
        while run.should_continue():
            play_generation(run)
        trials = [run.session.evaluate(a, None) for a in choose_finalists(run)]
        return conclude(run, trials)
