"""Test cases: checks, ids, the held-out share and the hash."""

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.sparse import csr_array

from convergence_core.config import Configuration, EvaluationConfig, MetricConfig
from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.secrecy import shown
from convergence_core.config.source import leaves
from convergence_core.errors import Problem
from convergence_core.judges.texts import word_set
from convergence_core.records import Case, Json, canonical_json, sha256_hex
from tasks.inputs.case_files import COLUMNS, RawCase, Reporter, Retyped
from tasks.json_values import (
    MISSING,
    Missing,
    NotJsonError,
    answers_of,
    as_text,
    field_of,
    parse_path,
    to_json,
)
from tasks.metrics.comparisons import LIKENESSES, check_expected, needs_expected
from tasks.metrics.tool_calls import CALLS, expected_problem
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

GAMES_TAG = "games"
"""Tag of approved cases that a game found."""
MAX_WEIGHT = 1_000_000_000
"""Maximum weight of a case, as of a metric: larger sums overflow."""
_MAX_PROBLEMS = 50
ALIKE = 0.7
"""Cosine of two inputs at or above which their cases form one group."""
MOST_ALIKE = 200
"""Maximum cases with a word; more frequent words are ignored."""
_LEAST_ALIKE = 3
"""Minimum cases for reporting a common problem once, and for grouping."""


def build_cases(
    raw: Sequence[RawCase], evaluation: EvaluationConfig, report: Reporter
) -> tuple[tuple[Case, ...], list[Problem]]:
    """Return the valid cases, and the problems of the others.

    A case without an id gets one from its content.
    """
    builder = _Builder(evaluation, report)
    for case in raw:
        builder.add(case)
        if len(builder.problems) >= _MAX_PROBLEMS:
            break
    if not raw:
        rule, fix = "must hold at least one test case", "Write e.g. `{input: …, expected: …}`."
        builder.problems.append(report.problem(rule, fix))
    return tuple(builder.cases), _without_repeats(builder.problems, len(raw))


def _without_repeats(problems: list[Problem], n_cases: int) -> list[Problem]:
    """Return the problems; if every case has the same problem, only the first."""
    places: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        end = problem.key.rpartition("]")[2]
        places.setdefault((end, problem.rule, problem.fix), []).append(problem)
    least = min(n_cases, _MAX_PROBLEMS)
    shortened: list[Problem] = []
    for same in places.values():
        if len(same) < max(least, _LEAST_ALIKE):
            shortened += same
            continue
        rule = f"{same[0].rule} (so in all {n_cases} cases)"
        shortened.append(replace(same[0], rule=rule))
    return sorted(shortened, key=problems.index) if len(shortened) == len(problems) else shortened


def split_holdout(
    cases: Sequence[Case], share: float
) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Return search and held-out cases, independent of runs, seeds and file order.

    The split depends only on ids and groups. Each side has at least one case, and a group is never
    divided.
    """
    sizes = Counter(_unit(case) for case in cases)
    n_units = len(sizes)
    if share <= 0 or n_units < 2:
        return tuple(cases), ()
    ranked = sorted(sizes, key=lambda unit: sha256_hex(f"holdout:{unit}"))
    wanted = max(1, round(share * len(cases)))
    held: set[str] = set()
    n_held = 0
    for unit in ranked:
        # A unit that would overshoot by more than the current shortfall stays with the search.
        if len(held) < n_units - 1 and n_held + sizes[unit] - wanted <= wanted - n_held:
            held.add(unit)
            n_held += sizes[unit]
    held = held or {min(ranked, key=lambda unit: sizes[unit])}
    search = tuple(case for case in cases if _unit(case) not in held)
    return search, tuple(case for case in cases if _unit(case) in held)


def with_groups(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Group cases with similar inputs, unless they have a group.

    Inputs are similar if they are equal, or have a cosine of at least ``ALIKE`` and share two
    words. A word's weight is its rarity, ``log(n / number of cases)``, so words of a template
    count little. Words in over a quarter of the cases, or in over ``MOST_ALIKE``, are ignored.
    MinHash would weigh all words equally and join cases of one template. A group of over half of
    the cases is dropped.
    """
    free = [i for i, case in enumerate(cases) if case.group is None]
    if len(free) < _LEAST_ALIKE:
        return tuple(cases)
    texts = [as_text(cases[i].input) for i in free]
    words = [word_set(" ".join(as_text(leaf) for _, leaf in leaves(cases[i].input))) for i in free]
    n_cases = Counter(word for words_of_case in words for word in words_of_case)
    most = min(max(len(free) / 4.0, 2.0), MOST_ALIKE)
    rarity = {word: math.log(len(free) / n) for word, n in sorted(n_cases.items()) if n <= most}
    column = {word: k for k, word in enumerate(rarity)}
    entries = [
        (i, word) for i, known in enumerate(words) for word in sorted(known & column.keys())
    ]
    places = [i for i, _ in entries], [column[word] for _, word in entries]
    shape = (len(free), max(1, len(column)))
    table = csr_array(([rarity[word] for _, word in entries], places), shape=shape)
    lengths = np.sqrt(table.power(2).sum(axis=1))
    products = (table @ table.T).tocoo()
    near = products.data >= ALIKE * lengths[products.row] * lengths[products.col]
    alike: dict[int, list[int]] = {}
    for i, j in zip(products.row[near].tolist(), products.col[near].tolist(), strict=True):
        if i != j and len(words[i] & words[j] & column.keys()) > 1:
            alike.setdefault(i, []).append(j)
    for same in _alike_by(texts):
        alike[same[0]] = [*alike.get(same[0], ()), *same[1:]]
    leaders: dict[int, int] = {}
    for row in sorted(alike, key=lambda row: cases[free[row]].case_id):
        if row not in leaders:  # similarity to a group's first case decides, so chains do not join
            leaders |= {other: row for other in (row, *alike[row]) if other not in leaders}
    grouped = list(cases)
    sizes = Counter(leaders.values())
    for row, leader in leaders.items():
        if not 1 < sizes[leader] <= len(cases) / 2:
            continue
        grouped[free[row]] = replace(
            cases[free[row]], group=f"alike:{cases[free[leader]].case_id}"
        )
    return tuple(grouped)


def _alike_by(texts: Sequence[str]) -> list[list[int]]:
    """Return the indices of each text that occurs more than once."""
    places: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        places.setdefault(text, []).append(i)
    return [same for same in places.values() if len(same) > 1]


def _unit(case: Case) -> str:
    """Return the name of the unit that is held out as a whole."""
    return case.case_id if case.group is None else f"group:{case.group}"


GAMES_SHARE = 0.2
"""Maximum share of the games' approved cases in the total weight."""


def limited_weights(cases: Sequence[Case], others: Sequence[Case]) -> tuple[Case, ...]:
    """Scale down the weights of games' cases to at most ``GAMES_SHARE`` of the total weight.

    The games' total weight W_g becomes min(W_g, share / (1 - share) W), where W is the weight of
    all other cases; one factor scales all.

    Args:
        cases: Approved cases; those of games have the tag ``GAMES_TAG``.
        others: All other test cases.
    """
    of_games = math.fsum(case.weight for case in cases if GAMES_TAG in case.tags)
    rest = math.fsum(case.weight for case in (*others, *cases)) - of_games
    most = GAMES_SHARE / (1.0 - GAMES_SHARE) * rest
    if rest <= 0.0 or of_games <= most:
        return tuple(cases)
    return tuple(
        replace(case, weight=case.weight * most / of_games) if GAMES_TAG in case.tags else case
        for case in cases
    )


def groups_of(cases: Sequence[Case]) -> dict[str, str]:
    """Return case → group, for cases with a group."""
    return {case.case_id: case.group for case in cases if case.group is not None}


def hash_of(cases: Sequence[Case]) -> str:
    """Return a hash of everything that affects evaluations, independent of file order."""
    rows = [
        [
            *(case.case_id, case.input, case.expected, case.weight, list(case.tags)),
            *([] if case.group is None else [case.group]),
        ]
        for case in sorted(cases, key=lambda case: case.case_id)
    ]
    return sha256_hex(canonical_json(rows))


class _Fields(BaseModel):
    """Fields of a test case except ``expected``; it ignores further ones."""

    model_config = ConfigDict(strict=True)

    id: Annotated[str, Field(min_length=1)] | int | None = None
    input: str | bool | int | float | list[Any] | dict[str, Any]
    weight: float = Field(default=1.0, gt=0, le=MAX_WEIGHT)
    tags: str | list[str] | None = None
    group: Annotated[str, Field(pattern=r"[^\s\x00-\x1f]")] | int | None = None
    description: str | None = None


_RULES = {
    "id": ("must be a non-empty string", "Write e.g. `id: refund-1`, or leave it out."),
    "input": ("is required", "Add `input:`, the question."),
    "weight": (
        f"must be a number above 0 and at most {MAX_WEIGHT:,}",
        "Write e.g. 1, or remove the case.",
    ),
    "tags": ("must be a list of strings", "Write e.g. `[easy, english]`."),
    "group": (
        "must be a non-empty string",
        "Give similar cases the same name, or remove it.",
    ),
    "description": ("must be a string", "Put it in quotes."),
}
"""Field → its rule and fix."""


class _Builder:
    """Checker of raw cases, one at a time."""

    def __init__(self, evaluation: EvaluationConfig, report: Reporter) -> None:
        self.cases: list[Case] = []
        self.problems: list[Problem] = []
        self._metrics = evaluation.metrics
        self._report = report
        self._id_to_place: dict[str, str] = {}
        self._index = -1
        self._raw = RawCase(None)
        """Case that is being checked."""

    def add(self, raw: RawCase) -> None:
        self._index += 1
        self._raw = raw
        n_before = len(self.problems)
        if not isinstance(raw.value, dict):
            self._refuse("", "must be a mapping", "Write `{input: …}`.", raw.value)
            return
        try:
            value = to_json(raw.value)
        except NotJsonError as error:
            fix = "Use strings, numbers, lists and mappings."
            self._refuse("", f"must be made of JSON values: {error}", fix)
            return
        assert isinstance(value, dict)  # noqa: S101 - a mapping stays one
        self._check_keys(value)
        fields = self._fields(value)
        self._check_expected(value)
        case_id = None if fields is None else self._id(value)
        if fields is None or case_id is None or len(self.problems) > n_before:
            return
        self.cases.append(
            Case(
                case_id=case_id,
                input=value["input"],
                expected=value.get("expected"),
                weight=fields.weight,
                tags=(fields.tags,) if isinstance(fields.tags, str) else tuple(fields.tags or ()),
                group=None if fields.group is None else str(fields.group),
                description=fields.description or "",
            )
        )

    def _fields(self, value: dict[str, Any]) -> "_Fields | None":
        """Return a case's fields; ``None``, with problems, if one has the wrong type."""
        try:
            return _Fields.model_validate(value)
        except ValidationError as error:
            for key in dict.fromkeys(str(item["loc"][0]) for item in error.errors()):
                rule, fix = _RULES[key]
                self._refuse(f".{key}", rule, fix, *([] if key == "input" else [value[key]]))
            return None

    def _check_keys(self, value: dict[str, Any]) -> None:
        """Report misspelt keys; other keys, such as further columns of a table, are ignored."""
        for key in value:
            near = difflib.get_close_matches(key.lower(), COLUMNS, 1, 0.75)
            if near and key not in COLUMNS:
                self._refuse(f".{key}", "is not a known key", f"Did you mean `{near[0]}`?")

    def _id(self, value: dict[str, Any]) -> str | None:
        written = value.get("id")
        if written is None:
            content = [value.get("input"), value.get("expected")]
            case_id = f"case-{sha256_hex(canonical_json(content))[:12]}"
            rule, fix = "must differ from all others", "Remove it, or give both an `id`."
        else:
            case_id = str(written)
            rule, fix = "must be unique", "Give each case its own id."
        if case_id in self._id_to_place:
            at = ".id" if written is not None else ""
            rule += f", but {self._id_to_place[case_id]} has the same"
            self._refuse(at, rule, fix, *([case_id] if at else []))
            return None
        line = self._raw.line
        self._id_to_place[case_id] = f"case {self._index + 1}" if line is None else f"line {line}"
        return case_id

    def _check_expected(self, value: dict[str, Any]) -> None:
        for name, metric in self._metrics.items():
            path = getattr(metric, "expected_field", None) or TOOL_LISTS.get(metric.type)
            if metric.type in (*TOOL_LISTS, "tool_allowed") and path is not None:
                listed = field_of(value.get("expected"), path)
                wrong = None if isinstance(listed, Missing) else expected_problem(listed)
                if wrong is not None:
                    fix = f"Metric `{name}` of type `{metric.type}` compares with it."
                    self._refuse(f".expected.{path}", wrong, fix, listed)
            if not needs_expected(metric):
                continue
            at, path, expected = ".expected", metric.expected_field, value.get("expected", MISSING)
            if not isinstance(expected, Missing) and path is not None:
                at, expected = f".expected.{path}", field_of(expected, path)
            if isinstance(expected, Missing):
                fix = f"Add it, or give metric `{name}` another type."
                self._refuse(at, f"is required by metric `{name}`", fix)
            elif (wrong := check_expected(metric, expected)) is not None:
                fix = f"Metric `{name}` of type `{metric.type}` compares with it."
                self._refuse(at, wrong, fix, expected)

    def _refuse(self, at: str, rule: str, fix: str, *value: Any) -> None:
        written = shown(value[0]) if value else ""
        line, column, at = self._raw.line, self._raw.column, f"[{self._index}]{at}"
        self.problems.append(
            self._report.problem(rule, fix, value=written, line=line, column=column, at=at)
        )


TOOL_LISTS = {"tool_choice": CALLS, "tool_arguments": CALLS}
"""Type of metric → field of the expected calls."""
MOST_SHOWN = 5
"""Maximum warnings of one kind; the last one counts the others."""
LEAST_CASES = 2
"""Minimum cases with an expected answer for the leak check."""
LEAST_CHARACTERS = 3
"""Minimum characters of an expected answer for the search within longer texts."""
_TEXT_METRICS = ("exact_match", "contains", "regex", *LIKENESSES)


def retyped_warnings(
    raw: Sequence[RawCase], configuration: Configuration, report: Reporter
) -> list[Problem]:
    """Return warnings of converted values that string comparisons, prompts or names would miss.

    Args:
        raw: Cases as read.
        configuration: Configuration, whose metrics and kind decide whether strings matter.
        report: Reporter of the file.
    """
    metrics = [*configuration.evaluation.metrics.values()]
    is_chat = configuration.api.kind in CHAT_KINDS
    columns = [
        (index, leaf)
        for index, case in enumerate(raw)
        for leaf in case.retyped
        if (leaf.path[:1] == ("input",) and is_chat)
        or leaf.path in (("id",), ("group",))
        or (leaf.path[:1] == ("expected",) and any(_compares(metric, leaf) for metric in metrics))
    ]
    warnings = []
    for number, (index, leaf) in enumerate(columns[:MOST_SHOWN], start=1):
        at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in leaf.path)
        rule = (
            f"must be in quotes to stay a string: without them it is read as {as_text(leaf.value)}"
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
    """Return a warning if most inputs contain the expected answer."""
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
        return [report.problem(rule, "Remove it: such cases test nothing.", at=".input")]
    if 2 * n_within > n_expected:
        rule = f"holds the expected answer within its text in {n_within} of {n_expected} cases"
        fix = "Leave it out, unless answers are to be found in the text."
        return [report.problem(rule, fix, at=".input")]
    return []


def _is_any(value: Json, answers: Sequence[str]) -> bool:
    return not isinstance(value, (dict, list)) and as_text(value).strip() in answers


def _holds(text: str, answer: str) -> bool:
    """Return whether a text contains an answer as whole words."""
    if len(answer) < LEAST_CHARACTERS or answer not in text:
        return False
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None


def _texts(value: Json) -> Iterator[str]:
    """Yield the strings of a field; for messages their content."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            content = part.get("content") if isinstance(part, dict) else None
            if isinstance(content, str):
                yield content
