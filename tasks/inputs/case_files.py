"""Test-case files: JSON, JSONL, YAML, CSV and parquet, with their positions."""

import csv
import difflib
import io
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

from convergence_core.config.secrecy import shown
from convergence_core.config.source import ConfigSource, leaves, read_yaml, shown_key
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.records import Json
from tasks.json_values import NotJsonError, as_text, to_json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

COLUMNS = ("id", "input", "expected", "weight", "tags", "group", "description")
"""Table columns with a fixed meaning."""
_OF_PARTS = ("input.", "expected.")
LIST_KEYS = ("test_cases", "cases")
"""Keys under which a JSON or YAML file may hold its list of cases."""


@dataclass(frozen=True, slots=True)
class RawCase:
    """Test case as written, with its position."""

    value: Any
    line: int | None = None
    column: int | None = None
    retyped: tuple["Retyped", ...] = ()
    """Values that the parser converted to something other than their text."""


@dataclass(frozen=True, slots=True)
class Retyped:
    """Number, boolean or null that prints differently than written, such as ``3.10``."""

    path: tuple[str | int, ...]
    """Path within the case."""
    written: str
    value: Json
    line: int | None = None


RawCases: TypeAlias = tuple[Sequence[RawCase], Sequence[Problem]]
"""Test cases of a file, and the problems of unreadable ones."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Factory of the problems of one file."""

    file: str | None
    """Path as the user gave it; ``None`` for Python data."""
    key: str
    """Key that messages name; positions within it are appended."""

    def problem(self, rule: str, fix: str, *, at: str = "", **place: Any) -> Problem:
        """Return a problem of the file or of a position in it, with value, line and column."""
        return Problem(key=f"{self.key}{at}", rule=rule, fix=fix, file=self.file, **place)

    def error(self, rule: str, fix: str, **place: Any) -> ConfigurationError:
        """Return the error of an unreadable file; see ``problem``."""
        return ConfigurationError([self.problem(rule, fix, **place)])

    def below(self, problem: Problem) -> Problem:
        """Return a problem of the file's document as a problem of this file."""
        dot = "." if problem.key and not problem.key.startswith("[") else ""
        return replace(problem, key=f"{self.key}{dot}{problem.key}")


# -- bytes and text


_NO_FILE: dict[type, tuple[str, str]] = {
    FileNotFoundError: (
        "must name a file that exists", "Paths start from the configuration's folder."
    ),
    IsADirectoryError: ("must name a file, not a folder", "Name a file in it."),
}  # fmt: skip


def read_bytes(path: Path, report: Reporter) -> bytes:
    """Return a file's content.

    Raises:
        ConfigurationError: it is missing, not a file, unreadable or empty.
    """
    where = repr(str(path))
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or _is_given_pipe(path, mode)):
            rule, fix = "must name a file, not a pipe or a device", "Name a regular file."
            raise report.error(rule, fix, value=where)
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with the character 0
        code = getattr(error, "errno", None)
        if type(error) not in _NO_FILE:
            where += f" ({os.strerror(code) if code else error})"
        other = "must name a file that can be read", "Check its permissions."
        raise report.error(*_NO_FILE.get(type(error), other), value=where) from None
    if not content:
        rule, fix = "must name a file that is not empty", "The file has 0 bytes; write it again."
        raise report.error(rule, fix, value=where)
    return content


def _is_given_pipe(path: Path, mode: int) -> bool:
    """Return whether a path is a pipe from the shell, as in ``<(…)``, which has a writer."""
    return stat.S_ISFIFO(mode) and str(path).startswith(("/dev/", "/proc/self/fd/"))


def decode(content: bytes, report: Reporter) -> str:
    """Return a file's text.

    Raises:
        ConfigurationError: it is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        value = f"byte 0x{content[error.start]:02x}"
        rule, fix = "must be UTF-8 text", "Save the file as UTF-8."
        raise report.error(rule, fix, value=value, line=line) from None


def read_cases(path: Path, report: Reporter) -> RawCases:
    """Read a file by its suffix.

    Raises:
        ConfigurationError: the file is unreadable; the result holds problems of single cases.
    """
    suffix = path.suffix.lower()
    if suffix != ".parquet" and suffix not in _READERS:
        rule = "must be a .json, .jsonl, .yaml, .csv or .parquet file"
        fix = "Rename it by what it holds, or convert it."
        raise report.error(rule, fix, value=repr(path.name))
    content = read_bytes(path, report)
    if suffix == ".parquet":
        return _parquet(path, report)
    text = decode(content, report)
    if not text.strip():
        rule, fix = "must name a file that is not empty", "It holds white space only."
        raise report.error(rule, fix, value=repr(str(path)))
    return _READERS[suffix](text, report)


# -- JSON


def load_json(
    text: str,
    report: Reporter,
    *,
    line: int | None = None,
    read_float: Callable[[str], float] = float,
) -> Any:
    """Return the JSON value of a text.

    Raises:
        ConfigurationError: it is not JSON, or an object has a duplicate key.
    """
    try:
        return json.loads(
            text,
            parse_float=read_float,
            parse_constant=_refuse_constant,
            object_pairs_hook=_of_pairs,
        )
    except json.JSONDecodeError as error:
        rule, fix = f"must be valid JSON: {error.msg}", "Correct the text at this place."
        at = {"line": (line or 1) + error.lineno - 1, "column": error.colno}
        raise report.error(rule, fix, **at) from None
    except _TwiceError as error:
        rule = f"must not have the key {shown_key(str(error))} twice in one object"
        raise report.error(rule, "Remove or rename one of them.", line=line) from None
    except (ValueError, RecursionError) as error:
        rule, fix = f"must be valid JSON: {error}", "JSON has finite numbers of moderate size."
        raise report.error(rule, fix, line=line) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


class _TwiceError(Exception):
    """An object has a duplicate key."""


def _of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return made


def _cases_of(data: Any, report: Reporter) -> tuple[list[Any], str]:
    """Return the list of cases and its key.

    Raises:
        ConfigurationError: there is no list of cases.
    """
    if isinstance(data, list):
        return data, ""
    for key in LIST_KEYS:
        if isinstance(data, dict) and isinstance(data.get(key), list):
            return data[key], key
    rule = "must hold a list of test cases, or a mapping with `test_cases:`"
    raise report.error(rule, 'Write `[{"input": …, "expected": …}]`.', value=shown(data))


def _json(text: str, report: Reporter) -> RawCases:
    cases, key = _cases_of(load_json(text, report, read_float=_WrittenFloat), report)
    places = _places(text, _starts(text, key))
    pairs = zip(cases, places, strict=True)
    return [_of_json(value, line, column) for value, (_, line, column) in pairs], ()


def _places(text: str, starts: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Yield ascending offsets of a text, each with its line and column."""
    line, place = 1, 0
    for start in starts:
        line += text.count("\n", place, start)
        place = start
        yield start, line, start - text.rfind("\n", 0, start)


_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def _starts(text: str, key: str) -> list[int]:
    """Return the offset of each case in a valid JSON text."""
    begin = _skip(text, 0)
    if key:  # the last duplicate key applies
        begin = [start for name, start in _members(text, begin) if name == key][-1]
    return [start for _, start in _members(text, begin)]


def _members(text: str, begin: int) -> Iterator[tuple[str, int]]:
    """Yield the name of each member of a JSON object, empty in a list, and its offset."""
    position = _skip(text, begin + 1)
    while text[position] not in "]}":
        name = ""
        if text[begin] == "{":
            name, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)  # after the colon
        yield name, position
        _, position = _DECODER.raw_decode(text, position)
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def read_json_lines(text: str, report: Reporter) -> RawCases:
    """Read the JSON of each line that is not blank."""
    cases: list[RawCase] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                value = load_json(line, report, line=number, read_float=_WrittenFloat)
                cases.append(_of_json(value, number))
            except ConfigurationError as error:
                problems += error.problems
    return cases, problems


# -- YAML and tables


def _yaml(text: str, report: Reporter) -> RawCases:
    source = read_yaml(text, report.file)
    if source.problems:
        return (), [*map(report.below, source.problems)]
    cases, key = _cases_of(source.data, report)
    above: tuple[str, ...] = (key,) if key else ()
    return [raw_case(source, (*above, i), value) for i, value in enumerate(cases)], ()


def raw_case(source: ConfigSource, path: tuple[str | int, ...], value: Any) -> RawCase:
    """Return the case at a path of a YAML document."""
    place = source.position(path, of_key=False)
    retyped = []
    for below, leaf in leaves(value):
        at = (*path, *below)
        written = source.retyped.get(at)
        if written is not None and written != as_text(leaf):
            line = source.values[at].line
            retyped.append(Retyped(path=below, written=written, value=leaf, line=line))
    if place is None:
        return RawCase(value, retyped=tuple(retyped))
    return RawCase(value, place.line, place.column, tuple(retyped))


class _WrittenFloat(float):
    """JSON number with its text."""

    def __init__(self, text: str) -> None:
        self.text = text


def _of_json(value: Any, line: int | None, column: int | None = None) -> RawCase:
    """Return a case with the numbers that print differently than written."""
    retyped = tuple(
        Retyped(path=path, written=leaf.text, value=float(leaf), line=line)
        for path, leaf in leaves(value)
        if isinstance(leaf, _WrittenFloat)
        and math.isfinite(leaf)
        and leaf.text != as_text(float(leaf))
    )
    return RawCase(value, line, column, retyped)


def csv_rows(text: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not blank, with the row's first line.

    A first line ``sep=;`` names the delimiter. Otherwise it is the one that splits the first rows
    into equally many cells.

    Args:
        text: Text of a CSV file.
        delimiter: Default delimiter, by the file's suffix.

    Raises:
        csv.Error: the text is not CSV; the message names the line.
    """
    csv.field_size_limit(2**31 - 1)
    named = _SEPARATOR.match(text)
    separator = _delimiter(text, delimiter) if named is None else named[1]
    before, start = (0, 0) if named is None else (1, named.end())
    reader = csv.reader(
        io.StringIO(text[start:], newline=""),
        delimiter=separator,
        strict=True,
        # Otherwise quotes after a space would be part of the cell.
        skipinitialspace=re.search(_SPACED_QUOTES.format(re.escape(separator)), text, re.MULTILINE)
        is not None,
    )
    offset = before
    try:
        for row in reader:
            line, before = before + 1, offset + reader.line_num
            if any(cell.strip() for cell in row):
                yield line, row
    except csv.Error as error:
        raise csv.Error(f"{error} (line {offset + reader.line_num})") from None


def csv_mappings(text: str) -> Iterator[dict[str, str] | str]:
    """Yield each row by the names in the first row; a problem if its number of cells differs.

    Raises:
        csv.Error: the text is not CSV; the message names the line.
    """
    rows = csv_rows(text, ",")
    _, header = next(rows, (0, []))
    names = [name.strip() for name in header]
    for line, row in rows:
        wrong = f"line {line} has {len(row)} cells, not {len(names)}"
        yield dict(zip(names, row, strict=True)) if len(row) == len(names) else wrong


_SPACED_QUOTES = r'{0} +"(?:[^"]|"")*+"[ \t]*(?:{0}|$)'
"""Quoted cell after spaces; ``{0}`` is the delimiter."""
_SEPARATOR = re.compile(r'"?[sS][eE][pP]=([^\w\s"]|\t)"?(?:\r\n|\r|\n|$)')
"""First line by which Excel names the delimiter."""
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE = 2**16
"""Characters of a CSV file that determine its delimiter."""


def _delimiter(text: str, default: str) -> str:
    """Return the delimiter that splits the first rows into equally many cells, at least two."""

    def score(delimiter: str) -> tuple[bool, bool]:
        sample = csv.reader(io.StringIO(text[:_SAMPLE], newline=""), delimiter=delimiter)
        widths = [len(row) for row in itertools.islice(sample, 20) if any(row)]
        if len(text) > _SAMPLE and len(widths) > 1:
            widths.pop()  # the cut may have shortened it
        has_several = widths[:1] > [1]
        return has_several and len(set(widths)) == 1, has_several

    return max((default, *_DELIMITERS), key=score)


def _csv(text: str, report: Reporter, delimiter: str) -> RawCases:
    cases: list[RawCase] = []
    problems: list[Problem] = []
    names: list[str] | None = None
    try:
        for line, row in csv_rows(text, delimiter):
            if names is None:
                names = [name.strip() for name in row]
                problems += _column_problems(names, report, line=1)
                if problems:  # otherwise every row would repeat it
                    break
            elif len(row) != len(names):
                rule = f"must have {len(names)} cells, as the first line has"
                fix = "Put cells that hold commas or line breaks in double quotes."
                problems.append(report.problem(rule, fix, value=f"{len(row)} cells", line=line))
            else:
                case = _with_fields(dict(zip(names, row, strict=True)))
                cases.append(_of_json(case, line))
    except csv.Error as error:
        reason, _, line_text = str(error).rstrip(")").rpartition(" (line ")
        rule, fix = f"must be valid CSV: {reason}", "Check the double quotes before this line."
        problems.append(report.problem(rule, fix, line=int(line_text)))
    return cases, problems


def _column_problems(names: list[str], report: Reporter, *, line: int | None) -> Iterator[Problem]:
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        rule, fix = f"must not have two columns `{name}`", "Rename one of them."
        yield report.problem(rule, fix, line=line)
    value = one_line(", ".join(names), 80, redacted_text)
    for name in names:
        # A misspelt name such as `inputs` or `tag` would become a field of the input.
        near = difflib.get_close_matches(name.lower(), COLUMNS, 1, 0.75)
        if near and near[0] not in names and not name.startswith(_OF_PARTS):
            rule = f"must name its columns {', '.join(COLUMNS)} or after fields of the input"
            fix = f"Did you mean `{near[0]}` by `{name}`? If not, write `input.{name}`."
            yield report.problem(rule, fix, value=value, line=line)
            return
    for name in names:
        below = next((other for other in names if other.startswith(f"{name}.")), None)
        if below is not None and (name == "expected" or name.startswith(_OF_PARTS)):
            rule = f"must not have both a column `{name}` and its part `{below}`"
            yield report.problem(rule, "Remove or rename one of them.", line=line)
    if not any(_is_field(name) or name.partition(".")[0] == "input" for name in names):
        rule = "must have a column `input`, or one for each field of the input"
        yield report.problem(rule, "Name one of the columns so.", value=value, line=line)


def _with_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case from a table's columns; other columns are fields of the input."""
    others = [name for name in row if _is_field(name) or name.startswith("input.")]
    return _of_row(
        {
            (f"input.{name}" if _is_field(name) or (others and name == "input") else name): value
            for name, value in row.items()
            if name and not name.startswith("_")
        }
    )


def _is_field(name: str) -> bool:
    return name not in ("", *COLUMNS) and not name.startswith(("_", *_OF_PARTS))


def _of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case from columns; ``input.a.b`` nests, and empty cells are absent."""
    case: dict[str, Any] = {}
    for name, cell in row.items():
        value = decoded(cell)
        if name in ("id", "group") and isinstance(value, str):
            value = value.strip()
        if value is None or value == "":
            continue
        *parents, last = name.split(".") if name.startswith(_OF_PARTS) else [name]
        branch = case
        for part in parents:
            if not isinstance(branch.get(part), dict):
                branch[part] = {}
            branch = branch[part]
        branch[last] = value
    tags, weight = case.get("tags"), case.get("weight")
    if isinstance(tags, str):
        case["tags"] = [tag.strip() for tag in tags.replace(";", ",").split(",") if tag.strip()]
    if isinstance(weight, str):
        case["weight"] = _as_number(weight)
    return case


def decoded(cell: Any) -> Any:
    """Return a cell's text, or its JSON if that is an object, or a list of objects or strings.

    Numbers remain strings, and so does ``[12]``, which may be a pattern.
    """
    if not isinstance(cell, str) or cell.lstrip()[:1] not in ("{", "["):
        return cell
    try:
        value = json.loads(
            cell,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_of_pairs,
        )
    except (ValueError, RecursionError, _TwiceError):
        return cell
    parts = value if isinstance(value, list) else [value]
    kinds = {type(part) for part in parts}
    return value if kinds in (set(), {dict}, {str}) else cell


def _finite(text: str) -> float:
    number = _WrittenFloat(text)
    return number if math.isfinite(number) else _refuse_constant(text)


def _as_number(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _parquet(path: Path, report: Reporter) -> RawCases:
    import polars as pl  # noqa: PLC0415 - only parquet files need it

    try:
        frame = pl.read_parquet(path).select(pl.exclude("^_.*$"))
        # Through strings, as 1.1 would become 1.100000023841858.
        kinds = frame.schema
        for kind in (pl.String(), pl.Float64()):
            frame = frame.cast({name: _widened(of, kind) for name, of in kinds.items()})
        rows = frame.to_dicts()
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        rule = f"must be a parquet file: {one_line(str(error), 200, redacted_text)}"
        raise report.error(rule, "Write it again.", value=repr(str(path))) from None
    cases: list[RawCase] = []
    problems = [*_column_problems(frame.columns, report, line=None)]
    for number, row in enumerate(() if problems else rows, start=1):
        try:
            plain = cast("dict[str, Any]", _with_texts(to_json(row), row))
            # A conversation or record is the whole input.
            is_whole = isinstance(plain.get("input"), list | dict)
            cases.append(_of_json(_of_row(plain) if is_whole else _with_fields(plain), None))
        except NotJsonError as error:
            rule = f"must hold values that JSON can carry, but in row {number} {error}"
            fix = "Convert the column to texts or finite numbers."
            problems.append(report.problem(rule, fix))
    return cases, problems


def _widened(kind: Any, number: Any) -> Any:
    """Replace ``Float32`` in a polars type, at any depth."""
    import polars as pl  # noqa: PLC0415 - as in ``_parquet``

    if kind == pl.Float32:
        return number
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _widened(field.dtype, number) for field in kind.fields})
    if isinstance(kind, pl.List):
        return pl.List(_widened(kind.inner, number))
    return (
        pl.Array(_widened(kind.inner, number), kind.size) if isinstance(kind, pl.Array) else kind
    )


def _with_texts(plain: Any, raw: Any) -> Any:
    """Return a value's JSON, in which decimals keep their text."""
    if isinstance(raw, Decimal) and isinstance(plain, float):
        return _WrittenFloat(str(raw))
    if isinstance(raw, dict):
        pairs = zip(plain.items(), raw.values(), strict=True)
        return {key: _with_texts(value, other) for (key, value), other in pairs}
    if isinstance(raw, list):
        return [_with_texts(*pair) for pair in zip(plain, raw, strict=True)]
    return plain


_READERS: dict[str, Callable[[str, Reporter], RawCases]] = {
    **dict.fromkeys((".jsonl", ".ndjson"), read_json_lines),
    **dict.fromkeys((".yaml", ".yml"), _yaml),
    ".json": _json,
    ".csv": partial(_csv, delimiter=","),
    ".tsv": partial(_csv, delimiter="\t"),
}
