"""Features of a request: their places, and the coordinates of the regressions.

Numbers are standardised as they come. Every coordinate is a polynomial in the numbers, so one linear map
moves sums over rewards to a new origin and unit, as if all rewards had come after. A text has a place for each
of its values; beyond ``MOST_VALUES`` the others share one. Beyond ``MOST_PLACES`` a feature is left out. A
missing number counts as the average. Pairs are the products of two features and the squares of numbers, up to
``MOST_PAIRS``, in the order in which features came; a text's vector forms none.

The vector of a text is its hashed n-grams, or that of a ``TextEmbedder``, whose name stands in the features' names:
what was learned from one kind of vector is never read as another's, whose numbers count as missing.

A request's context may hold its ``text``. A test case is read as the request that it stands for, so the
features of cases are those of requests.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Final

import numpy as np
from numpy.typing import NDArray

from convergence_core.bandit.propensities import Floats
from convergence_core.field_types import MOST_OF_TEXT
from convergence_core.judges.text_features import hashed_ngrams
from convergence_core.ports import TextEmbedder
from convergence_core.records import Case, Json

Feature = float | int | bool | str | None
Ints = NDArray[np.int64]

HASHED: Final = "text.#"
"""Beginning of the names of a text's vector: hashed n-grams, or an embedding's name and its numbers."""
N_HASHED: Final = 16
CODE: Final = frozenset("{}[]()<>=;_\\/|&$#`+*^~@")
"""Characters that are frequent in code and rare in prose."""
MOST_PLACES: Final = 96
MOST_VALUES: Final = 32
MOST_PAIRS: Final = 96
LARGEST: Final = 1e30
"""Absolute value at which numbers are cut, so that their squares stay finite."""
FARTHEST: Final = 1e3
"""Units from the origin at which numbers are cut, so that sums of products keep their precision."""
MOVED: Final = 0.05
"""Change of a number's mean or deviation, in deviations, that moves its origin and unit."""


def request_features(
    context: Mapping[str, Json], text: str | None = None, embedder: TextEmbedder | None = None
) -> dict[str, Feature]:
    """Return the features of a request; those of its text are named ``text.…``.

    Args:
        context: of the request.
        text: of the request; ``None`` means that of ``context["text"]``, if it is there.
        embedder: of texts; ``None`` means hashed n-grams.

    Raises:
        ValueError: a value is no finite number, text, boolean or ``None``.
    """
    features: dict[str, Feature] = {}
    for name, value in context.items():
        if name == "text" and isinstance(value, str):
            text = value if text is None else text
        elif isinstance(value, list | dict):
            raise ValueError(f"context.{name} must be a number, text or boolean to be a feature")
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"context.{name} must be finite, but got {value}")
        else:
            features[name] = value
    return features | ({} if text is None else text_features(text, embedder))


def text_features(text: str, embedder: TextEmbedder | None = None) -> dict[str, Feature]:
    """Return length, script, share of code and the vector of a text; empty for a blank one."""
    text = text[:MOST_OF_TEXT]
    shown = [c for c in text if not c.isspace()]
    if not shown:
        return {}
    scripts = Counter(unicodedata.name(c, "other").split()[0] for c in shown if c.isalpha())
    vector, name = (
        (hashed_ngrams(text, N_HASHED), HASHED)
        if embedder is None
        else (embedder.embed(text) or (), f"{HASHED}{embedder.name}.")
    )
    return {
        "text.length": math.log(len(shown)),
        "text.script": max(scripts, key=scripts.__getitem__).lower() if scripts else "none",
        "text.code": sum(c in CODE for c in shown) / len(shown),
        **{f"{name}{j}": round(float(v), 4) for j, v in enumerate(vector)},
    }


def case_contexts(cases: Sequence[Case]) -> list[dict[str, Json]]:
    """Return the context of the request that each case stands for.

    A text, or the last message of the user, is its text. Of an input with members, numbers and booleans are
    features by their names, as are texts whose values recur: at most ``MOST_VALUES``, each in two cases on
    average. Other texts are its text. The tag ``math`` is the feature ``tags.math: yes``.
    """
    inputs = [
        case.input if isinstance(case.input, dict) else {"text": case.input} for case in cases
    ]
    values: dict[str, list[str]] = {}
    for members in inputs:
        for name, value in members.items():
            if isinstance(value, str) and name != "text":
                values.setdefault(name, []).append(value)
    recurring = {
        name
        for name, texts in values.items()
        if 2 * len(set(texts)) <= len(texts) and len(set(texts)) <= MOST_VALUES
    }
    return [_context(m, recurring, case) for m, case in zip(inputs, cases, strict=True)]


def _context(members: Mapping[str, Json], recurring: Set[str], case: Case) -> dict[str, Json]:
    context: dict[str, Json] = {}
    texts = []
    for name, value in members.items():
        is_number = isinstance(value, int | float) and math.isfinite(value)
        if is_number or (name in recurring and isinstance(value, str)):
            context[name] = value
        elif text := last_text(value):
            texts.append(text)
    return context | {"text": "\n".join(texts)} | {f"tags.{tag}": "yes" for tag in case.tags}


def last_text(value: Json) -> str:
    """Return a text, or that of the user's last message of several; empty: there is none."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    messages = [m for m in value if isinstance(m, dict) and m.get("role") == "user"]
    content = messages[-1].get("content") if messages else None
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _cut(value: float) -> float:
    return float(max(-LARGEST, min(LARGEST, value)))


class Places:
    """Places of features and the coordinates made of them; place 0 is the constant 1."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str | None], int] = {}
        """Place of a number, (name, ``None``), and of a value of a text, (name, value)."""
        self.rest: dict[str, int] = {}
        """Place of all other values of a text."""
        self.names = [""]
        """Feature of each place."""
        self.moments: Floats = np.zeros((3, 1))
        """Of each place: how many numbers, their mean, the sum of their squared deviations."""
        self.origin: Floats = np.zeros(1)
        """Number that counts as 0 at each place."""
        self.unit: Floats = np.ones(1)
        """Number that counts as 1, from there."""
        self.left: Ints = np.zeros(1, dtype=np.int64)
        """First factor of each coordinate, a place; (d,)."""
        self.right: Ints = np.zeros(1, dtype=np.int64)
        """Second factor of each coordinate; 0, the constant, if it is no pair."""

    def encode(self, context: Mapping[str, Feature]) -> Floats:
        """Return the coordinates of a request, (d,)."""
        f = np.zeros(self.origin.size)
        for name, value in context.items():
            if isinstance(value, str):
                f[self.known.get((name, value)) or self.rest.get(name, 0)] = 1.0
            elif value is not None and (place := self.known.get((name, None))):
                distance = (_cut(value) - self.origin[place]) / self.unit[place]
                f[place] = max(-FARTHEST, min(FARTHEST, distance))
        f[0] = 1.0
        return np.asarray(f[self.left] * f[self.right])

    def add(self, context: Mapping[str, Feature]) -> None:
        """Give new features their places, and numbers to the moments."""
        for name, value in context.items():
            if isinstance(value, str):
                if (name, value) not in self.known and name not in self.rest:
                    self._append(name, value)
            elif value is not None:
                if (name, None) not in self.known:
                    self._append(name, value)
                self._measure(self.known.get((name, None)), _cut(value))

    def _measure(self, place: int | None, value: float) -> None:
        if place is None:
            return
        n, mean, squares = self.moments[:, place]
        shift = value - mean
        mean += shift / (n + 1.0)  # B. P. Welford, 1962
        self.moments[:, place] = n + 1.0, mean, squares + shift * (value - mean)

    def _append(self, name: str, value: float | str) -> None:
        place = self.origin.size
        if place > MOST_PLACES:
            return
        is_text = isinstance(value, str)
        if is_text and self.names.count(name) == MOST_VALUES - 1:
            self.rest[name] = place
        else:
            self.known[name, value if isinstance(value, str) else None] = place
        # Earlier requests have 0 here: the average, for the origin begins at the first number.
        first = 0.0 if isinstance(value, str) else _cut(value)
        self.names.append(name)
        self.moments = np.pad(self.moments, ((0, 0), (0, 1)))
        self.origin = np.append(self.origin, first)
        self.unit = np.append(self.unit, abs(first) if abs(first) > 1.0 / LARGEST else 1.0)
        others = [
            p for p in range(1, place)
            if self.names[p] != name and not self.names[p].startswith(HASHED)
        ]  # fmt: skip
        if not isinstance(value, str | bool):
            others.append(place)
        if name.startswith(HASHED):
            others = []
        others = others[: MOST_PAIRS - np.count_nonzero(self.right)]
        self.left = np.append(self.left, np.full(1 + len(others), place))
        self.right = np.append(self.right, np.array([0, *others]))

    def move(self) -> Floats | None:
        """Move origins and units to where the numbers are now.

        Return the matrix from old coordinates to new ones, (d, d); ``None`` if nothing moved.
        """
        n, mean, squares = self.moments
        sd = np.sqrt(squares / np.maximum(n, 1.0))
        changed = np.maximum(np.abs(mean - self.origin), np.abs(sd - self.unit)) > MOVED * sd
        changed &= sd > 0.0
        if not changed.any():
            return None
        origin, unit = np.where(changed, mean, self.origin), np.where(changed, sd, self.unit)
        a, c = self.unit / unit, (self.origin - origin) / unit
        self.origin, self.unit = origin, unit
        # A factor f becomes a f + c, so the product of f and g becomes
        # a a' f g + a c' f + c a' g + c c'.
        left, right, rows = self.left, self.right, np.arange(self.left.size)
        alone = np.flatnonzero(right == 0)  # coordinate of each place
        matrix = np.diag(a[left] * a[right])
        np.add.at(matrix, (rows, alone[left]), a[left] * c[right])
        np.add.at(matrix, (rows, alone[right]), c[left] * a[right])
        matrix[:, 0] += c[left] * c[right]
        return matrix
