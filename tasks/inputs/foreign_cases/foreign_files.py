"""Rows of files that other tools export, read one after the other."""

import csv
import gzip
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from tasks.inputs.case_files import csv_mappings, decoded
from tasks.inputs.foreign_cases.case_forms import SkippedCaseError
from tasks.json_values import NotJsonError, to_json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

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
        found = orjson.loads(content.removeprefix(BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"must be JSON: {error.msg} (line {error.lineno})") from None
    del content
    if isinstance(found, dict):
        lists = [found[key] for key in _LIST_KEYS if isinstance(found.get(key), list)]
        found = lists[0] if lists else [found]
    if not isinstance(found, list):
        raise ValueError("must hold a list of rows")
    yield from found


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
