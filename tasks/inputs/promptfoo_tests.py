"""Tests of a promptfoo configuration, with inherited and referenced parts."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from convergence_core.config.source import read_yaml
from convergence_core.records import Json
from tasks.inputs.case_files import Reporter, csv_mappings, read_json_lines
from tasks.json_values import as_text
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

_ASSERTION = re.compile(
    r"(?s)((?:not-)?(?:equals|i?contains(?:-\w+)?|starts-with|regex|is-[\w-]+|latency|cost|grade|llm-rubric"
    r"|factuality|model-graded-[\w-]+|similar|levenshtein|javascript|fn|eval|python|file|[a-z]+-relevance|g-eval"
    r"|context-[\w-]+|rouge-n|bleu|gleu|meteor|classifier|moderation|perplexity(?:-score)?|guardrails|webhook"
    r"|word-count|finish-reason|select-best|max-score|(?:search|agent)-rubric|tool-call-f1|tra(?:ce|jectory)[-:][\w:-]+))"
    r"(?:\((\d+(?:\.\d+)?)\))?(?::\s*(.*))?"
)
"""CSV cell with an assertion: its kind, threshold and value."""
_CODE_SUFFIXES = (".js", ".ts", ".mjs", ".cjs", ".py")
VARIABLE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)((?:\.\w+)*)\s*-?\}\}")
"""Variable, or a field of one."""
CODE = re.compile(r"\{\{|\{%|\{#")
MAX_EXPANSION = 10_000
"""Maximum combinations of one test's lists of values."""


class SkippedTestError(ValueError):
    """A test or assertion is unsupported; the message is the counted reason."""


def read_document(path: Path) -> Mapping[str, Any]:
    """Return a configuration; a list becomes that of its tests.

    Raises:
        ValueError: the file is not a promptfoo configuration.
        OSError: it is unreadable.
    """
    document = _load(path)
    if isinstance(document, list):
        document = {"tests": document}
    if not isinstance(document, Mapping):
        raise ValueError("must hold a mapping with `tests:`, or a list of tests")
    return document


def expanded_tests(
    document: Mapping[str, Any], folder: Path, lost: Counter[str]
) -> Iterator[tuple[dict[str, Any], dict[str, Json]]]:
    """Yield each test with its defaults, and its variables; count unsupported tests."""
    default = mapping_of(document.get("defaultTest"))
    for test in _tests(document.get("tests"), folder, lost):
        whole = {
            **default,
            **test,
            "vars": {**mapping_of(default.get("vars")), **mapping_of(test.get("vars"))},
            "assert": [*(default.get("assert") or ()), *(test.get("assert") or ())],
        }
        try:
            if not all(isinstance(part.get("vars") or {}, Mapping) for part in (default, test)):
                raise SkippedTestError("a test's `vars` are no mapping")
            for variables in _expanded(whole, folder):
                yield whole, variables
        except SkippedTestError as error:
            lost[str(error)] += 1


def _load(path: Path) -> Any:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".csv":
        return [row if isinstance(row, str) else _of_table(row) for row in csv_mappings(text)]
    if path.suffix in (".jsonl", ".ndjson"):
        cases, problems = read_json_lines(text, Reporter(file=None, key=""))
        return [*(case.value for case in cases), *(f"line {p.line} {p.rule}" for p in problems)]
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError("must be YAML, JSON, JSONL or CSV; code is not run")
    if path.suffix == ".json":
        # YAML rejects the surrogate pairs that JSON may use for characters beyond 16 bits.
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    source = read_yaml(text, None)  # YAML 1.2, as in promptfoo: `yes` is a string
    if source.problems:
        problem = source.problems[0]
        line = "" if problem.line is None else f" (line {problem.line})"
        raise ValueError(f"must be YAML or JSON{line}: {problem.rule}")
    return source.data


def _tests(tests: Any, folder: Path, lost: Counter[str]) -> Iterator[Mapping[str, Any]]:
    """Yield tests from a list, or from the files that hold them."""
    for entry in tests if isinstance(tests, list) else [tests]:
        if isinstance(entry, Mapping) and "path" not in entry:
            yield entry
            continue
        name = str(entry["path"] if isinstance(entry, Mapping) else entry).removeprefix("file://")
        files = [] if "://" in name else matching_files(name, folder)
        if not files:
            lost[f"tests in {shortened(name)}, which does not exist here"] += 1
        for file in files:
            try:
                loaded = _load(file)
            except (OSError, ValueError) as error:
                loaded = str(error)
            for test in loaded if isinstance(loaded, list) else [loaded]:
                if isinstance(test, Mapping):
                    yield test
                else:
                    wrong = test if isinstance(test, str) else "a test is no mapping"
                    lost[f"test in {shortened(file.name)}: {wrong}"] += 1


def shortened(value: object) -> str:
    """Return a value as one redacted line of at most 80 characters."""
    return one_line(str(value), 80, redacted_text)


def matching_files(name: str, folder: Path) -> list[Path]:
    """Return the files that match a path or pattern."""
    found = [Path(name)] if name.startswith("/") else folder.glob(name)
    return sorted(file for file in found if file.is_file())


def mapping_of(value: Any) -> Mapping[str, Any]:
    """Return a mapping, or an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def _expanded(test: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Json]]:
    """Yield the variables of a test, one set for each combination of its lists of values."""
    variables = {name: _read(value, folder) for name, value in test["vars"].items()}
    lists = {name: value for name, value in variables.items() if isinstance(value, list)}
    if mapping_of(test.get("options")).get("disableVarExpansion"):
        lists = {}
    if math.prod(map(len, lists.values())) > MAX_EXPANSION:
        raise SkippedTestError(f"a test of more than {MAX_EXPANSION:,} combinations of its lists")
    for chosen in itertools.product(*lists.values()):
        yield {**variables, **dict(zip(lists, chosen, strict=True))}


def _read(value: Any, folder: Path) -> Json:
    """Return a variable; ``file://…`` becomes the text of a file in the folder."""
    if not isinstance(value, str) or not value.startswith("file://"):
        return value  # type: ignore[no-any-return]  # from YAML, checked on writing
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
    """Return a value with its variables, ``{{ name }}``, filled as nunjucks prints them.

    Raises:
        SkippedTestError: it contains template code, or an unknown variable.
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
    """Return a test from a CSV row: ``__expected`` holds assertions, other columns variables."""
    return {
        "vars": {name: cell for name, cell in row.items() if not name.startswith("__")},
        "assert": [
            _of_cell(cell) for name, cell in row.items() if name.startswith("__expected") and cell
        ],
        "description": row.get("__description"),
    }


def _of_cell(cell: str) -> dict[str, Any]:
    """Return a cell's assertion: ``contains: x``, ``latency(900)``; plain text means equality."""
    match = _ASSERTION.fullmatch(cell.strip())
    if match is None or not re.search(r"[:)]|\bis-|-json$", match[0]):
        return {"type": "equals", "value": cell}
    limit = {} if match[2] is None else {"threshold": float(match[2])}
    return {"type": match[1], "value": match[3], **limit}
