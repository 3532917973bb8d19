"""The end of a run: what is said when its budget leaves little or nothing for the final test."""

from pathlib import Path
from typing import Any

import pytest

from convergence.cli.optimize import show
from convergence_core.events import BudgetWarned, Event, FinalStarted
from convergence_core.result import RunResult
from tasks.report.markdown import report_markdown
from tests.support.optimizations import write_project
from tests.support.paid_runs import begin, go_on, play

SMALL: dict[str, Any] = {
    "optimization__evolution": {"population_size": 3, "generations": 2},
    "output": {"formats": ["json"]},
}


def run_with(folder: Path, max_calls: int, events: list[Event] | None = None) -> RunResult:
    write_project(folder, budget={"max_calls": max_calls}, **SMALL)
    return play(begin(folder, on_event=None if events is None else events.append))


def test_a_budget_that_leaves_no_final_look_says_so_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    events: list[Event] = []
    result = run_with(tmp_path, 6, events)
    assert result.winner is not None
    assert (result.winner.holdout, result.winner.fresh) == (None, None)
    assert result.status == "budget"
    expected = (
        "budget.max_calls=6 reserves 1 for the final test, but one case of the winner and the "
        "defaults takes 2; 7 would suffice"
    )
    assert result.final_look == expected
    assert BudgetWarned(text=expected) in events, "told before anything is paid"
    assert not [event for event in events if isinstance(event, FinalStarted)]
    show(result)
    assert f"Final test of the winner: {expected}." in " ".join(capsys.readouterr().out.split())
    report = report_markdown(result)
    assert f"gave no estimate. Final test: {expected}." in report
    assert f"Final test of the winner: {expected}." in report


def test_a_raised_cap_makes_up_for_the_final_look(tmp_path: Path):
    run_with(tmp_path, 6)
    result = play(go_on(tmp_path, budget={"max_calls": 60}))
    assert result.winner is not None
    assert result.winner.holdout is not None
    assert (result.status, result.final_look) == ("done", "")


def test_cells_without_a_reward_at_the_end_are_counted(tmp_path: Path):
    path = write_project(tmp_path, **SMALL)
    target = path.parent / "target.py"
    judge = "    return min(1.0, max(0.0, result))"
    assert judge in target.read_text()
    # The metric fails on what the search never saw: held-out cases.
    run = begin(tmp_path)
    unseen = {case.case_id for case in run.loaded.holdout_cases}
    run.close()
    numbers = sorted(int(name[1:]) for name in unseen)
    target.write_text(
        target.read_text()
        .replace("closeness - 0.01", f"-1 if case['n'] in {numbers} else closeness - 0.01")
        .replace(judge, f"    if result == -1: raise OSError('gone')\n{judge}")
    )
    result = play(begin(tmp_path))
    assert result.final_look == "6 of its 24 evaluations got no reward (OSError)"
    assert result.status == "done"


def test_a_target_that_always_fails_is_not_recommended_and_asked_no_more(tmp_path: Path):
    path = write_project(tmp_path, **SMALL)
    target = path.parent / "target.py"
    target.write_text(
        target.read_text().replace("    line = ", "    raise OSError('no')\n    line = ")
    )
    events: list[Event] = []
    result = play(begin(tmp_path, on_event=events.append))
    assert (result.winner, result.all_failed) == (None, True)
    assert not [event for event in events if isinstance(event, FinalStarted)]
    assert "all of the" in report_markdown(result)
    assert not [*tmp_path.rglob("best_config*")]
    assert [(failure.reason, failure.n) for failure in result.failures] == [
        ("OSError", result.n_evaluations)
    ]
