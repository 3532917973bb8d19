"""The screen at the end of a run."""

from collections.abc import Mapping

import pytest

from convergence.cli.summary import show
from convergence_core.result import CandidateReport, Difference, Estimate, Failure, RunResult
from tasks.report.markdown import report_markdown


def estimate(mean: float, n_cases: int = 6) -> Estimate:
    return Estimate(mean=mean, low=mean - 0.05, high=mean + 0.05, n_cases=n_cases)


def candidate(name: str, params: Mapping[str, object], mean: float) -> CandidateReport:
    return CandidateReport(
        candidate_id=name, label=name, params=params, origin="sample", generation=0,  # type: ignore[arg-type]
        search=estimate(mean + 0.03, 18), fresh=estimate(mean, 18), holdout=estimate(mean - 0.01),
    )  # fmt: skip


WINNER = candidate("w", {"method": "letters", "ngram": 3, "prompt": "You are\n" + "x" * 99}, 0.9)
BASELINE = candidate("b", {"method": "words"}, 0.8)


def result(**changes: object) -> RunResult:
    fields: dict[str, object] = {
        "run_id": "01KA", "label": "help_desk-7f3a", "system": "help_desk", "status": "done",
        "reason": "all 6 generations were run", "algorithm": "mab_evolution", "seed": 7,
        "generations_run": 6, "n_candidates": 72, "n_evaluations": 1344, "n_calls": 1340,
        "n_cached": 4, "n_failed": 3, "n_missing": 0, "n_skipped": 0, "cost_usd": None,
        "started_us": 0, "ended_us": 1, "n_search_cases": 18, "n_holdout_cases": 6,
        "winner": WINNER, "baseline": BASELINE, "has_defaults": True,
        "difference": Difference(mean=0.1, low=-0.02, high=0.22, n_cases=6),
        "failures": (Failure(reason="timeout", fault="candidate", n=3, example="a\nTimeoutError"),),
        "files": {"report.md": "results/report.md"},
    }  # fmt: skip
    return RunResult(**{**fields, **changes})  # type: ignore[arg-type]


def shown(capsys: pytest.CaptureFixture[str], **changes: object) -> str:
    show(result(**changes))
    return capsys.readouterr().out


def test_winner_and_defaults_stand_beside_each_other_with_intervals(
    capsys: pytest.CaptureFixture[str],
):
    text = shown(capsys)
    assert "held-out cases" in text
    assert "0.890" in text
    assert "[0.840, 0.940]" in text
    assert "0.790" in text
    assert "Winner minus defaults: +0.100 [-0.020, +0.220] (95 % interval, 6 held-out" in text


def test_nothing_is_called_better(capsys: pytest.CaptureFixture[str]):
    assert "better" not in shown(capsys).lower()


def test_parameters_are_shown_on_one_line_each(capsys: pytest.CaptureFixture[str]):
    lines = shown(capsys).split("Recommended:")[1].splitlines()
    assert lines[1].split() == ["method", "letters"]
    assert lines[3].startswith("  prompt  You are xxx")
    assert lines[3].endswith("…")


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ("a\nTimeoutError", "a TimeoutError"),
        ("no k\n\nTraceback (most recent call last):\n  File x\nValueError: no k", "no k"),
        ("Traceback (most recent call last):\n  File x\nValueError: no k", "ValueError: no k"),
        (
            "the answer of http://x is not JSON: Expecting value\n\n<html>\ngateway</html>",
            "the answer of http://x is not JSON: Expecting value: <html> gateway</html>",
        ),
        ("HTTP 422 from http://x\n\n{'detail': 'k'}", "HTTP 422 from http://x: {'detail': 'k'}"),
        ("x" * 300 + "\n\nbody", "x" * 179 + "…: body"),
    ],
)
def test_failures_are_told_with_their_reason(
    example: str, told: str, capsys: pytest.CaptureFixture[str]
):
    text = shown(capsys, failures=(Failure(reason="bad", fault=None, n=3, example=example),))
    assert f"3 times bad: {told}\n" in text
    report = report_markdown(
        result(failures=(Failure(reason="b", fault=None, n=1, example=example),))
    )
    assert "Traceback" not in report


def test_run_without_winner_says_so(capsys: pytest.CaptureFixture[str]):
    text = shown(capsys, winner=None, baseline=None, difference=None)
    assert "No candidate got a reward, so nothing is recommended." in text
    failed = shown(capsys, winner=None, baseline=None, difference=None, n_failed=1344)
    assert "Every evaluation failed, so nothing is recommended." in failed
    assert "Recommended" not in text


def test_winner_that_is_the_defaults_is_said_to_be(capsys: pytest.CaptureFixture[str]):
    text = shown(capsys, winner=BASELINE, difference=None)
    assert "The recommended candidate is the defaults." in text


def test_missing_defaults_are_said_to_be_missing(capsys: pytest.CaptureFixture[str]):
    assert "No parameter has a `default`" in shown(
        capsys, baseline=None, has_defaults=False, difference=None
    )


def test_money_is_shown_only_when_it_is_known(capsys: pytest.CaptureFixture[str]):
    assert "$" not in shown(capsys)
    assert "$0.0125" in shown(capsys, cost_usd=0.0125)


def test_result_names_where_to_read_more(capsys: pytest.CaptureFixture[str]):
    text = shown(capsys)
    assert "results/report.md" in text
    assert "convergence report help_desk-7f3a" in text
