"""How an answer compares with what was expected: pure functions of two JSON values.

Each takes (result, expected) and returns a number. ``CandidateFault`` says that the answer is of
a form that cannot be compared, ``ValueError`` that the expected value is.
"""

import functools
import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from convergence_core.config import MetricConfig
from convergence_core.config.evaluation import SimilarityMethod
from convergence_core.errors import CandidateFault
from convergence_core.records import Json, canonical_json
from tasks.json_values import as_text
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

Comparison: TypeAlias = Callable[[Json, Json], float]

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?")


def comparison(config: MetricConfig, schema: Json = None) -> Comparison:
    """Return the comparison that a metric's configuration describes.

    Args:
        config: a metric of a type that compares.
        schema: the JSON Schema of type ``json_schema``; ``None``: each case's ``expected``.
    """
    makers: dict[str, Callable[[MetricConfig], Comparison]] = {
        "exact_match": exact_match,
        "contains": contains,
        "regex": regex,
        "numeric": numeric,
        "json_schema": lambda _: json_schema(schema),
        "similarity": similarity,
    }
    return makers[config.type](config)


def needs_expected(config: MetricConfig) -> bool:
    """Whether a case must have an ``expected`` for this metric."""
    if config.type == "regex":
        return config.pattern is None
    if config.type == "json_schema":
        return config.json_schema is None
    return config.type in ("exact_match", "contains", "numeric", "similarity")


def check_expected(config: MetricConfig, expected: Json) -> str | None:
    """Return what is wrong with an expected value for this metric, ``None`` if nothing is."""
    try:
        if config.type == "numeric":
            _expected_number(expected)
        elif config.type == "contains":
            _expected_texts(expected)
        elif config.type == "regex" and config.pattern is None:
            _pattern(expected, case_sensitive=config.case_sensitive)
        elif config.type == "json_schema" and config.json_schema is None:
            _validator(canonical_json(expected))
    except ValueError as error:
        return str(error)
    return None


def exact_match(config: MetricConfig) -> Comparison:
    """1 if the two are equal: JSON by value, a number and a text by how they are written."""
    tidy = _tidy(config)

    def compare(result: Json, expected: Json) -> float:
        return float(_equal(result, expected, tidy))

    return compare


def contains(config: MetricConfig) -> Comparison:
    """1 if the result's text holds the expected text, or all of a list of them."""
    tidy = _tidy(config)

    def compare(result: Json, expected: Json) -> float:
        text = tidy(as_text(result))
        return float(all(tidy(part) in text for part in _expected_texts(expected)))

    return compare


def regex(config: MetricConfig) -> Comparison:
    """1 if the pattern, or else the expected text as a pattern, is found in the result's text."""

    def compare(result: Json, expected: Json) -> float:
        source = expected if config.pattern is None else config.pattern
        pattern = _pattern(source, case_sensitive=config.case_sensitive)
        return float(pattern.search(as_text(result)) is not None)

    return compare


def numeric(config: MetricConfig) -> Comparison:
    """1 if the result is a number within the tolerance of the expected one."""
    absolute = config.tolerance or 0.0
    relative = config.relative_tolerance or 0.0

    def compare(result: Json, expected: Json) -> float:
        target = _expected_number(expected)
        number = _number(result)
        if number is None:
            told = one_line(as_text(result), 100, redacted_text)
            raise CandidateFault(f"the answer is not a number: {told!r}", error_type="not_numeric")
        return float(abs(number - target) <= max(absolute, relative * abs(target)))

    return compare


def json_schema(schema: Json) -> Comparison:
    """1 if the result, or the JSON in its text, is valid under the schema.

    A text that is no JSON is not valid. References lead nowhere but into the schema itself.
    """
    fixed = None if schema is None else canonical_json(schema)

    def compare(result: Json, expected: Json) -> float:
        validator = _validator(canonical_json(expected) if fixed is None else fixed)
        if isinstance(result, str):
            try:
                result = json.loads(result)
            except ValueError:
                return 0.0
        return float(validator.is_valid(result))

    return compare


def similarity(config: MetricConfig) -> Comparison:
    """How alike the two texts are, in [0, 1], by a string distance of jellyfish.

    An edit distance d becomes 1 - d / (length of the longer text).
    """
    import jellyfish  # noqa: PLC0415 - only those who measure it pay for it

    tidy = _tidy(config)
    methods: dict[SimilarityMethod, Callable[[str, str], float]] = {
        "levenshtein": _share_kept(jellyfish.levenshtein_distance),
        "damerau_levenshtein": _share_kept(jellyfish.damerau_levenshtein_distance),
        "jaro_winkler": jellyfish.jaro_winkler_similarity,
        "jaccard": _jaccard,
    }
    method = methods[config.method]

    def compare(result: Json, expected: Json) -> float:
        a, b = tidy(as_text(result)), tidy(as_text(expected))
        # Two empty texts are equal, which a distance divided by their length cannot say.
        return 1.0 if a == b else float(method(a, b))

    return compare


def _share_kept(distance: Callable[[str, str], int]) -> Callable[[str, str], float]:
    def share(a: str, b: str) -> float:
        return 1.0 - distance(a, b) / max(len(a), len(b))

    return share


def _jaccard(a: str, b: str) -> float:
    """Return the share of words that both have, of the words that either has."""
    words, others = set(a.split()), set(b.split())
    union = words | others
    # Texts of nothing but white space have no words: as alike as texts can be.
    return len(words & others) / len(union) if union else 1.0


def _tidy(config: MetricConfig) -> Callable[[str], str]:
    def tidy(text: str) -> str:
        text = text.strip() if config.strip else text
        return text if config.case_sensitive else text.casefold()

    return tidy


def _equal(a: Json, b: Json, tidy: Callable[[str], str]) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key], tidy) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y, tidy) for x, y in zip(a, b, strict=True))
    if isinstance(a, str) or isinstance(b, str):
        return tidy(as_text(a)) == tidy(as_text(b))
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def _expected_texts(expected: Json) -> list[str]:
    parts = expected if isinstance(expected, list) else [expected]
    if not parts or not all(isinstance(p, (str, int, float)) and p != "" for p in parts):
        raise ValueError("must be a text, or a list of texts, that is not empty")
    return [as_text(part) for part in parts]


def _expected_number(expected: Json) -> float:
    number = _number(expected)
    if number is None:
        raise ValueError("must be a number")
    return number


def _number(value: Json) -> float | None:
    """Return a number, or a text that is nothing but one, such as ``1,234.5`` or ``$12``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < 1e308 else None
    if not isinstance(value, str):
        return None
    text = value.strip().lstrip("$€£").rstrip("%").strip()
    if not any(c.isdigit() for c in text) or _NUMBER.fullmatch(text) is None:
        return None
    number = float(text.replace(",", ""))
    return number if abs(number) < 1e308 else None


def _pattern(source: Json, *, case_sensitive: bool) -> re.Pattern[str]:
    if not isinstance(source, str):
        raise ValueError("must be a regular expression")
    return _compiled(source, case_sensitive)


@functools.lru_cache(maxsize=1024)
def _compiled(source: str, case_sensitive: bool) -> re.Pattern[str]:
    try:
        return re.compile(source, 0 if case_sensitive else re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from error


@functools.lru_cache(maxsize=1024)
def _validator(schema_json: str) -> Any:
    import jsonschema  # noqa: PLC0415 - only those who measure it pay for it
    from referencing import Registry, Resource  # noqa: PLC0415 - as above
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - as above
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415 - as above

    schema = json.loads(schema_json)
    if not isinstance(schema, dict):
        raise ValueError("must be a JSON Schema: a mapping")
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"must be a valid JSON Schema: {error.message}") from error
    # An empty registry: a reference to elsewhere fails instead of being fetched.
    validator = kind(schema, registry=Registry())
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    try:
        _check_references(resource, Registry().resolver_with_root(resource))
        validator.is_valid(None)
    except Unresolvable as error:
        raise ValueError(f"must hold what its references lead to, but not {error.ref}") from error
    except RecursionError:
        raise ValueError("must not refer to itself without an end") from None
    return validator


def _check_references(resource: Any, resolver: Any) -> None:
    """Look up every reference of a schema.

    Raises:
        Unresolvable: one leads nowhere, or elsewhere.
    """
    schema = resource.contents
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        resolver.lookup(schema["$ref"])
    for part in resource.subresources():
        _check_references(part, resolver.in_subresource(part))


def check_schema(schema: Json) -> str | None:
    """Return what is wrong with a JSON Schema, ``None`` if nothing is."""
    try:
        _validator(canonical_json(schema))
    except ValueError as error:
        return str(error)
    return None
