"""Import of test cases: read, named reasons, sample, redaction, one file."""

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from convergence_core.errors import ConfigurationError
from convergence_core.records import Json
from tasks.inputs.foreign_cases import case_forms, foreign_files
from tasks.inputs.foreign_cases.case_forms import (
    FieldNames,
    ForeignCase,
    MissingFieldError,
    SkippedCaseError,
)
from tasks.inputs.foreign_cases.case_sample import CaseSample, stratum_of
from tasks.inputs.foreign_cases.promptfoo import CARRIED, read_promptfoo
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line, redact_json
from tasks.store.layout import write_file


class CaseForm(StrEnum):
    """Tools whose test cases or traces can be read."""

    PROMPTFOO = "promptfoo"
    LANGFUSE = "langfuse"
    LANGSMITH = "langsmith"
    OPENAI_EVALS = "openai-evals"
    TABLE = "table"


_ROW_FORMS: dict[CaseForm, Callable[[Mapping[str, Any], FieldNames], ForeignCase]] = {
    CaseForm.LANGFUSE: case_forms.of_langfuse,
    CaseForm.LANGSMITH: case_forms.of_langsmith,
    CaseForm.OPENAI_EVALS: case_forms.of_openai_evals,
    CaseForm.TABLE: case_forms.of_table,
}


@dataclass(frozen=True, slots=True)
class CaseImport:
    """What was read, written and left out."""

    n_read: int
    """Rows or tests."""
    n_written: int
    n_expected: int
    """Of those written: with an expected answer."""
    n_redacted: int
    """Of those written: with a secret in them, which was masked."""
    n_repeated: int
    n_same_id: int
    """Of those written: with an id that another row has too, which is left out."""
    n_distinct: int
    strata: Mapping[str, tuple[int, int]]
    """Stratum → how many were written, and how many distinct ones there are."""
    skipped: Mapping[str, int]
    """Reason → rows left out for it."""
    not_carried: Mapping[str, int]
    """What a test case has no place for → how often it was met."""
    metrics: Mapping[str, int]
    """Metric that compares as the tool did → cases written whose expected answer it wants."""


def guess_form(path: Path) -> CaseForm | None:
    """Return whose file that is, where its name says it."""
    return CaseForm.PROMPTFOO if path.name.startswith("promptfoo") else None


def import_cases(
    path: Path,
    output: Path,
    form: CaseForm,
    *,
    names: FieldNames = FieldNames(),  # noqa: B008 - it cannot change
    size: int | None = None,
    by: str | None = None,
    seed: int = 0,
) -> CaseImport:
    """Write the test cases of another tool's file as JSON lines; each is distinct and redacted.

    Where there is none, no file is written.

    Args:
        path: the file.
        output: file of test cases.
        form: of which tool.
        names: fields to take.
        size: cases to keep at most; ``None``: all.
        by: fact, such as a field of the metadata, of whose values alike many cases are taken.
        seed: of the sample.

    Raises:
        ValueError: the file is none of this tool.
        ConfigurationError: no row has a field that is named.
        OSError: it cannot be read, or the output not be written.
    """
    sample, skipped, n_read = CaseSample(size, seed), Counter[str](), 0
    lost: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    known: dict[str, None] = {}
    for found in _cases(path, form, names):
        n_read += 1
        if isinstance(found, SkippedCaseError):
            skipped[str(found)] += 1
            if isinstance(found, MissingFieldError):
                lacking[found.name] += 1
                known |= dict.fromkeys(found.known)
            continue
        lost.update(set(found.not_carried))
        try:
            sample.add(found, stratum_of(found, by))
        except (TypeError, orjson.JSONEncodeError):
            skipped["a value that JSON cannot carry, such as a number of more than 64 bits"] += 1
    if lacking and not sample.counts:
        raise _unknown_field(lacking.most_common(1)[0][0], names, list(known))
    chosen = sample.cases()
    named = [case.as_json() for _, case in chosen]
    rows = _with_distinct_ids(named)
    clean = [redact_json(row, redacted_text) for row in rows]
    if clean:
        write_file(output, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in clean))
    taken = Counter(stratum for stratum, _ in chosen)
    return CaseImport(
        n_read=n_read,
        n_written=len(clean),
        n_expected=sum("expected" in row for row in rows),
        n_redacted=sum(one != other for one, other in zip(rows, clean, strict=True)),
        n_repeated=sample.n_repeated,
        n_same_id=sum("id" in row for row in named) - sum("id" in row for row in rows),
        n_distinct=sum(sample.counts.values()),
        strata={name: (taken[name], n) for name, n in sorted(sample.counts.items())},
        skipped=dict(skipped.most_common()),
        not_carried=dict(lost.most_common()),
        metrics=_metrics(case for _, case in chosen),
    )


def _cases(
    path: Path, form: CaseForm, names: FieldNames
) -> Iterator[ForeignCase | SkippedCaseError]:
    """Yield each row as a test case, or the reason why it is none."""
    if form is CaseForm.PROMPTFOO:
        for found in read_promptfoo(path):
            yield found if isinstance(found, SkippedCaseError) else _renamed(found, names)
        return
    for row in foreign_files.rows_of(path, has_json_texts=form is not CaseForm.TABLE):
        yield row if isinstance(row, SkippedCaseError) else _read(row, form, names)


def _read(row: Any, form: CaseForm, names: FieldNames) -> ForeignCase | SkippedCaseError:
    if not isinstance(row, Mapping):
        return SkippedCaseError("a row is no object")
    try:
        return _ROW_FORMS[form](row, names)
    except SkippedCaseError as error:
        return error


def _renamed(case: ForeignCase, names: FieldNames) -> ForeignCase | SkippedCaseError:
    """Return a case with the variables that the user named."""
    if not names.inputs and names.expected is None:
        return case
    try:
        asked, expected = case_forms.picked(case.facts, names, case.input, case.expected)
    except SkippedCaseError as error:
        return error
    return replace(case, input=asked, expected=expected)


def _unknown_field(name: str, names: FieldNames, known: list[str]) -> ConfigurationError:
    """Return the error of a named field that no row has."""
    near = difflib.get_close_matches(name, known, 1)
    meant = f"Did you mean `{near[0]}`? " if near else ""
    fix = f"{meant}Fields are: {', '.join(known) or 'none'}."
    key = "--expected" if name == names.expected else "--input"
    return ConfigurationError.of(
        key,
        "must name a field of the rows",
        one_line(fix, 300, redacted_text),
        value=one_line(name, 80, redacted_text),
    )


def _with_distinct_ids(rows: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return rows without ids that two of them have: a case without one is named by its content."""
    counts = Counter(row["id"] for row in rows if "id" in row)
    return [
        {key: value for key, value in row.items() if key != "id" or counts[value] == 1}
        for row in rows
    ]


def _metrics(cases: Iterator[ForeignCase]) -> dict[str, int]:
    found = Counter(
        CARRIED[tag.removeprefix("promptfoo:")]
        for case in cases
        for tag in case.tags
        if tag.removeprefix("promptfoo:") in CARRIED
    )
    return dict(found.most_common())
