"""Choosing one of the options that a prompt lists."""

import re
from collections.abc import Mapping, Sequence

from tasks.mock.hash_uniform import uniform
from tasks.mock.prompt_text import words

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
"""Words of a text in which one point of fit still says what it is about."""


def options(text: str) -> Mapping[str, str]:
    """Return the options that a text lists, with what it says about each; empty if it lists none.

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
    """Whether enough of a text speaks for one of the options: a point for each dozen of its words."""
    said = words(text)
    used = set(said)
    best = max(_fit(name, meaning, used) for name, meaning in listed.items())
    return best > 0 and best * WORDS_PER_POINT >= len(said)


def guess(listed: Mapping[str, str], *, draw: Sequence[object], index: int) -> str:
    """Return an option for a text that speaks for none, another one with the next index."""
    names = sorted(listed)
    return names[(int(len(names) * uniform("guess", *draw)) + index) % len(names)]


def fit(name: str, text: str) -> int:
    """Return how many words of a text speak for an option by its name alone."""
    return _fit(name, "", set(words(text)))


def _fit(name: str, meaning: str, used: set[str]) -> int:
    own = set(words(name))
    fit = len(used & (own | set(words(meaning))))
    return fit + sum(2 * len(used & signs) for names, signs in _SENSES if own & names)
