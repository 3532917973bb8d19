"""Test cases that bad ratings propose: approved by a person, in the next run's cases."""

import json
from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence_core.feedback.records import Rating
from tasks.inputs.loader import load
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer
from tests.support.optimizations import write_project

KEY = "sk-proj-abcdefghijklmnop1234567890"


def rate(store: FeedbackStore, one: str, **mark: object) -> None:
    store.rate(Rating(interaction_id=one, user_id="ann", **mark))  # type: ignore[arg-type]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_project(
        tmp_path,
        evaluation__test_cases={
            "inline": [{"id": f"c{n}", "input": {"n": str(n)}} for n in range(4)],
            "approved": "approved.jsonl",
        },
    )
    monkeypatch.chdir(tmp_path)
    with FeedbackStore(tmp_path / "convergence-data") as store:
        for number, mark in enumerate((1, 2, 3, 4, 5), 1):
            store.log(answer(f"i{number}", prompt=f"question {number} with {KEY}"))
            rate(store, f"i{number}", rating=mark, reason="wrong" if mark == 1 else None)
        store.log(answer("down"))
        rate(store, "down", thumbs="down")
        store.log(answer("better"))
        rate(store, "better", rating=1)
        rate(store, "better", rating=4)
        store.log(answer("taken"))
        rate(store, "taken", rating=1)
        store.unrate("taken", "ann")
        store.log(answer("other", system="another"))
        rate(store, "other", rating=1)
        store.log(answer("unrated"))
    return tmp_path


def proposed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert run(["review", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["proposed"]
    return [one["interaction_id"] for one in found]


def test_answers_rated_badly_are_proposed_until_somebody_decides(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    assert proposed(capsys) == ["i1", "i2", "down"]
    assert run(["review"]) == 0
    listed = capsys.readouterr()
    assert "i1  1 Poor: wrong" in listed.out
    assert "question 1 with [redacted]" in listed.out
    assert "3 proposed test cases" in listed.err
    assert run(["review", "--reject", "i2"]) == 0
    assert proposed(capsys) == ["i1", "down"]
    assert run(["review", "--approve", "i1", "--expected", "four"]) == 0
    assert "feedback-i1 is in" in capsys.readouterr().err
    assert proposed(capsys) == ["down"]
    cases = load(project / "optimization.yaml").cases
    (new,) = [case for case in cases if case.case_id == "feedback-i1"]
    assert len(cases) == 5
    assert new.input == {"n": "question 1 with [redacted]"}
    assert new.expected == "four"
    assert run(["review", "--approve", "i2"]) == 2
    assert "an answer that is proposed must be named" in capsys.readouterr().err


def test_an_approval_that_was_stopped_half_way_is_not_doubled(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tasks.run.case_review.save_review", killed)
        assert run(["review", "--approve", "i1"]) == 130
    assert proposed(capsys) == ["i1", "i2", "down"]
    assert run(["review", "--approve", "i1"]) == 0
    assert (project / "approved.jsonl").read_text().count("feedback-i1") == 1


def test_a_case_that_the_configuration_would_refuse_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    write_project(
        tmp_path,
        evaluation__test_cases={
            "inline": [{"id": f"c{n}", "input": {"n": n}, "expected": n} for n in range(4)],
            "approved": "approved.jsonl",
        },
        evaluation__metrics={"exact_match": {"weight": 1.0}},
    )
    monkeypatch.chdir(tmp_path)
    with FeedbackStore(tmp_path / "convergence-data") as store:
        store.log(answer("i1"))
        rate(store, "i1", rating=1)
    assert run(["review", "--approve", "i1"]) == 2
    assert "approved.jsonl" in "".join(capsys.readouterr().err.split())
    assert not (tmp_path / "approved.jsonl").exists()
    assert proposed(capsys) == ["i1"]
    assert run(["review", "--approve", "i1", "--expected", "4"]) == 0
    assert run(["validate"]) == 0
    assert run(["review", "--approve", "i1", "--reject", "i2"]) == 2


def test_cases_of_games_are_a_bounded_share_of_all(tmp_path: Path):
    cases: dict[str, object] = {
        "inline": [{"id": "own", "input": {"n": "1"}}],
        "approved": "approved.jsonl",
    }
    write_project(tmp_path, evaluation__test_cases=cases)
    lines = [
        {"id": name, "input": {"n": name}, "tags": [tag], "weight": weight}
        for name, tag, weight in [
            *(("g1", "games", 1), ("g2", "games", 2), ("g3", "games", 1), ("f", "feedback", 3))
        ]
    ]
    (tmp_path / "approved.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    own, *approved = load(tmp_path / "optimization.yaml").cases
    assert own.weight == 1.0
    # A fifth of a whole in which all else weighs 4 is 1, for three cases.
    assert [one.weight for one in approved] == pytest.approx([0.25, 0.5, 0.25, 3.0])


def test_a_models_text_cannot_write_over_the_terminal(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    hostile = "clear \x1b[2J\x9b2J\x7f\r and turn \u202eback \ud83d"
    with FeedbackStore(project / "convergence-data") as store:
        store.log(answer("evil", prompt=hostile[:-1], response=hostile[:-1]))
        rate(store, "evil", rating=1)
    said = []
    for command in (["review"], ["review", "--json"]):
        capsys.readouterr()
        assert run(command) == 0
        written = capsys.readouterr()
        assert not {*"\x1b\x9b\x7f\r\u202e"} & {*written.out, *written.err}
        said.append(written.out)
    (one,) = [x for x in json.loads(said[1])["proposed"] if x["interaction_id"] == "evil"]
    assert hostile[:-1] in one.values()
