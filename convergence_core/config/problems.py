"""Problems of a configuration: pydantic's errors in words, and violated rules.

Each names key, rule, value and fix.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from convergence_core.config.schema import (
    fields_of,
    has_part,
    homes,
    kinds_of,
    known_keys,
    sections_at,
    value_at,
)
from convergence_core.config.secrecy import HIDDEN, shown
from convergence_core.config.source import ConfigSource, Path
from convergence_core.errors import Problem

Place: TypeAlias = str | Path
"""Path, or keys joined by dots if none of them is a user-defined name."""


@dataclass(slots=True)
class Report:
    """Data in the models' form, with the spelling and problems of each part."""

    source: ConfigSource
    data: dict[str, Any]
    renamed: dict[Path, Path] = field(default_factory=dict)
    """New path → path as written."""
    problems: list[Problem] = field(default_factory=list)

    def origin(self, path: Path) -> Path:
        """Return the path as written for a path of the normalized data."""
        for end in range(len(path), 0, -1):
            written = self.renamed.get(path[:end])
            if written is not None:
                return (*written, *path[end:]) if len(written) >= end else written
        return path

    def rename(self, holder: dict[str, Any], path: Path, old: str, new: str) -> None:
        """Rename a key to its current name; both spellings together are a problem."""
        if old not in holder:
            return
        if new in holder:
            rule = f"cannot be combined with `{new}`, which means the same"
            self.refuse(holder, (*path, old), rule, "Remove one of them.")
            return
        holder[new] = holder.pop(old)
        self.renamed[(*path, new)] = self.origin((*path, old))

    def refuse(self, holder: dict[str, Any], path: Path, rule: str, fix: str) -> None:
        """Record a problem with a key and remove the key."""
        key = str(path[-1])
        self.add(path, rule, fix, value=shown(holder.pop(key), key))

    def add(
        self,
        place: Place,
        rule: str,
        fix: str,
        *,
        value: str = "",
        of_key: bool = False,
    ) -> None:
        """Record a violated rule.

        Args:
            place: Place in the models' form.
            rule: Violated rule.
            fix: Suggested correction.
            value: Offending value, safe to display.
            of_key: Whether the problem is the key rather than the value.
        """
        path: Path = tuple(place.split(".")) if isinstance(place, str) else place
        written = self.origin(path)
        problem = self.source.problem(written, rule, fix, value=value, of_key=of_key)
        self.problems.append(problem)

    def require(self, place: Place, why: str, fix: str) -> None:
        """Record a missing key."""
        self.add(place, f"is required {why}", fix, of_key=True)

    def no_effect(self, place: Place, why: str, fix: str) -> None:
        """Record a key without effect."""
        self.add(place, f"has no effect {why}", fix, of_key=True)


# -- pydantic's errors

_Words: TypeAlias = tuple[str, str]
"""Rule and fix."""


def problems_of(error: ValidationError, report: Report) -> list[Problem]:
    """Return a problem for each invalid place; alternatives of a union count as one place."""
    data = report.data
    places: dict[Path, ErrorDetails] = {}
    meant: set[Path] = set()
    for item in error.errors(include_url=False, include_context=True):
        path = path_of(item, data)
        places.setdefault(path, item)
        if item["type"] == "extra_forbidden":
            *above, key = path
            guess = nearest(str(key), known_keys(sections_at(tuple(above), data)))
            if guess and guess not in value_at(data, tuple(above)):
                meant.add((*above, guess))  # misspelt, not missing
    return [_problem(item, path, report) for path, item in places.items() if path not in meant]


UNIONS = (("search_space", "parameters"), ("evaluation", "metrics"))
"""Mappings with entries whose keys depend on `type`."""


def path_of(item: ErrorDetails, data: Any) -> Path:
    """Return the path of an error, without pydantic's tags for unions."""
    loc = item["loc"]
    if loc[:2] in UNIONS and len(loc) > 3:
        loc = (*loc[:3], *loc[4:])
    value = data
    for i, part in enumerate(loc):
        if not has_part(value, part):
            is_missing = item["type"] == "missing" and i == len(loc) - 1
            return loc[: i + is_missing]
        value = value[part]
    return loc


def nearest(word: str, known: Sequence[str]) -> str | None:
    """Return the known word closest to a misspelt one, or ``None``."""
    lowered = {name.lower(): name for name in reversed(known)}
    close = difflib.get_close_matches(word.lower()[:100], list(lowered), n=1, cutoff=0.6)
    return lowered[close[0]] if close else None


def guessed(word: str, known: Sequence[str], fix: str) -> str:
    """Return a fix, preceded by the closest known word, if any."""
    guess = nearest(word, known)
    return f"Did you mean `{guess}`? {fix}" if guess else fix


def listing(words: Sequence[str]) -> str:
    """Return words in backquotes, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)


def _problem(item: ErrorDetails, path: Path, report: Report) -> Problem:
    data, source = report.data, report.source
    kind, written = item["type"], report.origin(path)
    if kind == "missing":
        return source.problem(written, "is required", _missing_fix(path, data), of_key=True)
    if kind == "extra_forbidden":
        rule, fix = _extra_rule(path, data)
        return source.problem(written, rule, fix, of_key=True)
    if kind.startswith("union_tag"):
        return _tag_problem(path, report)
    key = str(path[-1]) if path else ""
    if key.endswith("_env"):
        rule = "must be the name of an environment variable"
        return source.problem(written, rule, ENV_FIX, value=HIDDEN)
    if path == ("storage", "journal"):
        rule = "must be `${…}` with the name of an environment variable"
        return source.problem(written, rule, _JOURNAL_FIX, value=HIDDEN)
    rule, fix = _special_rule(path, data) or _rule(item, path, data)
    return source.problem(written, rule, fix, value=shown(item["input"], key))


def _tag_problem(path: Path, report: Report) -> Problem:
    names = [str(name) for model in sections_at(path, None) for name in kinds_of(model)]
    known = listing(names)
    value, written = value_at(report.data, path), report.origin((*path, "type"))
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is None:
        fix = f"Add `type:` with one of {known}."
        return report.source.problem(written, "is required", fix, of_key=True)
    guess = nearest(str(kind), names)
    fix = f"Did you mean `{guess}`?" if guess else f"Write one of {known}."
    return report.source.problem(
        written, f"must be one of {known}", fix, value=shown(kind, "type")
    )


ENV_FIX = (
    "Put the secret into an environment variable and write the variable's name here, "
    "e.g. `OPENAI_API_KEY`, without `$`."
)
"""Fix for a value in place of an environment variable's name."""
_JOURNAL_FIX = (
    "Put the `postgresql://…` URL into an environment variable and write e.g. `${JOURNAL_URL}`."
)


def _extra_rule(path: Path, data: Any) -> _Words:
    """Return rule and fix for an unknown key, or for one that another type reads."""
    key = str(path[-1])
    options = sections_at(path[:-1], None)
    holders = [model for model in options if key in fields_of(model)]
    if holders:
        readers = listing([str(kind) for model in holders for kind in kinds_of(model)])
        kind = shown(value_at(data, (*path[:-1], "type"))).strip('"')
        return f"has no effect with type `{kind}`", f"Remove it; it is read for {readers}."
    known = known_keys(sections_at(path[:-1], data))
    guess = nearest(key, known) or nearest(key, known_keys(options))
    sections = [section for section in homes().get(key, ()) if section]
    if path[:2] == ("api", "auth") and guess is None:
        hint = "Secrets are named by environment variable: see `token_env`, `password_env`."
    elif guess:
        hint = f"Did you mean `{guess}`?"
    else:
        hint = f"It belongs in `{sections[0]}`." if sections else "Remove it."
    return "is not a known key", f"{hint} Known keys here: {listing(known)}."


def _missing_fix(path: Path, data: Any) -> str:
    key = str(path[-1])
    if key in _EXAMPLES:
        return f"Add `{key}:`{_EXAMPLES[key]}"
    infos = [fields_of(model).get(key) for model in sections_at(path[:-1], data)]
    about = next((info.description for info in infos if info and info.description), None)
    meaning = " ".join(about.split()).partition(". ")[0].rstrip(".:") if about else ""
    return f"Add `{key}:`" + (f" ({meaning})." if meaning else ".")


_EXAMPLES = {
    "api": " with a `name` and an `endpoint` or a `function`.",
    "name": ", e.g. `name: support_bot`.",
    "search_space": " with `parameters`.",
    "parameters": ", e.g. `temperature: {type: float, min: 0, max: 1}`.",
    "evaluation": " with `test_cases` and `metrics`.",
    "test_cases": ", e.g. `{path: test_cases.json}`.",
    "inline": ", e.g. `- {input: …, expected: …}`.",
    "metrics": ", e.g. `{exact_match: {weight: 1}}`.",
    "min": ", the smallest value.",
    "max": ", the largest value.",
    "model": ", e.g. `openai/gpt-4o-mini`.",
    "choices": ", e.g. `[small, large]`.",
    "variants": ", e.g. `[prompts/a.md, prompts/b.md]`.",
}
"""Key → continuation of "Add `key:`" if it is missing, and of "Add at least one entry"."""

_MAPPING: _Words = ("must be a mapping", "Write `key: value` pairs, indented below.")
_TYPES: dict[str, _Words] = {
    "string_type": ("must be a string", 'Put it in quotes, e.g. "{value}".'),
    "list_type": ("must be a list", "Write a list: `[…]`, or one `- item` per line."),
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "too_short": ("must not be empty", "Add at least one entry"),
    "string_too_short": ("must not be empty", "Write a string, or remove the key."),
    "string_unicode": ("must be valid Unicode text", "Remove the unpaired surrogate."),
}
_PATTERNS: dict[str, _Words] = {
    "api_version": (
        "must be a date as `YYYY-MM-DD` or `YYYY-MM-DD-preview`",
        "Write e.g. `2024-10-21`.",
    ),
    "deployment": (
        "must be the name of a deployment: letters, digits, `.`, `-` and `_`",
        "Write the name alone, not a URL.",
    ),
    "name": (
        "must be 1 to 64 letters, digits, `.`, `-` or `_`, not beginning with `.` or `-`",
        "Rename it, e.g. `support_bot`.",
    ),
    "header_name": ("must be the name of an HTTP header", "Write e.g. `x-api-key`."),
    "function": (
        "must name a Python function as `module:name` or `path/to/file.py:name`",
        "Write e.g. `my_module:answer`.",
    ),
}
_EPOCH: _Words = (
    "must be `run`, `off`, `forever` or a duration",
    "Write e.g. `7d`, `12h` or `30m`: a number and s, m, h, d or w.",
)
_SPECIAL: dict[Path, _Words] = {
    ("cache",): _EPOCH,
    ("cache", "epoch"): _EPOCH,
    ("schema",): ("must be a JSON Schema or the path of one", "Write e.g. `schema: answer.json`."),
    ("champion",): (
        "must be `default` or a mapping of parameters to values",
        "Write `default`, or e.g. `{temperature: 0.2, model: small}`.",
    ),
}
"""End of a path with several valid types → rule and fix."""
_BOUNDS: dict[str, tuple[str, str, str]] = {
    "greater_than": ("gt", "must be above {}", "Write a larger number."),
    "greater_than_equal": ("ge", "must be at least {}", "Write {} or more."),
    "less_than": ("lt", "must be below {}", "Write a smaller number."),
    "less_than_equal": ("le", "must be at most {}", "Write {} or less."),
    "too_long": ("max_length", "must have at most {} entries", "Shorten the list."),
}


def _rule(item: ErrorDetails, path: Path, data: Any) -> _Words:
    kind, value = item["type"], item["input"]
    if kind in _TYPES:
        rule, fix = _TYPES[kind]
        is_scalar = isinstance(value, bool | int | float)
        example = _EXAMPLES.get(str(path[-1]), ".") if kind == "too_short" else ""
        return rule, fix.replace("{value}", shown(value) if is_scalar else "text") + example
    if kind in {"int_type", "int_from_float", "float_type", "bool_type", "int_parsing_size"}:
        return _number_rule(kind, value)
    if kind == "literal_error":
        return _literal_rule(path, data, value)
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(path[-1]), ("has a form that is not allowed", "Rename it."))
    if kind in _BOUNDS:
        name, rule, fix = _BOUNDS[kind]
        bound = shown(item.get("ctx", {}).get(name))
        return rule.format(bound), fix.format(bound)
    return "has a value that is not allowed", "Correct it; `convergence schema` has the rules."


def _special_rule(path: Path, data: Any) -> _Words | None:
    """Return rule and fix of a place with several valid types; ``None`` for others."""
    if path[:2] == ("search_space", "parameters"):
        if _is_choice(path, data):
            fix = "Write one value, e.g. `small` or `0.5`."
            return "must be a string, a number or a boolean", fix
        if len(path) == 3:
            fix = "Write e.g. `{type: float, min: 0, max: 1}`."
            return "must be a mapping or a list of choices", fix
    tails = [path] if path[:1] == ("cache",) else [path[-2:], path[-1:]]
    return next((_SPECIAL[tail] for tail in tails if tail in _SPECIAL), None)


def _is_choice(path: Path, data: Any) -> bool:
    if path[3:4] == ("default",):
        return bool(value_at(data, (*path[:3], "type")) == "categorical")
    return len(path) > 4 and path[3] in {"choices", "when"}


def _number_rule(kind: str, value: Any) -> _Words:
    if kind == "bool_type":
        word = str(value).strip().lower()
        meant = "true" if word in {"yes", "on", "true", "1", "y"} else "false"
        return "must be true or false", f"Write `{meant}`, without quotes."
    rule = "must be a number" if kind == "float_type" else "must be a whole number"
    if isinstance(value, str):
        plain = _NOT_OF_NUMBERS.sub("", value)
        if _is_number(plain):
            return rule, f"Write {plain}, without quotes and other signs."
    if isinstance(value, float):
        return rule, f"Write {value:.0f}." if abs(value) < 1e15 else "Write a smaller number."
    if isinstance(value, int) and not isinstance(value, bool):
        return "must be a number of moderate size", "Write a smaller number."
    return rule, "Write digits, e.g. 1."


_NOT_OF_NUMBERS = re.compile(
    r"^\s*(?:US\$|USD|\$)?\s*|\s*(?:\$|USD)?\s*$|(?<=\d)[,_\s](?=\d{3}(?!\d))|(?<=\d)_(?=\d)",
    re.IGNORECASE,
)
"""Text around amounts, and separators between their groups of digits."""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and len(text) <= 40
    except ValueError:
        return False


def _literal_rule(path: Path, data: Any, value: Any) -> _Words:
    *above, name = path[:-1] if isinstance(path[-1], int) else path
    infos = [fields_of(model).get(str(name)) for model in sections_at(tuple(above), data)]
    choices = [choice for info in infos if info for choice in _literals(info.annotation)]
    words = [shown(choice).strip('"') for choice in dict.fromkeys(choices)]
    guess = nearest(value, words) if isinstance(value, str) else None
    known = listing(words)
    one_of, them = ("one of ", "one of them") if len(words) > 1 else ("", known)
    fix = f"Did you mean `{guess}`?" if guess else f"Write {them}, or remove the key."
    return f"must be {one_of}{known}", fix


def _literals(annotation: Any) -> list[Any]:
    args = get_args(annotation)
    if get_origin(annotation) is not None and args and not isinstance(args[0], type):
        plain = [item for item in args if isinstance(item, str | bool)]
        if plain:
            return plain
    return [literal for item in args for literal in _literals(item)]
