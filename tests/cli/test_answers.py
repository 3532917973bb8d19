"""``show`` and ``compare``: answers of real runs, read from their stores."""

import json
from pathlib import Path

import pytest

from convergence_core.result import RunResult
from tasks.mock.mock_server import MockServer
from tests.support.commands import Runner
from tests.support.paid_runs import STORE, begin, play, write_project

SMALL = {
    "optimization__evolution": {"population_size": 4, "generations": 2},
    "evaluation__metrics__kind": {
        "type": "llm_judge",
        "rubric": "Is the answer polite?",
        "weight": 1,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two finished runs of the same cases, and a model that judges."""
    folder = tmp_path_factory.mktemp("answers")
    with MockServer() as server:
        llm = {"model": "swift-1", "endpoint": f"{server.url}/v1"}
        write_project(folder, server.url, llm=llm, **SMALL)
        for seed in (5, 6):
            play(begin(folder, seed=seed))
    return folder


@pytest.fixture
def store(folder: Path) -> Path:
    return folder / STORE


@pytest.fixture
def labels(store: Path, cli: Runner) -> list[str]:
    return [row["label"] for row in cli("runs", "--store", store, "--json").json]


def result_of(store: Path, label: str, cli: Runner) -> RunResult:
    return RunResult.from_json(cli("report", label, "--store", store, "--json").out)


def test_every_case_is_shown_with_both_answers_worst_first(store: Path, cli: Runner):
    told = cli("show", "--store", store, "--json").json
    assert len(told["cases"]) == 20
    gaps = [case["second"]["reward"] - case["first"]["reward"] for case in told["cases"]]
    assert gaps == sorted(gaps)
    first = told["cases"][0]
    assert first["input"].startswith("What is ")
    assert first["expected"].isdigit()
    for side in ("first", "second"):
        assert isinstance(first[side]["text"], str)
        assert {"right", "kind"} <= first[side]["metrics"].keys()
        assert first[side]["latency_ms"] > 0
        assert first[side]["cost_usd"] > 0


def test_a_case_is_shown_alone_and_an_unknown_one_gets_a_proposal(store: Path, cli: Runner):
    done = cli("show", "--store", store, "--case", "c07")
    assert done.code == 0, done.err
    assert "c07 (" in done.out
    assert "c08 (" not in done.out
    unknown = cli("show", "--store", store, "--case", "c7")
    assert unknown.code == 2
    assert "c07" in unknown.err


def test_the_report_holds_the_same_cases_held_out_first(
    folder: Path, store: Path, cli: Runner, labels: list[str]
):
    result = result_of(store, labels[0], cli)
    told = {
        case["case_id"]: case for case in cli("show", "--store", store, "--json").json["cases"]
    }
    imperfect = {
        case_id
        for case_id, case in told.items()
        if any(case[side]["reward"] < 0.9995 for side in ("first", "second"))
    }
    assert len(result.answers) == min(10, len(imperfect)) > 0
    assert {case.case_id for case in result.answers} <= imperfect
    roles = [case.role == "holdout" for case in result.answers]
    assert roles == sorted(roles, reverse=True)
    for case in result.answers:
        assert case.second is not None
        assert case.second.text == told[case.case_id]["second"]["text"]
    for form in ("md", "html"):
        text = cli("report", labels[0], "--store", store, "--format", form).out
        assert "Answers" in text
        assert all(case.case_id in text for case in result.answers)


def test_two_candidates_are_compared_by_case_with_their_interval(store: Path, cli: Runner):
    told = cli("compare", "default", "found", "--store", store, "--json").json
    result = result_of(store, told["first"]["run"], cli)
    (holdout,) = [row for row in told["shared"] if row["role"] == "holdout"]
    assert result.difference is not None
    assert holdout["difference"]["mean"] == pytest.approx(result.difference.mean)
    assert holdout["difference"]["low"] == pytest.approx(result.difference.low)
    assert holdout["difference"]["n_cases"] == 4
    assert holdout["second_mean"] - holdout["first_mean"] == pytest.approx(
        holdout["difference"]["mean"]
    )
    assert told["per_answer"][0]["cost_usd"] > 0
    assert all(
        told["first"]["params"].get(name) != told["second"]["params"].get(name)
        for name in told["parameters"]
    )
    text = cli("compare", "default", "found", "--store", store).out
    assert "On the 4 held-out cases that both answered" in text
    assert "One answer" in text


def test_changed_cases_are_said_and_inputs_shown_as_sent(tmp_path: Path, cli: Runner, here: Path):
    with MockServer() as server:
        write_project(
            tmp_path, server.url, optimization__evolution={"population_size": 3, "generations": 1}
        )
        play(begin(tmp_path))
    rows = json.loads((tmp_path / "cases.json").read_text())
    rows[0]["expected"] = "other"
    (tmp_path / "cases.json").write_text(json.dumps(rows))
    done = cli("show")
    assert done.code == 0, done.err
    assert "the test cases have changed since this run" in done.out
    assert "What is 2 + 5?" in cli("show", "--case", "c00").out
