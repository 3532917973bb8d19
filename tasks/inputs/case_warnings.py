"""Warnings about test cases that are valid, and probably not meant as they stand."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from convergence_core.config import Configuration, MetricConfig
from convergence_core.config.api import CHAT_KINDS
from convergence_core.errors import Problem
from convergence_core.records import Case, Json
from tasks.inputs.case_files import RawCase, Reporter, Retyped
from tasks.json_values import answers_of, as_text, parse_path
from tasks.metrics.comparisons import LIKENESSES, needs_expected
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

MOST_SHOWN = 5
"""Warnings of one kind that are shown each; the last one counts the others."""
LEAST_CASES = 2
"""Cases with an expected answer from which their inputs are searched for it."""
LEAST_CHARACTERS = 3
"""Of an expected answer that is searched for within a longer text."""
_TEXT_METRICS = ("exact_match", "contains", "regex", *LIKENESSES)


def retyped_warnings(
    raw: Sequence[RawCase], configuration: Configuration, report: Reporter
) -> list[Problem]:
    """Return a warning for each value of YAML or JSON that a comparison of texts, or a prompt, would miss.

    Args:
        raw: the cases as read.
        configuration: its metrics and kind say whether texts matter.
        report: of the file.
    """
    metrics = [*configuration.evaluation.metrics.values()]
    is_chat = configuration.api.kind in CHAT_KINDS
    columns = [
        (index, leaf)
        for index, case in enumerate(raw)
        for leaf in case.retyped
        if (leaf.path[:1] == ("input",) and is_chat)
        or (leaf.path[:1] == ("expected",) and any(_compares(metric, leaf) for metric in metrics))
    ]
    warnings = []
    for number, (index, leaf) in enumerate(columns[:MOST_SHOWN], start=1):
        at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in leaf.path)
        rule = (
            f"must be in quotes to stay a text: without them it is read as {as_text(leaf.value)}"
        )
        written = one_line(leaf.written, 40, redacted_text)
        fix = f'Write "{written}".'
        if number == MOST_SHOWN < len(columns):
            fix += f" {len(columns) - MOST_SHOWN} more are like it."
        warnings.append(
            report.problem(rule, fix, value=written, line=leaf.line, at=f"[{index}]{at}")
        )
    return warnings


def _compares(metric: MetricConfig, leaf: Retyped) -> bool:
    if not needs_expected(metric) or metric.type not in _TEXT_METRICS:
        return False
    path = () if metric.expected_field is None else parse_path(metric.expected_field)
    return leaf.path[1 : 1 + len(path)] == path


def leak_warnings(cases: Sequence[Case], report: Reporter) -> list[Problem]:
    """Return a warning where most inputs hold the answer that their case expects."""
    fields: Counter[str] = Counter()
    n_within = n_expected = 0
    for case in cases:
        answers = [as_text(answer).strip() for answer in answers_of(case.expected)]
        if case.expected is None or isinstance(case.expected, dict) or not all(answers):
            continue
        n_expected += 1
        parts = case.input if isinstance(case.input, dict) else {"": case.input}
        same = {name for name, value in parts.items() if _is_any(value, answers)}
        fields.update(same)
        n_within += not same and any(
            _holds(text, answer)
            for value in parts.values()
            for text in _texts(value)
            for answer in answers
        )
    if n_expected < LEAST_CASES:
        return []
    name, n_same = fields.most_common(1)[0] if fields else ("", 0)
    if 2 * n_same > n_expected:
        where = f"field `{name}`" if name else "whole"
        rule = f"must not hold the expected answer, but in {n_same} of {n_expected} cases its {where} is that"
        return [report.problem(rule, "Leave it out, or no case tests anything.", at=".input")]
    if 2 * n_within > n_expected:
        rule = f"holds the expected answer within its text in {n_within} of {n_expected} cases"
        fix = "Leave it out, unless answers are to be found in the text."
        return [report.problem(rule, fix, at=".input")]
    return []


def _is_any(value: Json, answers: Sequence[str]) -> bool:
    return not isinstance(value, (dict, list)) and as_text(value).strip() in answers


def _holds(text: str, answer: str) -> bool:
    """Whether a text holds an answer as whole words."""
    if len(answer) < LEAST_CHARACTERS or answer not in text:
        return False
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None


def _texts(value: Json) -> Iterator[str]:
    """Yield the texts of a field; of messages their content."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            content = part.get("content") if isinstance(part, dict) else None
            if isinstance(content, str):
                yield content
