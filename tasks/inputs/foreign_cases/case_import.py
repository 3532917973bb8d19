"""Import of test cases: read, named reasons, sample, redaction, one file."""

import csv
import difflib
import gzip
import heapq
import json
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import orjson

from convergence_core.errors import ConfigurationError
from convergence_core.records import Json
from tasks.inputs.case_files import csv_mappings, decoded
from tasks.inputs.foreign_cases import case_forms
from tasks.inputs.foreign_cases.case_forms import (
    FieldNames,
    ForeignCase,
    MissingFieldError,
    SkippedCaseError,
)
from tasks.inputs.foreign_cases.promptfoo import CARRIED, read_promptfoo
from tasks.json_values import NotJsonError, to_json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line, redact_json
from tasks.store.layout import write_file

MAX_STRATA = 1_000
"""Values beyond these share one stratum."""
OTHER = "(others)"


def allocate(counts: Mapping[str, int], size: int) -> dict[str, int]:
    """Return how many of each stratum to take: alike of all, and all of those that have fewer.

    The level L with sum of min(count, L) = size; what no whole L gives goes to the first by name.

    Args:
        counts: stratum → distinct cases.
        size: how many in all.
    """
    left, taken = size, dict.fromkeys(counts, 0)
    open_strata = sorted(counts, key=lambda name: (counts[name], name))
    while open_strata and left:
        level = left // len(open_strata)
        smallest = open_strata[0]
        if counts[smallest] <= level:
            taken[smallest] = counts[smallest]
            left -= counts[smallest]
            open_strata.pop(0)
            continue
        for rank, name in enumerate(sorted(open_strata)):
            taken[name] = level + (rank < left - level * len(open_strata))
        break
    return taken


class CaseSample:
    """The kept cases of a stream.

    Each distinct case has a priority, a hash of its content and the seed, and of each stratum those
    of lowest priority stay: the same cases give the same sample in any order.
    """

    def __init__(self, size: int | None, seed: int = 0) -> None:
        """Take at most ``size`` cases; ``None`` means all."""
        self.counts: Counter[str] = Counter()
        """Stratum → distinct cases."""
        self.n_repeated = 0
        self._size = size
        self._key = f"cases:{seed}".encode()
        self._seen: set[int] = set()
        self._kept: dict[str, list[tuple[int, int, ForeignCase]]] = {}
        self._n_kept = 0

    def add(self, case: ForeignCase, stratum: str = "") -> None:
        """Offer a case; one whose input and expected answer were there counts as repeated."""
        content = orjson.dumps([_squeezed(case.input), _squeezed(case.expected)])
        digest = blake2b(content, digest_size=8, key=self._key).digest()
        priority = int.from_bytes(digest, "big")
        if priority in self._seen:
            self.n_repeated += 1
            return
        self._seen.add(priority)
        if stratum not in self.counts and len(self.counts) >= MAX_STRATA:
            stratum = OTHER
        self.counts[stratum] += 1
        number = len(self._seen)
        # A heap whose first is the one of highest priority number, which goes first.
        kept = self._kept.setdefault(stratum, [])
        if self._size is None or len(kept) < self._size:
            heapq.heappush(kept, (-priority, -number, replace(case, facts={})))
            self._n_kept += 1
        elif -priority > kept[0][0]:
            heapq.heapreplace(kept, (-priority, -number, replace(case, facts={})))
        if self._size is not None and self._n_kept > 4 * self._size + MAX_STRATA:
            self._shrink()

    def _shrink(self) -> None:
        """Drop what no final sample can hold: the level of ``allocate`` only falls."""
        assert self._size is not None  # noqa: S101 - the caller has asked
        level = max(allocate(self.counts, self._size).values())
        for kept in self._kept.values():
            while len(kept) > level:
                heapq.heappop(kept)
        self._n_kept = sum(map(len, self._kept.values()))

    def cases(self) -> list[tuple[str, ForeignCase]]:
        """Return the sample, stratum and case, in the order in which they came."""
        n_all = sum(self.counts.values())
        size = n_all if self._size is None else min(self._size, n_all)
        taken = allocate(self.counts, size)
        cases = [
            (-number, stratum, case)
            for stratum, kept in self._kept.items()
            for _, number, case in heapq.nlargest(taken[stratum], kept)
        ]
        cases.sort(key=lambda entry: entry[0])
        return [(stratum, case) for _, stratum, case in cases]


def stratum_of(case: ForeignCase, name: str | None) -> str:
    """Return the value of a fact, shortened; empty where nothing was asked for or known."""
    if name is None:
        return ""
    value = case.facts.get(name)
    return "" if value is None else _shown(str(value))


@lru_cache(maxsize=4 * MAX_STRATA)
def _shown(value: str) -> str:
    """Return the name of a stratum as it may be printed."""
    return one_line(value, 200, redacted_text)


def _squeezed(value: object) -> object:
    """Return a text with white space as single spaces, so that layout makes no new case."""
    return " ".join(value.split()) if isinstance(value, str) else value


MAX_LINE = 64 * 2**20
"""Bytes of a line; a longer one is left out."""
MAX_DOCUMENT = 2**30
"""Bytes of a file that is one JSON document, which is held in memory whole."""
_LIST_KEYS = ("data", "examples", "items", "samples")
_LINES = (".jsonl", ".ndjson", ".log")


def rows_of(path: Path, *, has_json_texts: bool = True) -> Iterator[Any]:
    """Yield the rows of a file: JSON lines, a JSON list, CSV or parquet; ``.gz`` of these.

    A row that cannot be read is yielded as the reason, a ``SkippedCaseError``.

    Args:
        path: the file.
        has_json_texts: whether cells of CSV may be texts of JSON, in quotes of their own.

    Raises:
        ValueError: the file holds no rows.
        OSError: it cannot be read.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        yield from _of_frame(path)
        return
    with _opened(path) as stream:
        if name.endswith((".csv", ".tsv")):
            default = "\t" if name.endswith(".tsv") else ","
            yield from _of_table(stream.read(), default, has_json_texts=has_json_texts)
        elif name.endswith(_LINES) or _is_lines(path):
            yield from _of_lines(stream)
        else:
            yield from _of_document(stream)


def _opened(path: Path) -> IO[bytes]:
    stream: Any = gzip.open if path.name.lower().endswith(".gz") else open
    return stream(path, "rb")  # type: ignore[no-any-return]  # both read bytes


def _is_lines(path: Path) -> bool:
    """Whether the first line of a ``.json`` file is JSON by itself, and others follow."""
    with _opened(path) as stream:
        first, second = stream.readline(MAX_LINE), stream.readline(16)
    try:
        return bool(second.strip()) and isinstance(
            orjson.loads(first.removeprefix(BOM_UTF8)), dict
        )
    except orjson.JSONDecodeError:
        return False


def _of_lines(stream: IO[bytes]) -> Iterator[Any]:
    is_first = True
    while line := stream.readline(MAX_LINE):
        if is_first:
            line, is_first = line.removeprefix(BOM_UTF8), False
        if len(line) >= MAX_LINE and not line.endswith(b"\n"):
            while (more := stream.readline(MAX_LINE)) and not more.endswith(b"\n"):
                continue
            yield SkippedCaseError(f"a line of more than {MAX_LINE // 2**20} MB")
        elif not line.isspace():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError:
                yield SkippedCaseError("a line is no JSON")


def _of_document(stream: IO[bytes]) -> Iterator[Any]:
    content = stream.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise ValueError("is one JSON document of more than 1 GB; export JSON lines")
    try:
        document = orjson.loads(content.removeprefix(BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"must be JSON: {error.msg} (line {error.lineno})") from None
    del content
    if isinstance(document, dict):
        lists = [document[key] for key in _LIST_KEYS if isinstance(document.get(key), list)]
        document = lists[0] if lists else [document]
    if not isinstance(document, list):
        raise ValueError("must hold a list of rows")
    yield from document


def _of_table(content: bytes, delimiter: str, *, has_json_texts: bool) -> Iterator[Any]:
    try:
        for row in csv_mappings(content.decode("utf-8-sig"), delimiter):
            if row is None:
                yield SkippedCaseError("a line has another number of columns than the first")
            else:
                yield {
                    name: _of_cell(value) if has_json_texts else decoded(value)
                    for name, value in row.items()
                    if value
                }
    except UnicodeDecodeError as error:
        raise ValueError(f"must be UTF-8 text, but byte {error.start} is none") from None
    except csv.Error as error:
        raise ValueError(f"must be CSV: {error}") from None


def _of_cell(value: str) -> Any:
    """Return a cell, decoded where it is a JSON object, list or text."""
    if value[:1] in ("{", "[", '"'):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _of_frame(path: Path) -> Iterator[Any]:
    import polars as pl  # noqa: PLC0415 - only those who have such files pay for it

    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        rule = f"must be parquet: {one_line(str(error), 200, redacted_text)}"
        raise ValueError(rule) from None
    for row in frame.iter_rows(named=True):
        try:
            yield {name: to_json(value) for name, value in row.items()}
        except NotJsonError:
            yield SkippedCaseError("a value that JSON cannot carry, such as an image")


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
        size: cases to keep at most; ``None`` means all.
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
    for case in _cases(path, form, names):
        n_read += 1
        if isinstance(case, SkippedCaseError):
            skipped[str(case)] += 1
            if isinstance(case, MissingFieldError):
                lacking[case.name] += 1
                known |= dict.fromkeys(case.known)
            continue
        lost.update(set(case.not_carried))
        try:
            sample.add(case, stratum_of(case, by))
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
        n_redacted=sum(row != other for row, other in zip(rows, clean, strict=True)),
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
        for cases in read_promptfoo(path):
            yield cases if isinstance(cases, SkippedCaseError) else _renamed(cases, names)
        return
    for row in rows_of(path, has_json_texts=form is not CaseForm.TABLE):
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
        question, expected = case_forms.picked(case.facts, names, case.input, case.expected)
    except SkippedCaseError as error:
        return error
    return replace(case, input=question, expected=expected)


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
    metrics = Counter(
        CARRIED[tag.removeprefix("promptfoo:")]
        for case in cases
        for tag in case.tags
        if tag.removeprefix("promptfoo:") in CARRIED
    )
    return dict(metrics.most_common())
