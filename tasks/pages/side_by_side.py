"""Comparison of two candidates, of one run or two, as blocks of a report."""

from dataclasses import replace

from convergence_core.errors import RunNotFoundError
from tasks.pages.source import Page, PageSource, line_of, page_of
from tasks.report.comparison import (
    Subject,
    candidate_named,
    compared,
    comparison_blocks,
    recommended_of,
)
from tasks.report.phrases import ROLES, clean, gate_sentence


def side_by_side(source: PageSource, first: str, second: str) -> Page:
    """Return the comparison of two candidates.

    Args:
        source: the store.
        first: ``RUN`` for its recommendation, or ``RUN:CANDIDATE``.
        second: in the same form.

    Raises:
        RunNotFoundError: there is no such run, or it has no such candidate.
    """
    a, b = (_subject(source, name) for name in (first, second))
    sentence, comparison = _gate(source, b), compared(source.store, a, b)
    blocks = comparison_blocks(comparison, *([sentence] if sentence else []))
    cases = [
        {
            "case_id": case.case_id,
            "name": clean(case.name or case.case_id),
            "kind": ROLES[case.role],
            "input": line_of(case.input),
            "expected": line_of(case.expected),
            **{
                side: {
                    "reward": answer.reward,
                    "text": line_of(answer.text, 1_000),
                    "latency_ms": answer.latency_ms,
                    "cost_usd": answer.cost_usd,
                }
                for side, answer in (("a", case.first), ("b", case.second))
                if answer is not None
            },
        }
        for case in comparison.cases
    ]
    best = comparison.shared[0] if comparison.shared else None
    return {
        **page_of(blocks),
        "cases": cases,
        "best": best and {"kind": ROLES[best.role], "n_cases": best.difference.n_cases,
                          "a": best.first_mean, "b": best.second_mean},
        "per_answer": dict(zip("ab", comparison.per_answer, strict=True)),
        "parameters": [
            {"name": name, "a": value, "b": other}
            for name, (value, other) in comparison.parameters.items()
        ],
    }  # fmt: skip


def _subject(source: PageSource, name: str) -> Subject:
    """Return a subject under its display name."""
    subject = _named(source, name)
    names = source.names(source.run(subject.run_id), {subject.candidate_id: subject.params})
    return replace(subject, name=f"{names[subject.candidate_id]} of {subject.run}")


def _named(source: PageSource, name: str) -> Subject:
    run, _, candidate = name.partition(":")
    record = source.run(run)
    has_result = source.result(record) is not None
    if candidate:
        subject = candidate_named(candidate, record, source.store) if has_result else None
        params = source.params(record, candidate)
        if subject is None and params is not None:
            subject = Subject.of(candidate, record, candidate, params)
        if subject is None:
            raise RunNotFoundError(f"{clean(candidate)!r} is not a candidate of {record.label}.")
        return subject
    if not has_result:
        raise RunNotFoundError(
            f"run {record.label} must have ended to be compared by what it recommends. Name one of "
            f"its candidates, as in {record.label}:CANDIDATE."
        )
    return recommended_of(record)


def _gate(source: PageSource, second: Subject) -> str | None:
    """Return the gate's sentence in the second's run if it judged this candidate."""
    result = source.result(source.run(second.run_id))
    if result is None or result.best is None:
        return None
    return gate_sentence(result) if result.best.candidate_id == second.candidate_id else None
