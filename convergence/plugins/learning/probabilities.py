"""Probabilities in a model's answer: of its first token, or stated in prose."""

import math
import re
from typing import Any, Final

from convergence_core.ports import Completion
from tasks.calls.model_calls import UnreadableAnswerError

TOP: Final = 20
"""Maximum log-probabilities in a chat's answer."""
_NUMBER: Final = r"(\d+(?:[.,]\d+)?|[.,]\d+)"
_CHANCE: Final = re.compile(
    rf"(?<![\w.,=-]){_NUMBER}\s*(%|per\s?cent|(?:/|in|out\s+of)\s*(\d+)\b)?", re.IGNORECASE
)
"""A number and its unit or denominator."""


def first_token_probability(done: Completion, n: int) -> float:
    """Return the first token's probability of the answer ``1`` among ``1`` to ``n``.

    Raises:
        UnreadableAnswerError: the server sent no log-probabilities, or none of these answers is
            among the most probable tokens.
    """
    raw: Any = done.raw
    try:
        tops = raw["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        tokens = [(str(top["token"]).strip(), math.exp(top["logprob"])) for top in tops]
    except (KeyError, IndexError, TypeError, ValueError):
        raise UnreadableAnswerError("the server sent no log-probabilities") from None
    mass = [math.fsum(p for token, p in tokens if token == str(i)) for i in range(1, n + 1)]
    if not any(mass):
        raise UnreadableAnswerError("none of the options is among the most probable tokens")
    return mass[0] / math.fsum(mass)


def probability_of(text: str) -> float:
    """Return the only probability in a model's prose: ``about 80 %``, ``0.8``, ``8 out of 10``.

    A last line that holds only a number takes precedence, then the first share after the word
    *probability*.

    Raises:
        UnreadableAnswerError: the prose states none, or several.
    """
    text = text.lower().rstrip(" .*\n")
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
    """Return the probabilities in a text: shares with their unit, otherwise decimals below 1."""
    numbers = [
        (float(number.replace(",", ".")), unit, float(n or 100))
        for number, unit, n in _CHANCE.findall(text)
    ]
    shares = [value / whole for value, unit, whole in numbers if unit and value <= whole and whole]
    return shares or [value for value, unit, _ in numbers if not unit and value <= 1 and value % 1]
