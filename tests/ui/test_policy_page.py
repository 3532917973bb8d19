"""The page on the policy of prompt changes: what it reads, in the words of the command."""

from pathlib import Path

import pytest

from tasks.inputs.loader import load
from tasks.pages.policies import BEGIN
from tasks.policy.policy_round import open_policy_round, play_round
from tests.support.writing_runs import STORE, write_project
from tests.ui.conftest import Open


def test_a_store_without_rounds_says_how_to_begin(tmp_path: Path, opened: Open):
    viewer = opened(tmp_path / "none").enter()
    assert viewer.page("policy") == {"systems": [], "commands": list(BEGIN)}
    assert viewer.get("policy/visitors").status_code == 404
    assert not (tmp_path / "none").exists()


def test_it_tells_what_the_round_told(tmp_path: Path, opened: Open):
    config = write_project(
        tmp_path, None, prompts__policy__episodes=1, prompts__policy__n_cases=3,
    )  # fmt: skip
    with open_policy_round(load(config)) as one:
        report = play_round(one)
    viewer = opened(tmp_path / STORE).enter()
    assert viewer.page("policy") == {"systems": ["visitors"], "commands": []}
    page = viewer.page("policy/visitors")
    assert page["serves"] == report.gate.serves
    reason = report.gate.reason
    assert page["sentences"][1] == f"{reason[0].upper()}{reason[1:]}."
    assert [(v["baseline"], v["n"], v["mean"]) for v in page["verdicts"]] == [
        (v.baseline, v.n, v.mean) for v in report.gate.verdicts
    ]
    assert [(p["policy"], p["n_evaluations"], p["mean"]) for p in page["curve"]] == [
        (p.policy, p.n_evaluations, p.mean) for p in report.course.curve
    ]
    assert {s["category"] for s in page["shares"]} == {"system"}
    assert sum(s["share"] for s in page["shares"] if s["policy"] == "ppo") == pytest.approx(1.0)
    assert len(page["refused"]) == len(report.course.refused)
    assert viewer.get("policy/another").status_code == 404
