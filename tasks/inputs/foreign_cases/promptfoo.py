"""Tests of a promptfoo configuration as test cases."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import yaml

from convergence_core.records import Json
from tasks.inputs.case_files import csv_mappings
from tasks.inputs.foreign_cases.case_forms import ForeignCase, SkippedCaseError
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

CARRIED = {
    "equals": "exact_match",
    "contains": "contains",
    "icontains": "contains",
    "regex": "regex",
    "similar": "similarity",
    "is-json": "json_schema",
    "contains-json": "json_schema",
}
"""Assertions whose value becomes the expected answer → the metric that compares with it."""
_CODE = ("javascript", "fn", "eval", "python", "file")
_ASSERTION = re.compile(r"(?s)((?:not-)?[a-z][a-z-]*)(?:\(([\d.]+)\))?:\s*(.*)")
_CODE_SUFFIXES = (".js", ".ts", ".mjs", ".cjs", ".py")
_EXPRESSION = re.compile(r"(?s)\{[{%].*?[%}]\}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
MAX_EXPANSION = 10_000
"""Combinations of one test's lists of values."""
MAX_PATH = 200
"""Characters of a prompt that may be the name of a file."""

Row = Mapping[str, Any] | SkippedCaseError
"""A test, or why one cannot be read."""


def read_promptfoo(path: Path) -> Iterator[ForeignCase | SkippedCaseError]:
    """Yield each test of a configuration, or the reason why it is no test case.

    Raises:
        ValueError: the file is no configuration of promptfoo.
        OSError: it cannot be read.
    """
    document = read_document(path)
    prompt_names = _prompt_variables(document, path.parent)
    for test in expanded_tests(document, path.parent):
        try:
            if isinstance(test, SkippedCaseError):
                raise test
            yield _case(*test, prompt_names)
        except SkippedCaseError as error:
            yield error


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
) -> Iterator[tuple[dict[str, Any], dict[str, Json]] | SkippedCaseError]:
    """Yield each test with what is set for all, and its variables; or why it cannot be read."""
    default = _mapping(document.get("defaultTest"))
    rows = itertools.chain(_tests(document.get("tests"), folder), _scenarios(document, folder))
    for row in rows:
        try:
            if isinstance(row, SkippedCaseError):
                raise row
            whole = _merged(default, row)
            for variables in _expanded(whole, folder):
                yield whole, variables
        except SkippedCaseError as error:
            yield error


def _prompt_variables(document: Mapping[str, Any], folder: Path) -> frozenset[str] | None:
    """Return the names that prompts and providers use; ``None`` if no prompt is known."""
    prompts = document.get("prompts") or ()
    used: set[str] = set()
    is_known = False
    for prompt in prompts if isinstance(prompts, list) else [prompts]:
        text = prompt if isinstance(prompt, str) else json.dumps(prompt, default=str)
        names = _names_in(text)
        if not names and len(text) < MAX_PATH and "\n" not in text:
            for file in _files(text.removeprefix("file://"), folder):
                with suppress(OSError, UnicodeDecodeError):
                    content = file.read_text(encoding="utf-8-sig")
                    names |= _names_in(content, is_code=file.suffix in _CODE_SUFFIXES)
        used |= names
        is_known = is_known or bool(names)
    providers = [document.get(key) for key in ("providers", "targets")]
    return frozenset(used | _names_in(json.dumps(providers, default=str))) if is_known else None


def _names_in(text: str, *, is_code: bool = False) -> set[str]:
    """Return the words of a template's expressions, or of code."""
    parts = [text] if is_code else _EXPRESSION.findall(text)
    return {name for part in parts for name in _NAME.findall(part)}


def _answers_alone(
    test: Mapping[str, Any],
    variables: Mapping[str, Json],
    expected: Json,
    prompt_names: frozenset[str] | None,
) -> set[str]:
    """Return the variables that only assertions use; where no prompt is known, those that are the answer."""
    checked: set[str] = set()
    for assertion in assertions_of(test.get("assert") or ()):
        is_code = str(assertion.get("type")).removeprefix("not-") in _CODE
        checked |= _names_in(json.dumps(assertion, default=str), is_code=is_code)
    within = {name for value in variables.values() for name in _names_in(str(value))}
    return {
        name
        for name, value in variables.items()
        if name in checked - within
        and (value == expected if prompt_names is None else name not in prompt_names)
    }


def _load(path: Path) -> Any:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".csv":
        wrong = SkippedCaseError("a line has another number of columns than the first")
        return [wrong if row is None else _of_table(row) for row in csv_mappings(text)]
    if path.suffix in (".jsonl", ".ndjson"):
        return [orjson.loads(line) for line in text.split("\n") if line.strip()]
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError("must be YAML, JSON, JSONL or CSV; code is not run")
    if path.suffix == ".json":
        # YAML refuses the pairs of escapes by which JSON may write a character beyond 16 bits.
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = "" if place is None else f" (line {place.line + 1})"
        raise ValueError(f"must be YAML or JSON{line}") from None


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
            yield SkippedCaseError("a test is neither a mapping nor a file")
            continue
        files = _files(name.removeprefix("file://"), folder)
        if not files:
            yield SkippedCaseError(f"tests in {_shown(name)}, which is no file here")
        for file in files:
            try:
                loaded = _load(file)
            except (OSError, ValueError) as error:
                yield SkippedCaseError(f"tests in {_shown(name)}: {error}")
                continue
            for test in loaded if isinstance(loaded, list) else [loaded]:
                is_row = isinstance(test, Mapping | SkippedCaseError)
                yield test if is_row else SkippedCaseError("a test is no mapping")


def _shown(name: str) -> str:
    return one_line(name, 80, redacted_text)


def _files(name: str, folder: Path) -> list[Path]:
    if "://" in name or name.startswith("/"):
        return [Path(name)] if name.startswith("/") and Path(name).is_file() else []
    return sorted(file for file in folder.glob(name) if file.is_file())


def _scenarios(document: Mapping[str, Any], folder: Path) -> Iterator[Row]:
    """Yield each test of each scenario with each of its sets of variables."""
    for scenario in document.get("scenarios") or ():
        if not isinstance(scenario, Mapping):
            yield SkippedCaseError("a scenario in a file of its own")
            continue
        bases: Sequence[Mapping[str, Any]] = scenario.get("config") or ({},)
        for base in bases:
            for test in _tests(scenario.get("tests"), folder):
                yield test if isinstance(test, SkippedCaseError) else _merged(base, test)


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
        raise SkippedCaseError(f"a test of more than {MAX_EXPANSION:,} combinations of its lists")
    for chosen in itertools.product(*lists.values()):
        yield {**variables, **dict(zip(lists, chosen, strict=True))}


def _read(value: Any, folder: Path) -> Json:
    """Return a variable; ``file://…`` of a text file beside the configuration is its text."""
    if not isinstance(value, str) or not value.startswith("file://"):
        return value  # type: ignore[no-any-return]  # of YAML, checked where it is written
    file = (folder / value.removeprefix("file://")).resolve()
    if file.suffix in _CODE_SUFFIXES:
        raise SkippedCaseError("a variable is made by code, which is not run")
    if not file.is_relative_to(folder.resolve()):
        raise SkippedCaseError("a variable is a file outside of the configuration's folder")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SkippedCaseError("a variable is a file that cannot be read as text") from None


def _case(
    test: Mapping[str, Any], variables: dict[str, Json], prompt_names: frozenset[str] | None
) -> ForeignCase:
    if not variables:
        raise SkippedCaseError("a test without variables")
    expected: Json = None
    kind, lost = None, []
    for assertion in assertions_of(test.get("assert") or ()):
        name, value = _shown(str(assertion.get("type"))), assertion.get("value")
        if name in CARRIED and kind is None and value is not None:
            kind, expected = name, filled(value, variables)
        elif name in CARRIED and kind is not None:
            lost.append(f"a second assertion ({name} beside {kind})")
        else:
            lost.append(f"assertion {name}")
    tags = [] if kind is None else [f"promptfoo:{kind}"]
    alone = _answers_alone(test, variables, expected, prompt_names)
    metadata = _mapping(test.get("metadata"))
    description = test.get("description")
    return ForeignCase(
        input={name: value for name, value in variables.items() if name not in alone} or variables,
        expected=expected,
        description=description if isinstance(description, str) else "",
        tags=tuple(tags),
        facts={**metadata, **variables},
        not_carried=tuple(lost),
    )


def assertions_of(assertions: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield assertions; those of a set one by one."""
    for assertion in assertions:
        if not isinstance(assertion, Mapping):
            continue
        if assertion.get("type") == "assert-set":
            yield from assertions_of(assertion.get("assert") or ())
        else:
            yield assertion


def filled(value: Json, variables: Mapping[str, Json]) -> Json:
    """Return a value with variables in their places, ``{{ name }}``."""
    if isinstance(value, list):
        return [filled(item, variables) for item in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda match: str(variables.get(match[1], match[0])), value)


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
    """Return the assertion of a cell: ``contains: x``, ``similar(0.8): x``; a plain text must be equal."""
    if cell.strip() in ("is-json", "contains-json"):
        return {"type": cell.strip()}
    match = _ASSERTION.fullmatch(cell)
    known = match is not None and (
        match[1] in CARRIED
        or match[1] in (*_CODE, "grade", "llm-rubric", "starts-with", "levenshtein")
        or match[1].startswith(
            ("not-", "contains-", "icontains-", "is-", "model-graded", "context-")
        )
    )
    if match is None or not known:
        return {"type": "equals", "value": cell}
    return {"type": match[1], "value": match[3]}
