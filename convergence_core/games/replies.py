"""Replies of models as values: JSON objects, probabilities, distributions.

A reply is anything. What cannot be read is ``None``, never an exception, and a game's score says what
it is worth: no more than the worst that can be read, so that nobody gains by being unreadable.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from convergence_core.rlp.bins import N_BINS, normalized

_OPENING: Final = re.compile(r"\{(?=\s*[\"}])")
_NUMBER: Final = re.compile(r"(?<![\w.])(?:0(?:\.\d+)?|1(?:\.0+)?|\.\d+)(?![\w%]|\.\d)")
MOST_OPENINGS: Final = 50
"""Of JSON objects that are tried in one reply."""


def object_of(reply: str) -> dict[str, Any] | None:
    """Return the first JSON object in a reply; ``None``: there is none."""
    decoder = json.JSONDecoder()
    for n, opening in enumerate(_OPENING.finditer(reply)):
        if n >= MOST_OPENINGS:
            return None
        try:
            found, _ = decoder.raw_decode(reply, opening.start())
        except (ValueError, RecursionError):
            continue
        return dict(found)
    return None


def probability_of(reply: str) -> float | None:
    """Return the only number in [0, 1] that a reply holds, or its ``p``; ``None``: there is none."""
    found = object_of(reply)
    if found is not None:
        return finite_number(found.get("p"), 0.0, 1.0)
    numbers = {float(one) for one in _NUMBER.findall(reply)}
    return numbers.pop() if len(numbers) == 1 else None


def finite_number(value: object, low: float, high: float) -> float | None:
    """Return a number of a range; ``None``: it is none, or lies outside."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not (low <= value <= high and math.isfinite(value)):
        return None
    return float(value)


def forecasts_of(value: object, n: int) -> np.ndarray | None:
    """Return forecasts over ten bins, (n, N_BINS), from lists of weights; ``None``: unreadable."""
    if not isinstance(value, list) or len(value) != n:
        return None
    rows = []
    for one in value:
        if not isinstance(one, list) or len(one) != N_BINS:
            return None
        weights = [finite_number(w, 0.0, 1e9) for w in one]
        if any(w is None for w in weights) or not any(weights):
            return None
        rows.append(normalized([w for w in weights if w is not None]))
    return np.array(rows)


def numbers_of(reply: str, n: int, low: float, high: float) -> list[float] | None:
    """Return a measuring role's reply: a JSON list of n numbers; ``None``: it is none."""
    try:
        found = json.loads(reply)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(found) != n:
        return None
    numbers = [finite_number(one, low, high) for one in found]
    known: Sequence[float] = [one for one in numbers if one is not None]
    return list(known) if len(known) == n else None
