"""Comparisons of an answer with the expected one: functions of two JSON values.

Each takes (result, expected) and returns a number. ``CandidateFault`` means that the answer cannot
be compared, ``ValueError`` that the expected value cannot.
"""

import json
import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias, TypeGuard

from pydantic import TypeAdapter, ValidationError

from convergence_core.config.evaluation import (
    BaseMetric,
    CasedMetric,
    ExpectingMetric,
    JsonSchemaMetric,
    MetricConfig,
    NumericMetric,
    RegexMetric,
    RougeMetric,
    SimilarityMetric,
    TextMetric,
)
from convergence_core.errors import CandidateFault
from convergence_core.records import Json, canonical_json
from tasks.json_values import Missing, answer_text, answers_of, as_text, field_of, json_in, names
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

Comparison: TypeAlias = Callable[[Json, Json], float]

LIKENESSES: Final = ("similarity", "bleu", "rouge")
"""Types that measure how similar an answer is, not whether it is correct."""
MOST_CELLS: Final = 4_000_000
"""Maximum cells of rouge-score's longest-common-subsequence table: about a second and 80 MB."""
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
"""Escaped character in a JSON text."""
_NUMBER = re.compile(
    r"(?:([-+]?)[$€£]?|[$€£]\s*([-+]))\s*((?=\.?\d)(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*[$€£%]?"
)
"""Sign, currency, number, and currency or per cent."""
_PLAIN: Final = {
    **{
        ord(c): " "
        for c in "\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
    },
    ord("\u2018"): "'",
    ord("\u2019"): "'",
}
"""Spaces and apostrophes, normalized in compared texts; patterns keep their forms."""
_THOUSANDS: Final = re.compile(r"(?<=\d)[\u00a0\u202f\u2009'\u2019](?=\d{3}(?!\d))")
"""Thousands separator other than a comma."""


def comparison(config: ExpectingMetric, schema: Json = None) -> Comparison:
    """Return the comparison of a metric's configuration.

    It compares only the text of an answer with tool calls, unless mappings or a schema are
    expected.

    Args:
        config: Configuration of a comparing metric.
        schema: JSON Schema of type ``json_schema``; ``None`` means each case's ``expected``.

    Raises:
        ImportError: the library of type ``bleu`` or ``rouge`` is not installed.
    """
    if isinstance(config, JsonSchemaMetric):
        return partial(_fits_schema, None if schema is None else canonical_json(schema))
    if isinstance(config, RougeMetric):
        from rouge_score.rouge_scorer import RougeScorer  # noqa: PLC0415 - of an extra

        return partial(_rouge, config, RougeScorer([config.method], tokenizer=_Words()))
    if isinstance(config, TextMetric) and config.type == "bleu":
        from sacrebleu.metrics import BLEU  # noqa: PLC0415 - of an extra

        return partial(_bleu, config, BLEU(effective_order=True))  # as sacrebleu scores sentences
    comparisons: dict[str, Callable[[Any, Json, Json], float]] = {
        "checks": _checks,
        "exact_match": _exact_match,
        "contains": _contains,
        "regex": _regex,
        "numeric": _numeric,
        "similarity": _similarity,
    }
    return partial(comparisons[config.type], config)


def expected_part(expected: Json, path: str | None) -> Json:
    """Return the expected value that a metric reads; ``None`` if the case lacks it."""
    part = expected if path is None else field_of(expected, path)
    return None if isinstance(part, Missing) else part


def needs_expected(config: BaseMetric) -> TypeGuard[ExpectingMetric]:
    """Return whether this metric requires ``expected`` in each case."""
    if isinstance(config, RegexMetric):
        return config.pattern is None
    if isinstance(config, JsonSchemaMetric):
        return config.json_schema is None
    return config.type in ("checks", "exact_match", "contains", "numeric", *LIKENESSES)


def check_expected(config: ExpectingMetric, expected: Json) -> str | None:
    """Return the rule that an expected value breaks; ``None`` if it is valid."""
    try:
        if config.type == "numeric":
            _expected_numbers(expected)
        elif config.type == "contains":
            _expected_texts(expected)
        elif config.type == "checks":
            _read_checks(expected)
        elif config.type in LIKENESSES and None in answers_of(expected):
            return "must be a text, or a list of texts"
        elif isinstance(config, RegexMetric) and config.pattern is None:
            for source in answers_of(expected):
                _pattern(source, case_sensitive=config.case_sensitive)
        elif isinstance(config, JsonSchemaMetric) and config.json_schema is None:
            _validator(canonical_json(expected))
    except ValueError as error:
        return str(error)
    return None


_CHECK_OPTIONS: Final = (
    *("type", "weight", "case_sensitive", "tolerance", "relative_tolerance", "method"),
)
"""Keys that a case's check may share with a metric, besides ``expected``, ``not`` and
``threshold``.
"""
_CHECKED: Final = (
    *("exact_match", "contains", "regex", "numeric", "json_schema", "similarity", "checks"),
)
_METRIC: Final = TypeAdapter[MetricConfig](MetricConfig)


_NO_CHECK: Final = "must hold at least one check"


@dataclass(frozen=True, slots=True)
class _Check:
    """Comparison that one case defines."""

    compare: Comparison
    expected: Json
    weight: float
    is_negated: bool
    threshold: float | None
    """Value at or above which the check passes; ``None`` uses the value itself."""

    def value(self, result: Json) -> float:
        try:
            value = self.compare(result, self.expected)
        except CandidateFault:
            value = 0.0
        if self.threshold is not None:
            value = float(value >= self.threshold)
        return 1.0 - value if self.is_negated else value


def _checks(config: BaseMetric, result: Json, expected: Json) -> float:  # noqa: ARG001
    """Return the weighted share of a case's own checks that the result passes."""
    checks = _read_checks(expected)
    if not checks:
        raise ValueError(_NO_CHECK)
    total = sum(check.weight for check in checks)
    return sum(check.weight * check.value(result) for check in checks) / total


def _read_checks(expected: Json) -> list[_Check]:
    if not isinstance(expected, list):
        raise ValueError("must be a list of checks, e.g. `[{type: contains, expected: Paris}]`")
    checks = [_check(check) for check in expected]
    if checks and not any(check.weight for check in checks):
        raise ValueError("must hold a check whose `weight` is above 0")
    return checks


def _check(check: Json) -> _Check:
    known = (*_CHECK_OPTIONS, "expected", "not", "threshold")
    if not isinstance(check, dict) or "expected" not in check or not check.keys() <= {*known}:
        raise ValueError(f"must hold checks: mappings with `expected`, of the keys {names(known)}")
    options = {key: value for key, value in check.items() if key in _CHECK_OPTIONS}
    try:
        config = _METRIC.validate_python({"direction": "higher", **options})
    except ValidationError as error:
        key = ([*error.errors()[0]["loc"]] or ["type"])[-1]
        raise ValueError(f"must hold checks whose `{key}` is one of a metric") from None
    threshold, is_negated = check.get("threshold"), check.get("not", False)
    if (
        not isinstance(config, ExpectingMetric)
        or config.type not in _CHECKED
        or not isinstance(is_negated, bool)
    ):
        raise ValueError(
            f"must hold checks of the types {names(_CHECKED)}; `not` is true or false"
        )
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | None):
        raise ValueError("must hold checks whose `threshold` is a number")
    is_empty = config.type == "checks" and check["expected"] == []
    if (wrong := _NO_CHECK if is_empty else check_expected(config, check["expected"])) is not None:
        raise ValueError(f"{wrong} (check of type `{config.type}`)")
    return _Check(comparison(config), check["expected"], config.weight, is_negated, threshold)


def _exact_match(config: TextMetric, result: Json, expected: Json) -> float:
    """Return 1 if the result equals the expected value, or any of a list of them."""
    result, right = _stated(result, expected), [expected, *answers_of(expected)]
    return float(any(equal(result, answer, config) for answer in right))


def _contains(config: TextMetric, result: Json, expected: Json) -> float:
    """Return 1 if the result's text contains the expected string, or all of a list of them."""
    texts = [_tidy(config, text) for text in _texts(result, expected)]
    parts = [_tidy(config, part) for part in _expected_texts(expected)]
    return float(bool(texts) and all(any(part in text for text in texts) for part in parts))


def _regex(config: RegexMetric, result: Json, expected: Json) -> float:
    """Return 1 if the result's text matches the pattern, or else an expected string's."""
    sources: list[Json] = [config.pattern] if config.pattern else answers_of(expected)
    texts = {form for text in _texts(result, sources) for form in (text, _normal(text))}
    patterns = [
        _pattern(form, case_sensitive=config.case_sensitive)
        for source in sources
        for form in ([source, _normal(source)] if isinstance(source, str) else [source])
    ]
    return float(any(p.search(text) is not None for p in patterns for text in texts))


def _texts(result: Json, expected: Json) -> list[str]:
    """Return a result's text; a mapping or list as JSON, with and without escapes."""
    if (result := _stated(result, expected)) is None:
        return []
    text = as_text(result)
    if isinstance(result, str):
        return [text]
    return [text, _ESCAPE.sub(lambda found: str(json.loads(f'"{found[0]}"')), text)]


def _numeric(config: NumericMetric, result: Json, expected: Json) -> float:
    """Return 1 if the result is within the tolerance of the expected number, or any of a list."""
    targets = _expected_numbers(expected)
    number = _number(_stated(result, expected))
    if number is None:
        written = one_line(as_text(result), 100, redacted_text)
        raise CandidateFault(f"the answer is not a number: {written!r}", error_type="not_numeric")
    least, share = (Decimal(str(x or 0)) for x in (config.tolerance, config.relative_tolerance))
    return float(any(abs(number - n) <= max(least, share * abs(n)) for n in targets))


def _fits_schema(schema_json: str | None, result: Json, expected: Json) -> float:
    """Return 1 if the result, or the JSON in its text, is valid under the schema.

    A text that is not JSON is invalid. References resolve only within the schema itself.
    """
    validator = _validator(canonical_json(expected) if schema_json is None else schema_json)
    found = json_in(result) if isinstance(result, str) else result
    return 0.0 if isinstance(found, Missing) else float(validator.is_valid(found))


def _similarity(config: SimilarityMetric, result: Json, expected: Json) -> float:
    """Return the similarity of two texts in [0, 1], the maximum over a list of expected ones."""
    if (result := _stated(result, expected)) is None:
        return 0.0
    return max(_alike(config, result, answer) for answer in _answers(result, expected))


def _stated(result: Json, expected: Json) -> Json:
    """Return the value to compare; a mapping becomes its result or text unless one is expected."""
    if not isinstance(result, dict):
        return result
    others = expected if isinstance(expected, list) else [expected]
    is_one = any(isinstance(_as_json(other, result), dict) for other in others)
    return result if is_one else result.get("result", answer_text(result))


def _answers(result: Json, expected: Json) -> list[Json]:
    """Return the accepted answers, and a list itself if the result is one."""
    is_list = isinstance(expected, list) and isinstance(_as_json(result, []), list)
    return [*([expected] if is_list else ()), *answers_of(expected)]


def _alike(config: SimilarityMetric, result: Json, expected: Json) -> float:
    """Return the similarity of two texts by a string distance of jellyfish.

    An edit distance d becomes 1 - d / (length of the longer text).
    """
    import jellyfish  # noqa: PLC0415 - only this metric needs it

    result, expected = _as_json(result, expected), _as_json(expected, result)
    a, b = _tidy(config, result), _tidy(config, expected)
    if a == b:  # also two empty texts, whose distance has no length to divide by
        return 1.0
    longest = max(len(a), len(b))
    match config.method:
        case "levenshtein":
            return 1.0 - jellyfish.levenshtein_distance(a, b) / longest
        case "damerau_levenshtein":
            return 1.0 - jellyfish.damerau_levenshtein_distance(a, b) / longest
        case "jaro_winkler":
            return float(jellyfish.jaro_winkler_similarity(a, b))
        case "jaccard":
            return _jaccard(a, b)


def _as_json(value: Json, other: Json) -> Json:
    """Return the JSON in a text if the other value is a mapping or list, else the text."""
    if isinstance(value, str) and isinstance(other, dict | list):
        parsed = json_in(value)
        return parsed if isinstance(parsed, dict | list) else value
    return value


def _jaccard(a: str, b: str) -> float:
    """Return the Jaccard index of two texts' words."""
    words, others = set(a.split()), set(b.split())
    union = words | others
    # Blank texts have no words, and are identical.
    return len(words & others) / len(union) if union else 1.0


def _bleu(config: TextMetric, scorer: Any, result: Json, expected: Json) -> float:
    """Return sentence BLEU in [0, 1]; a list of expected texts holds references of one answer."""
    text, references = _answer_and_references(config, result, expected)
    if text in references:  # the score may be 100.00000000000004, and is 0 for two empty texts
        return 1.0
    return min(1.0, float(scorer.sentence_score(text, references).score) / 100)


def _rouge(config: RougeMetric, scorer: Any, result: Json, expected: Json) -> float:
    """Return ROUGE F1 in [0, 1], the maximum over a list of expected texts."""
    text, references = _answer_and_references(config, result, expected)
    if text in references:  # one word has no bigrams and scores 0
        return 1.0
    n = len(_word().findall(text))
    most = max(len(_word().findall(reference)) for reference in references)
    if config.method == "rougeL" and n * most > MOST_CELLS:
        raise ValueError(
            f"`rougeL` must compare at most {MOST_CELLS:,} pairs of words, but the answer has {n:,} words and "
            f"`expected` {most:,}. Write `method: rouge2`, or lower `max_tokens`."
        )
    return float(scorer.score_multi(references, text)[config.method].fmeasure)


def _answer_and_references(
    config: BaseMetric, result: Json, expected: Json
) -> tuple[str, list[str]]:
    result = _stated(result, expected)
    answers = _answers(result, expected)
    if isinstance(result, str):
        result = next((r for a in answers if (r := _as_json(result, a)) is not result), result)
    return _tidy(config, result), [_tidy(config, _as_json(answer, result)) for answer in answers]


class _Words:
    """Tokenizer for rouge-score, whose default drops all letters except a to z."""

    def tokenize(self, text: str) -> list[str]:
        return _word().findall(text.lower())


@lru_cache(maxsize=1)
def _word() -> re.Pattern[str]:
    """Return the pattern of a word: letters and digits, with their marks and joiners."""
    every = map(chr, range(sys.maxunicode + 1))
    marks = "".join(c for c in every if unicodedata.category(c).startswith("M"))
    return re.compile(rf"[^\W_](?:[^\W_]|[{marks}\u200c\u200d])*")


def _tidy(config: BaseMetric, value: Json) -> str:
    text = "" if value is None else _normal(as_text(value)).translate(_PLAIN).strip()
    return (
        text.casefold() if isinstance(config, CasedMetric) and not config.case_sensitive else text
    )


def _normal(text: str) -> str:
    """Return a text with normalized letters and line ends."""
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n"))


def equal(a: Json, b: Json, config: CasedMetric) -> bool:
    """Return whether a result equals an expected value; either may be the other's JSON text.

    Two strings are compared as strings: ``3.10`` is not ``3.1``. Only null equals null.
    """
    if a is None or b is None:
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key], config) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y, config) for x, y in zip(a, b, strict=True))
    if isinstance(a, str) or isinstance(b, str):
        if isinstance(a, bool) or isinstance(b, bool):  # Python and tables write True and TRUE
            return as_text(a).strip().lower() == as_text(b).strip().lower()
        return _tidy(config, a) == _tidy(config, b) or _equals_as_json(a, b, config)
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def _equals_as_json(a: Json, b: Json, config: CasedMetric) -> bool:
    """Return whether one is a mapping, list or number and the other its JSON text."""
    other: Json
    if isinstance(a, str) and isinstance(b, (dict, list)):
        value, other = a, b
    elif isinstance(b, str) and isinstance(a, (dict, list, float, int)):
        value, other = b, a
    elif isinstance(a, str) and isinstance(b, (int, float)) and float(b).is_integer():
        value, other = a, b  # which tables write as 2.0
    else:
        return False
    parsed = json_in(value)
    return not isinstance(parsed, str | Missing) and equal(parsed, other, config)


def _expected_texts(expected: Json) -> list[str]:
    parts = expected if isinstance(expected, list) else [expected]
    if not parts or any(
        isinstance(p, dict | list | None) or not as_text(p).strip() for p in parts
    ):
        raise ValueError("must be a string that is not blank, or a list of them")
    return [as_text(int(p) if isinstance(p, float) and p.is_integer() else p) for p in parts]


def _expected_numbers(expected: Json) -> list[Decimal]:
    parts = answers_of(expected)
    numbers = [number for part in parts if (number := _number(part)) is not None]
    if len(numbers) < len(parts):
        raise ValueError("must be a number, or a list of numbers")
    return numbers


def _number(value: Json) -> Decimal | None:
    """Return a number, or a string that is only a number, such as ``1,234.5`` or ``$12``.

    It is decimal, so 1.1 - 1.0 is 0.1 and integers keep all digits.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    text = _THOUSANDS.sub(",", str(value).strip().replace("\N{MINUS SIGN}", "-"))
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    text = (match[1] or match[2] or "") + match[3]
    try:
        number = Decimal(text.replace(",", ""))
        return number if abs(number) < 1e308 else None
    except InvalidOperation:  # its exponent has too many digits
        return None


def _pattern(source: Json, *, case_sensitive: bool) -> re.Pattern[str]:
    if not isinstance(source, str):
        raise ValueError("must be a regular expression")
    return _compiled(source, case_sensitive)


@lru_cache(maxsize=1024)
def _compiled(source: str, case_sensitive: bool) -> re.Pattern[str]:
    try:
        return re.compile(source, 0 if case_sensitive else re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from error


@lru_cache(maxsize=1024)
def _validator(schema_json: str) -> Any:
    import jsonschema  # noqa: PLC0415 - only this metric needs it
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
    # With an empty registry, external references fail instead of being fetched.
    validator = kind(schema, registry=Registry())
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    try:
        _check_references(resource, Registry().resolver_with_root(resource))
        validator.is_valid(None)
    except Unresolvable as error:
        raise ValueError(f"must define all its references, but lacks {error.ref}") from error
    except RecursionError:
        raise ValueError("must not refer to itself endlessly") from None
    return validator


def _check_references(resource: Any, resolver: Any) -> None:
    """Resolve every reference of a schema.

    Raises:
        Unresolvable: a reference is undefined or external.
    """
    schema = resource.contents
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        resolver.lookup(schema["$ref"])
    for part in resource.subresources():
        _check_references(part, resolver.in_subresource(part))


def check_schema(schema: Json) -> str | None:
    """Return the rule that a JSON Schema breaks; ``None`` if it is valid."""
    try:
        _validator(canonical_json(schema))
    except ValueError as error:
        return str(error)
    return None
