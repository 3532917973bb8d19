"""Parts of prompts: words, sentences, named sections, and pieces as tokens.

A piece is up to six letters or digits of one word, or one other visible character, with the white
space before it: ``tokenizer, please`` is ``tokeni|zer|,| please``. A chat message costs its pieces
and four more; a chat request costs two more for the start of the answer.
"""

import hashlib
import math
import re
from collections.abc import Mapping

from tasks.mock.protocol import Written

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
_PIECE = re.compile(r"\s*(?:\w{1,6}|[^\w\s])")
PER_MESSAGE = 4
PER_REQUEST = 2


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.casefold() for word in _WORD.findall(text)]


def content_words(text: str) -> list[str]:
    """Return the words except function words."""
    return [word for word in words(text) if word not in _STOP_WORDS]


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    return [stripped for sentence in _SENTENCE.findall(text) if (stripped := sentence.strip())]


def question_of(text: str) -> str:
    """Return the last question, else the last sentence."""
    lines = sentences(text)
    asking = [sentence for sentence in lines if sentence.endswith("?")]
    return (asking or lines or [""])[-1]


def sections(text: str) -> Mapping[str, str]:
    """Return the named parts of a text by name in lower case.

    The forms are ``[[BEGIN NAME …]]`` blocks, XML-like elements, and lines that begin with
    ``Name:``. The first form that occurs is used, with the first part of each name.
    """
    for pattern in _SECTIONS:
        named: dict[str, str] = {}
        for part in pattern.finditer(text):
            name = re.sub(r"[\W_]+", " ", part["name"]).strip().casefold()
            named.setdefault(name, part["text"].strip())
        if named:
            return named
    return {}


# -- pieces


def pieces(text: str) -> list[str]:
    """Return the pieces of a text; joined, they are the text without trailing white space."""
    return _PIECE.findall(text)


def count_pieces(text: str) -> int:
    """Return the number of tokens of a text."""
    return len(_PIECE.findall(text))


def cut(text: str, limit: int | None) -> Written:
    """Cut a text after ``limit`` tokens; ``None`` means no limit."""
    parts = pieces(text)
    if limit is None or len(parts) <= limit:
        return Written(text=text, n_tokens=len(parts))
    return Written(text="".join(parts[:limit]), n_tokens=limit, complete=False)


def uniform(*parts: object) -> float:
    """Return a number in (0, 1), a hash of all parts' strings."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:6], "big") + 0.5) / 2.0**48


def logistic(*parts: object) -> float:
    """Sample deterministically from the standard logistic distribution."""
    u = uniform(*parts)
    return math.log(u / (1.0 - u))
