"""Probabilities that a model writes: weights as JSON, or shares in prose."""

import json
import re
from typing import Final

import numpy as np

from convergence_core.records import Json
from tasks.rlp.model_calls import UnreadableAnswerError
from tasks.sao.probability_channels import normalized

_NUMBER: Final = r"(\d+(?:[.,]\d+)?|[.,]\d+)"
_CHANCE: Final = re.compile(
    rf"(?<![\w.,=-]){_NUMBER}\s*(%|per\s?cent|(?:/|in|out\s+of)\s*(\d+)\b)?", re.IGNORECASE
)
"""A number, and what it is a share of."""
_RANGE: Final = re.compile(
    rf"{_NUMBER}\s*%?\s*(?:[-\u2013\u2014]|to|and)\s*{_NUMBER}\s*(%|per\s?cent)"
)


def weights_of(value: Json, name: str, n: int, *, spread: float) -> np.ndarray:
    """Return the weights of one question out of a model's JSON, as a distribution, (n,).

    Args:
        value: with the model's ``text``.
        name: of the question.
        n: outcomes.
        spread: added to each share: none is impossible, whatever the model writes.

    Raises:
        UnreadableAnswerError: there are not n of them, 0 or more and not all 0.
    """
    text = value.get("text") if isinstance(value, dict) else None
    begin = text.find("{") if isinstance(text, str) else -1
    if not isinstance(text, str) or begin < 0:
        raise UnreadableAnswerError("the answer holds no JSON object")
    try:
        weights, _ = json.JSONDecoder().raw_decode(text, begin)
        listed = weights[name]
        if not isinstance(listed, list) or len(listed) != n:
            raise UnreadableAnswerError(f"`{name}` must be a list of {n} weights")
        return normalized(normalized([float(w) for w in listed]) + spread)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, UnreadableAnswerError):
            raise
        raise UnreadableAnswerError(f"its weights cannot be read: {error}") from None


def probability_of(text: str) -> float:
    """Return the only probability that a model's prose states: ``about 80 %``, ``0.8``, ``8 out of 10``.

    The middle of a range of percentages counts as one. A last line of a number alone counts before the
    rest; then what follows the word *probability*.

    Raises:
        UnreadableAnswerError: it states none, or several.
    """

    def middle(m: re.Match[str]) -> str:
        low, high = (float(n.replace(",", ".")) for n in (m[1], m[2]))
        return f"{(low + high) / 2:g} %"

    text = _RANGE.sub(middle, text.lower()).rstrip(" .*\n")
    alone = _CHANCE.fullmatch(text.rpartition("\n")[2].strip(" *"))
    if alone is not None:
        bare = float(alone[1].replace(",", "."))
        text = f"{bare if bare > 1 else 100 * bare} %" if alone[2] is None else alone[0]
    _, word, after = text.rpartition("probability")
    stated = (_stated(after)[:1] if word else []) or [*dict.fromkeys(_stated(text))]
    if len(stated) != 1:
        problem = "several probabilities" if stated else "no probability"
        raise UnreadableAnswerError(f"the answer states {problem}")
    return stated[0]


def _stated(text: str) -> list[float]:
    """Return the probabilities in a text: shares with their unit, or else decimal numbers up to 1."""
    numbers = [
        (float(number.replace(",", ".")), unit, float(n or 100))
        for number, unit, n in _CHANCE.findall(text)
    ]
    shares = [value / whole for value, unit, whole in numbers if unit and value <= whole and whole]
    return shares or [value for value, unit, _ in numbers if not unit and value <= 1 and value % 1]
