"""Summary of a run in a terminal."""

from collections.abc import Mapping

import pytest

from convergence.cli.optimize import show
from convergence_core.result import CandidateReport, Estimate, Failure, RoleCost, RunResult
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
        "difference": Estimate(mean=0.1, low=-0.02, high=0.22, n_cases=6),
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
    lines = [" ".join(line.split()) for line in shown(capsys).splitlines()]
    assert "score on held-out cases 0.890 [0.840, 0.940] 0.790 [0.740, 0.840]" in lines
    assert not any("better" in line.lower() for line in lines)
    judge = RoleCost(
        purpose="judge", provider="openai", model="m", n_calls=9, n_failed=0, n_reused=0,
        n_from_other_runs=0, prompt_tokens=1, cached_tokens=0, completion_tokens=1,
        reasoning_tokens=None, cost_usd=None, n_unpriced=4, maybe_usd=0.0,
    )  # fmt: skip
    assert "$4.22 and 4 calls of unknown price." in shown(capsys, cost_usd=4.22, costs=(judge,))


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        ("a\nTimeoutError", "a TimeoutError"),
        ("no k\n\nTraceback (most recent call last):\n  File x\nValueError: no k", "no k"),
        ("Traceback (most recent call last):\n  File x\nValueError: no k", "ValueError: no k"),
        (
            "the answer of http://x is not JSON: Expecting value\n\n<html>\ngateway</html>",
            "the answer of http://x is not JSON: Expecting value: <html> gateway</html>",
        ),
        ("HTTP 422 from http://x\n\n{'detail': 'k'}", "HTTP 422 from http://x: {'detail': 'k'}"),
        ("x" * 400 + "\n\nbody", "…: body"),
    ],
)
def test_failures_are_shown_with_their_reason(
    example: str, reason: str, capsys: pytest.CaptureFixture[str]
):
    failures = (Failure(reason="bad", fault=None, n=3, example=example),)
    text = shown(capsys, failures=failures)
    assert reason in text.split("3 evaluations failed with bad: ")[1]
    assert "Traceback" not in report_markdown(result(failures=failures))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"winner": None}, "none of the 72 configurations has a reward."),
        ({"winner": None, "n_failed": 1344}, "all of the 1,344 evaluations failed."),
        (
            {"winner": BASELINE},
            "No gain: the defaults are the best configuration found.",
        ),
        ({"has_defaults": False, "baseline": None}, "the configuration file sets no defaults"),
    ],
)
def test_what_is_missing_is_said(
    changes: dict[str, object], sentence: str, capsys: pytest.CaptureFixture[str]
):
    text = shown(capsys, **{"difference": None, **changes})
    assert sentence in text
    assert ("score on held-out" in text) == (changes.get("winner", WINNER) is not None)
