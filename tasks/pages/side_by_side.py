"""Comparison of two candidates, of one run or of two, as the page of it shows."""

import json
from dataclasses import asdict

from convergence_core.errors import RunNotFoundError
from convergence_core.ports import RunRecord
from convergence_core.result import CaseAnswer
from tasks.pages.source import Page, PageSource, line_of
from tasks.report.comparison import (
    PairComparison,
    Subject,
    candidate_named,
    compared,
    comparison_sentence,
    recommended_of,
)
from tasks.report.phrases import ROLES, clean, gate_sentence, value_text

_CANDIDATE = "SELECT params_json FROM candidates WHERE run_id = $run AND candidate_id = $candidate"
_MEASURED = (("latency_ms", "ms"), ("cost_usd", "USD"))


def side_by_side(source: PageSource, first: str, second: str) -> Page:
    """Return two candidates side by side.

    Args:
        source: the store.
        first: ``RUN``, which stands for what it recommends, or ``RUN:CANDIDATE``.
        second: the same.

    Raises:
        RunNotFoundError: there is no such run, or it has no such candidate.
    """
    a, b = (_subject(source, name) for name in (first, second))
    comparison = compared(source.store, a, b)
    best = comparison.shared[0] if comparison.shared else None
    return {
        "a": _side(source, comparison, 0),
        "b": _side(source, comparison, 1),
        "verdict": comparison_sentence(comparison),
        "sentences": list(comparison.notes),
        "gate": _gate(source, b),
        "difference": None
        if best is None
        else {**asdict(best.difference), "role": best.role, "kind": ROLES[best.role]},
        "shared": [asdict(shared) for shared in comparison.shared],
        "parameters": [
            {"name": name, "a": value, "b": other}
            for name, (value, other) in comparison.parameters.items()
        ],
        "per_answer": [
            {
                "name": name,
                "unit": unit,
                "a": getattr(comparison.per_answer[0], name),
                "b": getattr(comparison.per_answer[1], name),
            }
            for name, unit in _MEASURED
        ],
        "cases": [
            {
                "case_id": case.case_id,
                "name": clean(case.name or case.case_id),
                "role": case.role,
                "kind": ROLES[case.role],
                "a": None if case.first is None else case.first.reward,
                "b": None if case.second is None else case.second.reward,
                "difference": case.gap,
                "input": line_of(case.input),
                "expected": line_of(case.expected),
                "a_answer": _text(case.first),
                "b_answer": _text(case.second),
            }
            for case in comparison.cases
        ],
    }


def _subject(source: PageSource, name: str) -> Subject:
    run, _, candidate = name.partition(":")
    record = source.run(run)
    if not candidate:
        if source.result(record) is None:
            raise RunNotFoundError(
                f"run {record.label} must have ended to be compared by what it recommends. Name one of "
                f"its candidates, as in {record.label}:CANDIDATE."
            )
        return recommended_of(record)
    if source.result(record) is not None:
        subject = candidate_named(candidate, record, source.store)
        if subject is None:
            raise RunNotFoundError(f"{clean(candidate)!r} is no candidate of {record.label}.")
        return subject
    return _unfinished(source, record, candidate)


def _unfinished(source: PageSource, record: RunRecord, candidate: str) -> Subject:
    rows = source.rows(_CANDIDATE, run=record.run_id, candidate=candidate)
    if not rows:
        raise RunNotFoundError(f"{clean(candidate)!r} is no candidate of {record.label}.")
    params = json.loads(rows[0]["params_json"])
    return Subject(name=candidate, record=record, candidate_id=candidate, params=params)


def _side(source: PageSource, comparison: PairComparison, at: int) -> Page:
    subject = (comparison.first, comparison.second)[at]
    mean = None
    if comparison.shared:
        best = comparison.shared[0]
        mean = (best.first_mean, best.second_mean)[at]
    names = source.names(subject.record, {subject.candidate_id: subject.params})
    return {
        "run_id": subject.record.run_id,
        "run_label": clean(subject.record.label),
        "candidate_id": subject.candidate_id,
        "name": names[subject.candidate_id],
        "called": clean(subject.name),
        "params": {name: value_text(value) for name, value in subject.params.items()},
        "mean": mean,
        "low": None,
        "high": None,
    }


def _gate(source: PageSource, second: Subject) -> str | None:
    """Return what the gate of the second one's run says, where it judged this very candidate."""
    result = source.result(second.record)
    if result is None or result.best is None:
        return None
    return gate_sentence(result) if result.best.candidate_id == second.candidate_id else None


def _text(answer: CaseAnswer | None) -> str | None:
    return None if answer is None else line_of(answer.text, 1_000)
