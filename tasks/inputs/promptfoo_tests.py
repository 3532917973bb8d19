"""Tests of a promptfoo configuration, with all that they inherit and refer to."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from convergence_core.config.source import read_yaml
from convergence_core.records import Json
from tasks.inputs.case_files import csv_mappings
from tasks.json_values import as_text
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

_KNOWN = (
    *("equals", "contains", "icontains", "regex", "similar", "grade", "llm-rubric", "starts-with"),
    *("levenshtein", "javascript", "fn", "eval", "python", "file", "latency", "cost"),
)
"""Assertions that a cell of CSV may begin with, besides families such as ``not-…``."""
_ASSERTION = re.compile(r"(?s)((?:not-)?[a-z][a-z-]*)(?:\((\d+(?:\.\d+)?)\))?(?::\s*(.*))?")
_CODE_SUFFIXES = (".js", ".ts", ".mjs", ".cjs", ".py")
VARIABLE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)((?:\.\w+)*)\s*-?\}\}")
"""A variable, or a field of one."""
CODE = re.compile(r"\{\{|\{%|\{#")
MAX_EXPANSION = 10_000
"""Combinations of one test's lists of values."""


class SkippedTestError(ValueError):
    """A test cannot be read; the text is the reason, which is counted."""


Row = Mapping[str, Any] | SkippedTestError
"""A test, or why one cannot be read."""


def read_document(path: Path) -> Mapping[str, Any]:
    """Return a configuration; a list is that of its tests.

    Raises:
        ValueError: the file is no configuration of promptfoo.
        OSError: it cannot be read.
    """
    document = _load(path)
    if isinstance(document, list):
        document = {"tests": document}
    if not isinstance(document, Mapping):
        raise ValueError("must hold a mapping with `tests:`, or a list of tests")
    return document


def expanded_tests(
    document: Mapping[str, Any], folder: Path
) -> Iterator[tuple[dict[str, Any], dict[str, Json]] | SkippedTestError]:
    """Yield each test with what is set for all, and its variables; or why it cannot be read."""
    default = _mapping(document.get("defaultTest"))
    rows = itertools.chain(_tests(document.get("tests"), folder), _scenarios(document, folder))
    for row in rows:
        try:
            if isinstance(row, SkippedTestError):
                raise row
            whole = _merged(default, row)
            for variables in _expanded(whole, folder):
                yield whole, variables
        except SkippedTestError as error:
            yield error


def _load(path: Path) -> Any:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".csv":
        wrong = SkippedTestError("a line has another number of columns than the first")
        return [wrong if row is None else _of_table(row) for row in csv_mappings(text)]
    if path.suffix in (".jsonl", ".ndjson"):
        return [orjson.loads(line) for line in text.split("\n") if line.strip()]
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError("must be YAML, JSON, JSONL or CSV; code is not run")
    if path.suffix == ".json":
        # YAML refuses the pairs of escapes by which JSON may write a character beyond 16 bits.
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    source = read_yaml(text, None)  # of YAML 1.2, as promptfoo reads it: `yes` is a text
    if source.problems:
        problem = source.problems[0]
        line = "" if problem.line is None else f" (line {problem.line})"
        raise ValueError(f"must be YAML or JSON{line}: {problem.rule}")
    return source.data


def _tests(tests: Any, folder: Path) -> Iterator[Row]:
    """Yield tests: a list of them, or files that hold them."""
    if tests is None:
        return
    for entry in tests if isinstance(tests, list) else [tests]:
        if isinstance(entry, Mapping) and "path" not in entry:
            yield entry
            continue
        name = entry.get("path") if isinstance(entry, Mapping) else entry
        if not isinstance(name, str):
            yield SkippedTestError("a test is neither a mapping nor a file")
            continue
        files = _files(name.removeprefix("file://"), folder)
        if not files:
            yield SkippedTestError(f"tests in {shortened(name)}, which does not exist here")
        for file in files:
            try:
                loaded = _load(file)
            except (OSError, ValueError) as error:
                yield SkippedTestError(f"tests in {shortened(name)}: {error}")
                continue
            for test in loaded if isinstance(loaded, list) else [loaded]:
                is_row = isinstance(test, Mapping | SkippedTestError)
                yield test if is_row else SkippedTestError("a test is not a mapping")


def shortened(value: object) -> str:
    """Return a value as one redacted line of at most 80 characters."""
    return one_line(str(value), 80, redacted_text)


def _files(name: str, folder: Path) -> list[Path]:
    if "://" in name or name.startswith("/"):
        return [Path(name)] if name.startswith("/") and Path(name).is_file() else []
    return sorted(file for file in folder.glob(name) if file.is_file())


def _scenarios(document: Mapping[str, Any], folder: Path) -> Iterator[Row]:
    """Yield each test of each scenario with each of its sets of variables."""
    for scenario in document.get("scenarios") or ():
        if not isinstance(scenario, Mapping):
            yield SkippedTestError("a scenario in a separate file")
            continue
        bases: Sequence[Mapping[str, Any]] = scenario.get("config") or ({},)
        for base in bases:
            for test in _tests(scenario.get("tests"), folder):
                yield test if isinstance(test, SkippedTestError) else _merged(base, test)


def _merged(base: Mapping[str, Any], test: Mapping[str, Any]) -> dict[str, Any]:
    """Return a test with what is set for all: its own variables win, assertions add up."""
    return {
        **base,
        **test,
        "vars": {**_mapping(base.get("vars")), **_mapping(test.get("vars"))},
        "assert": [*(base.get("assert") or ()), *(test.get("assert") or ())],
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _expanded(test: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Json]]:
    """Yield the variables of a test: lists of values stand for one test of each combination."""
    variables = {name: _read(value, folder) for name, value in test["vars"].items()}
    lists = {name: value for name, value in variables.items() if isinstance(value, list)}
    if not lists or _mapping(test.get("options")).get("disableVarExpansion"):
        yield variables
        return
    n = 1
    for value in lists.values():
        n *= len(value)
    if n > MAX_EXPANSION:
        raise SkippedTestError(f"a test of more than {MAX_EXPANSION:,} combinations of its lists")
    for chosen in itertools.product(*lists.values()):
        yield {**variables, **dict(zip(lists, chosen, strict=True))}


def _read(value: Any, folder: Path) -> Json:
    """Return a variable; ``file://…`` of a text file beside the configuration is its text."""
    if not isinstance(value, str) or not value.startswith("file://"):
        return value  # type: ignore[no-any-return]  # of YAML, checked where it is written
    file = (folder / value.removeprefix("file://")).resolve()
    if file.suffix in _CODE_SUFFIXES:
        raise SkippedTestError("a variable is made by code, which is not run")
    if not file.is_relative_to(folder.resolve()):
        raise SkippedTestError("a variable is a file outside the configuration's folder")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SkippedTestError("a variable is a file that cannot be read as text") from None


def filled(value: Json, variables: Mapping[str, Json]) -> Json:
    """Return a value with variables in their places, ``{{ name }}``, as nunjucks prints them.

    Raises:
        SkippedTestError: it has code of the template language, or no variable of that name.
    """
    if isinstance(value, list):
        return [filled(item, variables) for item in value]
    if not isinstance(value, str):
        return value
    if CODE.search(VARIABLE.sub("", value)):
        raise SkippedTestError("code of its template language")
    return VARIABLE.sub(lambda match: _printed(match[1] + match[2], variables), value)


def _printed(path: str, variables: Mapping[str, Json]) -> str:
    value: Json = dict(variables)
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise SkippedTestError(f"no variable `{shortened(path)}`")
        value = value[name]
    if isinstance(value, dict | list):
        raise SkippedTestError(f"the variable `{shortened(path)}`, which is no text or number")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else as_text(value)


def _of_table(row: Mapping[str, str]) -> dict[str, Any]:
    """Return a test from a line of CSV: ``__expected`` holds assertions, others are variables."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}}
    for name, cell in row.items():
        if name.startswith("__expected"):
            if cell:
                test["assert"].append(_of_cell(cell))
        elif name == "__description":
            test["description"] = cell
        elif name.startswith("__metadata:"):
            test["metadata"][name.removeprefix("__metadata:").removesuffix("[]")] = cell
        elif not name.startswith("__"):
            test["vars"][name] = cell
    return test


def _of_cell(cell: str) -> dict[str, Any]:
    """Return the assertion of a cell: ``contains: x``, ``latency(900)``; a plain text must be equal."""
    if cell.strip() in ("is-json", "contains-json"):
        return {"type": cell.strip()}
    match = _ASSERTION.fullmatch(cell)
    known = (match is not None and (match[2] or match[3]) is not None) and (
        match[1] in _KNOWN
        or match[1].startswith(
            ("not-", "contains-", "icontains-", "is-", "model-graded", "context-")
        )
    )
    if match is None or not known:
        return {"type": "equals", "value": cell}
    limit = {} if match[2] is None else {"threshold": float(match[2])}
    return {"type": match[1], "value": match[3], **limit}
