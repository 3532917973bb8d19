"""Verdicts of the mock as a judge.

It reads the named parts of the prompt (``ANSWER``, ``REFERENCE``, ``INPUT``…) and measures shared
words. With a reference, the score is the F1 of the two bags of words: 1 if they are equal, and at
least .9 if the answer contains the reference. Without one, half the score is the share of the
question's words in the answer, and half its length up to twenty words. Verdicts depend only on the
texts. If a prompt asks for one letter, ties are broken by the words that fit the request, as for
options, and then by a hash, so that the same answer wins in either order.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tasks.mock import schemas
from tasks.mock.prompt_text import content_words, sections, uniform, words

_LINES = re.compile(
    r"^\s*[-*•]\s+[\"'`*]*([\w-]+)[\"'`*]*\s*[:\u2013\u2014]\s*(.+)$", re.MULTILINE
)
_LIST = re.compile(
    r"[\"'`]?[\w-]+[\"'`]?(?:,\s+[\"'`]?[\w-]+[\"'`]?)*,?\s+or\s+[\"'`]?[\w-]+[\"'`]?"
)
_ANNOUNCED = re.compile(
    r"\b(?:one of|one word|either|options?|labels?|category|categories|classes|choose)\b[^:\n]*:\s*(.+)",
    re.IGNORECASE,
)
_SENSES: Sequence[tuple[frozenset[str], frozenset[str]]] = tuple(
    (frozenset(names.split()), frozenset(signs.split()))
    for names, signs in (
        (
            "happy positive joy good satisfied praise",
            "best delighted early enjoy excellent glad great happy jacket love perfect saved "
            "thank thanks wonderful",
        ),
        (
            "angry anger negative bad complaint dissatisfied",
            "angry anybody awful bad broken complaint hate lawyer never terrible third twice "
            "worst",
        ),
        (
            "sad sadness loss negative",
            "died gone grief hoped lost miss pity sad sorry unfortunately",
        ),
        ("neutral other question information", "address how invoice please send size when where"),
    )
)

WORDS_PER_POINT = 12
"""Words of a text per point of fit that is needed to identify its topic."""


def options(text: str) -> Mapping[str, str]:
    """Return the options in a text with their meanings; empty if there are none.

    Options are lines ``- name: meaning``, or a list ``a, b or c`` after words like *one of*.
    """
    lines = dict(_LINES.findall(text))
    if len(lines) >= 2:
        return lines
    announced = _ANNOUNCED.search(text)
    listed = _LIST.search(announced[1]) if announced is not None else None
    if listed is None:
        return {}
    names = re.split(r",\s+(?:or\s+)?|\s+or\s+", listed[0])
    return {name.strip("\"'`"): "" for name in names}


def choose(listed: Mapping[str, str], text: str, *, good: bool, draw: Sequence[object]) -> str:
    """Return the option whose meaning and senses share most words with a text, or another one."""
    used = set(words(text))
    ranked = sorted(listed, key=lambda name: (-_fit(name, listed[name], used), name))
    if good:
        return ranked[0]
    others = ranked[1:]
    return others[int(len(others) * uniform("other", *draw))]


def is_known(listed: Mapping[str, str], text: str) -> bool:
    """Return whether enough words of a text fit one option: a point for each dozen words."""
    answer_words = words(text)
    used = set(answer_words)
    best = max(_fit(name, meaning, used) for name, meaning in listed.items())
    return best > 0 and best * WORDS_PER_POINT >= len(answer_words)


def guess(listed: Mapping[str, str], *, draw: Sequence[object], index: int) -> str:
    """Return an option for a text that fits none; the next index gives another one."""
    names = sorted(listed)
    return names[(int(len(names) * uniform("guess", *draw)) + index) % len(names)]


def fit(name: str, text: str) -> int:
    """Return the number of words of a text that fit an option's name."""
    return _fit(name, "", set(words(text)))


def _fit(name: str, meaning: str, used: set[str]) -> int:
    name_words = set(words(name))
    fit = len(used & (name_words | set(words(meaning))))
    return fit + sum(2 * len(used & signs) for names, signs in _SENSES if name_words & names)


RATINGS = frozenset({"rating", "score", "grade", "points", "stars", "mark"})
PASSES = frozenset({"pass", "passed", "passes", "acceptable", "correct", "is_correct", "verdict"})
WINNERS = frozenset({"winner", "preferred", "preference", "better", "choice", "verdict"})

_ANSWERS = ("answer", "response", "output", "prediction", "reply", "completion", "candidate")
_REFERENCES = ("reference", "expected", "expected answer", "ideal", "ground truth", "gold")
_TIES = ("tie", "equal", "draw", "both")
_GOOD = ("pass", "passed", "yes", "correct", "good")
_BAD = ("fail", "failed", "no", "incorrect", "bad")
_LETTER = re.compile(r"\bone letter, A or B\b")
_TIE_WITHIN = 0.02
_ENOUGH_WORDS = 20


def is_verdict(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is that of a judge's verdict."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return False
    return any(_form(str(name), kind) is not None for name, kind in properties.items())


def verdict(schema: Mapping[str, Any], text: str) -> Any:
    """Return a JSON value of the schema that judges the answers in a text."""
    parts = sections(text)
    only, a, b = (_first(parts, _ANSWERS, suffix) for suffix in ("", " a", " b"))
    if only is None:
        only = a if a is not None else text[len(text) // 2 :]
    quality = _quality(only, parts)
    lead = None if a is None or b is None else _quality(a, parts) - _quality(b, parts)

    def fixed(name: str, kind: Mapping[str, Any]) -> Any:
        match _form(name, kind):
            case "rating":
                return _rating(kind, quality)
            case "pass":
                return quality >= 0.5
            case "enum":
                return _named(list(kind["enum"]), quality, lead)
            case None:
                return None

    reason = f"The answer shares {100 * quality:.0f} % of the words that were looked for."
    source = schemas.ValueSource(text=text, answer=reason, good=True, draw="judge", fixed=fixed)
    return schemas.fill(schema, source)


def letter(text: str) -> str | None:
    """Return the letter of the better of two answers; ``None`` if the text asks for none."""
    parts = sections(text)
    a, b = (_first(parts, _ANSWERS, suffix) for suffix in (" a", " b"))
    if a is None or b is None or _LETTER.search(text) is None:
        return None
    lead = _quality(a, parts) - _quality(b, parts)
    if abs(lead) <= _TIE_WITHIN and a != b:
        # A tie in words: broken by fit to the request, else by a hash that is the same in either
        # order.
        question = _first(parts, ("request", "question", "input")) or ""
        lead = fit(a, question) - fit(b, question) or (
            uniform("taste", question, a) - uniform("taste", question, b)
        )
    return "A" if lead >= 0.0 else "B"


def _form(name: str, kind: Any) -> Literal["rating", "pass", "enum"] | None:
    name = name.casefold()
    if not isinstance(kind, Mapping) or name not in RATINGS | PASSES | WINNERS:
        return None
    if kind.get("type") in ("integer", "number") or _numbers(kind):
        return "rating" if name in RATINGS else None
    if kind.get("type") == "boolean":
        return "pass"
    return "enum" if kind.get("enum") else None


def _rating(kind: Mapping[str, Any], quality: float) -> float | int:
    if numbers := _numbers(kind):
        return numbers[min(len(numbers) - 1, int(quality * len(numbers)))]
    low, high = kind.get("minimum", 1), kind.get("maximum", 10)
    if kind.get("type") == "integer":
        n = int(high) - int(low) + 1
        return int(low) + min(n - 1, int(quality * n))
    return round(float(low + quality * (high - low)), 4)


def _numbers(kind: Mapping[str, Any]) -> list[float]:
    listed = kind.get("enum") or []
    numbers = [v for v in listed if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return sorted(numbers) if numbers and len(numbers) == len(listed) else []


def _named(listed: list[Any], quality: float, lead: float | None) -> Any:
    """Return the matching entry of an enumeration: the winner, else from bad to good."""
    by_name = {str(entry).casefold().removeprefix("answer ").strip(): entry for entry in listed}
    tie, good, bad = (_first(by_name, names) for names in (_TIES, _GOOD, _BAD))
    if {"a", "b"} <= by_name.keys():
        if lead is None or abs(lead) <= _TIE_WITHIN:
            return tie if tie is not None else by_name["a"]
        return by_name["a"] if lead > 0 else by_name["b"]
    if good is not None and bad is not None:
        return good if quality >= 0.5 else bad
    return listed[min(len(listed) - 1, int(quality * len(listed)))]


def _quality(answer: str, parts: Mapping[str, str]) -> float:
    """Return an answer's quality in [0, 1]."""
    reference = _first(parts, _REFERENCES)
    if not answer.strip():
        return 0.0
    if reference is not None and reference.strip():
        return _likeness(answer, reference)
    names = ("input", "question", "prompt", "request", "task", "rubric")
    question_words = {word for name in names for word in content_words(parts.get(name, ""))}
    used = set(content_words(answer))
    taken_up = len(question_words & used) / len(question_words) if question_words else 0.5
    return 0.5 * taken_up + 0.5 * min(1.0, len(words(answer)) / _ENOUGH_WORDS)


def _likeness(answer: str, reference: str) -> float:
    answer_words, reference_words = words(answer), words(reference)
    if answer_words == reference_words:
        return 1.0
    shared = sum((Counter(answer_words) & Counter(reference_words)).values())
    f1 = 2.0 * shared / max(1, len(answer_words) + len(reference_words))
    contained = f" {' '.join(reference_words)} " in f" {' '.join(answer_words)} "
    return max(f1, 0.9) if contained and reference_words else f1


def _first(parts: Mapping[str, Any], names: tuple[str, ...], suffix: str = "") -> Any:
    return next((parts[name + suffix] for name in names if name + suffix in parts), None)
