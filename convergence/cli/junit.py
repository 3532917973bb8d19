"""JUnit XML of a test of the current settings, for continuous integration.

Each condition of the test becomes a JUnit test case that fails if the condition does not hold.
Each test case of the configuration becomes a JUnit test case, in error if it has no reward. A file
without failures and errors means exit code 0. A low reward of a single case is no failure; the
case's output states it.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from convergence_core.result import CaseAnswer, CaseAnswers, number_text
from tasks.report import phrases
from tasks.report.phrases import clean
from tasks.run.assessment import Assessment, Check


def junit_xml(assessment: Assessment, checks: Sequence[Check]) -> str:
    """Return the test as JUnit XML."""
    suite = ET.Element("testsuite", name=clean(assessment.system))
    for check in checks:
        case = _case(suite, assessment, check.name, 0.0)
        if not check.passed:
            ET.SubElement(case, "failure", message=clean(check.sentence))
    n_errors = 0
    for row in assessment.cases:
        answer = row.second
        latency_ms = None if answer is None else answer.latency_ms
        case = _case(suite, assessment, row.case_id, (latency_ms or 0.0) / 1000)
        if answer is None or answer.reward is None:
            why = "not evaluated" if answer is None or answer.error is None else answer.error
            ET.SubElement(case, "error", message=clean(f"no reward: {why}"))
            n_errors += 1
        ET.SubElement(case, "system-out").text = clean("\n".join(_lines(row, answer)))
    for case_id in assessment.unasked:
        case = _case(suite, assessment, case_id, 0.0)
        ET.SubElement(case, "error", message="no reward: not evaluated")
        n_errors += 1
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(sum(not check.passed for check in checks)))
    suite.set("errors", str(n_errors))
    ET.indent(suite)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
    )


def _case(suite: ET.Element, assessment: Assessment, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(
        suite,
        "testcase",
        classname=clean(assessment.system),
        name=clean(name),
        time=f"{seconds:.3f}",
    )


def _lines(case: CaseAnswers, answer: CaseAnswer | None) -> Iterator[str]:
    if case.input is not None:
        yield f"input: {case.input}"
    if case.expected is not None:
        yield f"expected: {case.expected}"
    if answer is None:
        return
    if answer.text is not None:
        yield f"answer: {answer.text}"
    if answer.error is not None:
        yield f"error: {answer.error}"
    yield f"reward: {number_text.reward(answer.reward)}"
    for name, value in sorted(answer.metrics.items()):
        yield f"{name}: {phrases.number(value)}"
    yield from (f"judge: {reason}" for reason in answer.reasons)
