"""Words, sentences and named sections of a prompt."""

import re
from collections.abc import Mapping

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+|\n|$)")
_GRAMMAR = (
    "a an and are as at be but by can did do does for from had has have how i if in is it its me "
    "my of on or our so that the their them they this to was we were what when where which who "
    "why will with would you your"
)
_STOP_WORDS = frozenset(_GRAMMAR.split())
_NAME = r"[A-Za-z][A-Za-z ]{0,30}"
_SECTIONS = (
    re.compile(
        rf"\[\[BEGIN (?P<name>{_NAME}?)(?: \w{{8,64}})?\]\]\n(?P<text>.*?)\n\[\[END", re.DOTALL
    ),
    re.compile(r"<(?P<name>[A-Za-z][\w -]*)>(?P<text>.*?)</(?P=name)>", re.DOTALL),
    re.compile(
        rf"^(?:#+ *|\*\*|\[)?(?P<name>{_NAME})(?:\*\*|\])?:(?:\*\*)?[ \n](?P<text>.*?)"
        rf"(?=^(?:#+ *|\*\*|\[)?{_NAME}(?:\*\*|\])?:|\Z)",
        re.DOTALL | re.MULTILINE,
    ),
)


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.casefold() for word in _WORD.findall(text)]


def content_words(text: str) -> list[str]:
    """Return the words that are not grammar alone."""
    return [word for word in words(text) if word not in _STOP_WORDS]


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    return [stripped for found in _SENTENCE.findall(text) if (stripped := found.strip())]


def question_of(text: str) -> str:
    """Return the last sentence that asks, else the last sentence."""
    found = sentences(text)
    asking = [sentence for sentence in found if sentence.endswith("?")]
    return (asking or found or [""])[-1]


def sections(text: str) -> Mapping[str, str]:
    """Return the named parts of a text by name in lower case.

    Known are ``[[BEGIN NAME …]]`` blocks, XML-like elements, and lines that begin with ``Name:``;
    the first of these that occurs is taken, and within it the first part of each name.
    """
    for pattern in _SECTIONS:
        found: dict[str, str] = {}
        for part in pattern.finditer(text):
            name = re.sub(r"[\W_]+", " ", part["name"]).strip().casefold()
            found.setdefault(name, part["text"].strip())
        if found:
            return found
    return {}
