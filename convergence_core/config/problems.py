"""Pydantic's errors → problems that name key, rule, value and fix."""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from convergence_core.config.secrecy import HIDDEN
from convergence_core.config.shown import shown
from convergence_core.config.source import ConfigSource, Path
from convergence_core.config.tree import fields_of, homes, known_keys, sections_at
from convergence_core.errors import Problem

Origin = Callable[[Path], Path]
"""Maps a path of the normalized data to the path the user wrote."""


def problems_of(
    error: ValidationError, data: Any, source: ConfigSource, origin: Origin
) -> dict[Path, Problem]:
    """Return a problem for each wrong place; alternatives of a union count as one place."""
    found: dict[Path, Problem] = {}
    for item in error.errors(include_url=False, include_context=True):
        path = path_of(item, data)
        if path not in found:
            found[path] = _problem(item, path, data, source, origin)
    return found


def meant_by(error: ValidationError, data: Any) -> list[Path]:
    """Return the paths that misspelt keys most likely mean: nothing is missing there."""
    meant: list[Path] = []
    for item in error.errors(include_url=False):
        if item["type"] == "extra_forbidden":
            path = path_of(item, data)
            guess = nearest(str(path[-1]), known_keys(sections_at(path[:-1], data)))
            here = value_at(data, path[:-1])
            if guess and guess not in here:
                meant.append((*path[:-1], guess))
    return meant


def path_of(item: ErrorDetails, data: Any) -> Path:
    """Return where an error is, without the tags that pydantic adds for unions."""
    loc = item["loc"]
    if loc[:2] == ("search_space", "parameters") and len(loc) > 3:
        loc = (*loc[:3], *loc[4:])
    path: Path = ()
    here = data
    for i, part in enumerate(loc):
        if _has(here, part):
            here = here[part]
        elif item["type"] == "missing" and i == len(loc) - 1:
            return (*path, part)
        else:
            break
        path = (*path, part)
    return path


def _has(container: Any, part: str | int) -> bool:
    if isinstance(container, list):
        return isinstance(part, int) and part < len(container)
    return isinstance(container, dict) and part in container


def value_at(data: Any, path: Path) -> Any:
    """Return the value at a path, ``None`` when there is none."""
    for part in path:
        if not _has(data, part):
            return None
        data = data[part]
    return data


def nearest(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that a misspelt one most likely means."""
    lowered = {name.lower(): name for name in reversed(known)}
    close = difflib.get_close_matches(word.lower()[:100], list(lowered), n=1, cutoff=0.6)
    return lowered[close[0]] if close else None


def listing(words: Sequence[str]) -> str:
    """Return words in backquotes, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)


def _problem(
    item: ErrorDetails, path: Path, data: Any, source: ConfigSource, origin: Origin
) -> Problem:
    kind, written = item["type"], origin(path)
    value = item["input"]
    if kind == "missing":
        return source.problem(written, "is required", _missing_fix(path, data), of_key=True)
    if kind == "extra_forbidden":
        rule, fix = "is not a known key", unknown_key_fix(path, data)
        return source.problem(written, rule, fix, of_key=True)
    if kind.startswith("union_tag"):
        return _tag_problem(path, data, source, origin)
    key = str(path[-1]) if path else ""
    if key.endswith("_env"):
        rule = "must be the name of an environment variable"
        return source.problem(written, rule, env_fix(), value=HIDDEN)
    if path == ("storage", "journal"):
        rule = "must be `${…}` with the name of an environment variable"
        return source.problem(written, rule, _JOURNAL_FIX, value=HIDDEN)
    rule, fix = _rule(item, path, data)
    return source.problem(written, rule, fix, value=shown(value, key))


def _tag_problem(path: Path, data: Any, source: ConfigSource, origin: Origin) -> Problem:
    known = ["float", "int", "categorical", "boolean", "text"]
    here = value_at(data, path)
    written = origin((*path, "type"))
    kind = here.get("type") if isinstance(here, dict) else None
    if kind is None:
        fix = f"Add `type:` with one of {listing(known)}."
        return source.problem(written, "is required", fix, of_key=True)
    guess = nearest(str(kind), known)
    fix = f"Did you mean `{guess}`?" if guess else f"Write one of {listing(known)}."
    return source.problem(
        written, f"must be one of {listing(known)}", fix, value=shown(kind, "type")
    )


def env_fix() -> str:
    """Return what to write where the name of an environment variable belongs."""
    return (
        "Put the secret into an environment variable and write the variable's name here, "
        "e.g. `OPENAI_API_KEY`, without `$`."
    )


_JOURNAL_FIX = (
    "Put the `postgresql://…` URL into an environment variable and write e.g. `${JOURNAL_URL}`."
)


def unknown_key_fix(path: Path, data: Any) -> str:
    """Return the nearest known key, where the key belongs, and all known keys."""
    key = str(path[-1])
    known = known_keys(sections_at(path[:-1], data))
    guess = nearest(key, known)
    places = [place for place in homes().get(key, ()) if place]
    if path[:2] == ("api", "auth") and guess is None:
        hint = "Secrets are named by environment variable: see `token_env`, `password_env`. "
    elif guess:
        hint = f"Did you mean `{guess}`? "
    elif places:
        hint = f"It belongs into `{places[0]}`. "
    else:
        hint = "Remove it. "
    return f"{hint}Known keys here: {listing(known)}."


def _missing_fix(path: Path, data: Any) -> str:
    example = _EXAMPLES.get(str(path[-1]))
    if example:
        return example
    models = sections_at(path[:-1], data)
    infos = [fields_of(model).get(str(path[-1])) for model in models]
    about = next((info.description for info in infos if info and info.description), None)
    what = " ".join(about.split()).partition(". ")[0].rstrip(".:") if about else ""
    return f"Add `{path[-1]}:`" + (f" ({what})." if what else ".")


_EXAMPLES = {
    "api": "Add `api:` with a `name` and an `endpoint` or a `function`.",
    "name": "Add `name:`, e.g. `name: support_bot`.",
    "search_space": "Add `search_space:` with `parameters`.",
    "parameters": "Add `parameters:`, e.g. `temperature: {type: float, min: 0, max: 1}`.",
    "evaluation": "Add `evaluation:` with `test_cases` and `metrics`.",
    "test_cases": "Add `test_cases:`, e.g. `{path: test_cases.json}`.",
    "metrics": "Add `metrics:`, e.g. `{exact_match: {weight: 1}}`.",
    "min": "Add `min:`, the smallest value.",
    "max": "Add `max:`, the largest value.",
    "model": "Add `model:`, e.g. `openai/gpt-4o-mini`.",
    "choices": "Add `choices:`, e.g. `[small, large]`.",
    "variants": "Add `variants:`, e.g. `[prompts/a.md, prompts/b.md]`.",
    "type": (
        "Add `type:` with one of `exact_match`, `contains`, `regex`, `numeric`, `json_schema`, "
        "`similarity`, `latency_ms`, `cost_usd`, `first_token_ms`, `success_rate`, `function`, "
        "`llm_judge`."
    ),
}

_TYPES: dict[str, tuple[str, str]] = {
    "string_type": ("must be a text", 'Put it in quotes, e.g. "{value}".'),
    "list_type": ("must be a list", "Write a list: `[…]`, or one `- item` per line."),
    "dict_type": ("must be a mapping", "Write `key: value` pairs, indented below."),
    "model_type": ("must be a mapping", "Write `key: value` pairs, indented below."),
    "model_attributes_type": ("must be a mapping", "Write `key: value` pairs, indented below."),
    "too_short": ("must not be empty", "Add at least one entry."),
    "string_too_short": ("must not be empty", "Write a text, or remove the key."),
    "finite_number": ("must be a finite number", "Write a number."),
    "string_unicode": ("must be made of characters", "Remove the half of a pair of codes."),
}

_PATTERNS = {
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


def _rule(item: ErrorDetails, path: Path, data: Any) -> tuple[str, str]:
    kind, value = item["type"], item["input"]
    special = _special_rule(path, data)
    if special is not None:
        return special
    if kind in _TYPES:
        rule, fix = _TYPES[kind]
        is_scalar = isinstance(value, bool | int | float)
        return rule, fix.replace("{value}", shown(value) if is_scalar else "text")
    if kind in {"int_type", "int_from_float", "float_type", "bool_type", "int_parsing_size"}:
        return _number_rule(kind, value)
    if kind == "literal_error":
        return _literal_rule(path, data, value)
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(path[-1]), ("has a form that is not allowed", "Rename it."))
    return _bound_rule(kind, item.get("ctx", {}))


def _special_rule(path: Path, data: Any) -> tuple[str, str] | None:
    """Return rule and fix of a place that takes several types; ``None`` for all others."""
    if _is_choice(path, data):
        return "must be a text, a number or a boolean", "Write one value, e.g. `small` or `0.5`."
    if path[:2] == ("search_space", "parameters") and len(path) == 3:
        return (
            "must be a mapping or a list of choices",
            "Write e.g. `{type: float, min: 0, max: 1}`.",
        )
    tails = [path] if path[:1] == ("cache",) else [path[-2:], path[-1:]]
    return next((_SPECIAL[tail] for tail in tails if tail in _SPECIAL), None)


_EPOCH = (
    "must be `run`, `off`, `forever` or a duration",
    "Write e.g. `7d`, `12h` or `30m`: a number and s, m, h, d or w.",
)
_SPECIAL: dict[Path, tuple[str, str]] = {
    ("cache",): _EPOCH,
    ("cache", "epoch"): _EPOCH,
    ("schema",): (
        "must be a JSON Schema or the path of one",
        "Write e.g. `schema: answer.json`.",
    ),
    ("champion",): (
        "must be `default` or a mapping of parameters to values",
        "Write `default`, or e.g. `{temperature: 0.2, model: small}`.",
    ),
    ("custom_evaluator", "function"): (
        "must be the name of a function in `module`",
        "Write e.g. `score_answer`.",
    ),
}


def _is_choice(path: Path, data: Any) -> bool:
    if path[:2] != ("search_space", "parameters") or len(path) < 4:
        return False
    parameter = value_at(data, path[:3])
    kind = parameter.get("type") if isinstance(parameter, dict) else None
    if path[3] == "default":
        return kind == "categorical"
    return path[3] in {"choices", "when"} and len(path) > 4


def _bound_rule(kind: str, context: dict[str, Any]) -> tuple[str, str]:
    words = {
        "greater_than": ("gt", "must be above {}", "Write a larger number."),
        "greater_than_equal": ("ge", "must be at least {}", "Write {} or more."),
        "less_than": ("lt", "must be below {}", "Write a smaller number."),
        "less_than_equal": ("le", "must be at most {}", "Write {} or less."),
        "too_long": ("max_length", "must have at most {} entries", "Shorten the list."),
    }
    if kind in words:
        name, rule, fix = words[kind]
        bound = shown(context.get(name))
        return rule.format(bound), fix.format(bound)
    return "has a value that is not allowed", "Correct it; `convergence schema` has the rules."


def _number_rule(kind: str, value: Any) -> tuple[str, str]:
    if kind == "bool_type":
        word = str(value).strip().lower()
        meant = "true" if word in {"yes", "on", "true", "1", "y"} else "false"
        return "must be true or false", f"Write `{meant}`, without quotes."
    rule = "must be a number" if kind == "float_type" else "must be a whole number"
    if isinstance(value, str):
        plain = value.strip().replace("_", "")
        if _is_number(plain):
            return rule, f"Write {plain}, without quotes or underscores."
        amount = _CURRENCY.sub("", plain)
        sign = " currency," if amount != plain else ""
        amount = amount.replace(",", "").strip()
        if _is_number(amount):
            return rule, f"Write {amount}, without{sign} commas or quotes."
    if isinstance(value, float):
        return rule, f"Write {value:.0f}." if abs(value) < 1e15 else "Write a smaller number."
    if isinstance(value, int) and not isinstance(value, bool):
        return "must be a number of moderate size", "Write a smaller number."
    return rule, "Write digits, e.g. 1."


_CURRENCY = re.compile(r"^(?:US)?\$|^USD\b|\$$|\bUSD$", re.IGNORECASE)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return len(text) <= 40


def _literal_rule(path: Path, data: Any, value: Any) -> tuple[str, str]:
    in_list = isinstance(path[-1], int)
    name = path[-2] if in_list else path[-1]
    owners = sections_at(path[:-2] if in_list else path[:-1], data)
    infos = [fields_of(model)[str(name)] for model in owners if name in fields_of(model)]
    choices = [choice for info in infos for choice in _literals(info.annotation)]
    words = [shown(choice).strip('"') for choice in dict.fromkeys(choices)]
    guess = nearest(value, words) if isinstance(value, str) else None
    rule = f"must be {'one of ' if len(words) > 1 else ''}{listing(words)}"
    if guess:
        return rule, f"Did you mean `{guess}`?"
    return rule, f"Write {'one of them' if len(words) > 1 else listing(words)}, or remove the key."


def _literals(annotation: Any) -> list[Any]:
    args = get_args(annotation)
    if get_origin(annotation) is not None and args and not isinstance(args[0], type):
        plain = [item for item in args if isinstance(item, str | bool)]
        if plain:
            return plain
    return [found for item in args for found in _literals(item)]
