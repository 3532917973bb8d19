"""The page on the policy of prompt changes: what it reads, in the words of the command."""

from pathlib import Path

from tasks.inputs.loader import load
from tasks.pages.adapters import BEGIN_POLICY
from tasks.pages.source import page_of
from tasks.policy.policy_round import open_policy_round, play_round
from tasks.report.policy_section import policy_blocks
from tests.support.writing_runs import STORE, write_project
from tests.ui.conftest import Open


def test_a_store_without_rounds_says_how_to_begin(tmp_path: Path, opened: Open):
    viewer = opened(tmp_path / "none").enter()
    assert viewer.page("policy") == {"systems": [], "commands": list(BEGIN_POLICY)}
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
    blocks = viewer.page("policy/visitors")["blocks"]
    gate, course = report.gate, report.course
    assert (
        blocks == page_of(policy_blocks(gate.serves, gate.reason, gate.verdicts, course))["blocks"]
    )
    (plot,) = next(block["plots"] for block in blocks if block["is"] == "Plots")
    lines = [layer for layer in plot["layers"] if layer["mark"] == "line"]
    assert sorted((p["x"], p["y"]) for line in lines for p in line["points"]) == sorted(
        (p.n_evaluations, p.mean) for p in course.curve
    )
    assert viewer.get("policy/another").status_code == 404
