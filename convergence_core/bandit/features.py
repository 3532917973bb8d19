"""Features of a request: their places, and the coordinates of the regressions.

Numbers are standardised online. Every coordinate is a polynomial in the numbers. So one linear map
transforms sums over rewards to a new origin and unit, as if these had applied from the start. Each
value of a text has a place; beyond ``MOST_VALUES`` the others share one. Features beyond
``MOST_PLACES`` are ignored. A missing number counts as the average. Pairs are products of two
features and squares of numbers, up to ``MOST_PAIRS``, in the order of the features; a text's
vector forms no pairs.

The vector of a text consists of hashed n-grams or comes from a ``TextEmbedder``, whose name is
part of the features' names. So vectors of one kind never mix with those of another, whose numbers
count as missing.

A request's context may include its ``text``. Each test case represents a request, so cases and
requests have the same features.
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
"""Name prefix of a text's vector: of hashed n-grams, or followed by an embedding's name."""
N_HASHED: Final = 16
CODE: Final = frozenset("{}[]()<>=;_\\/|&$#`+*^~@")
"""Characters that are frequent in code and rare in prose."""
MOST_PLACES: Final = 96
MOST_VALUES: Final = 32
MOST_PAIRS: Final = 96
LARGEST: Final = 1e30
"""Maximum absolute value of numbers, so that their squares stay finite."""
FARTHEST: Final = 1e3
"""Maximum distance from the origin in units, so that sums of products keep their precision."""
MOVED: Final = 0.05
"""Change of a number's mean or deviation, in deviations, that updates its origin and unit."""


def request_features(
    context: Mapping[str, Json], text: str | None = None, embedder: TextEmbedder | None = None
) -> dict[str, Feature]:
    """Return the features of a request; those of its text are named ``text.…``.

    Args:
        context: Context of the request.
        text: Text of the request; ``None`` means ``context["text"]``, if present.
        embedder: Embedder of texts; ``None`` means hashed n-grams.

    Raises:
        ValueError: A value is not a finite number, text, boolean or ``None``.
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
    """Return length, script, share of code and vector of a text; empty if it is blank."""
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
    """Return the context of the request that each case represents.

    A text input, or the user's last message, is the request's text. In an input with members,
    numbers and booleans are features by name. So are texts with recurring values: at most
    ``MOST_VALUES``, each in two cases on average. All other texts form the request's text. A tag
    such as ``math`` becomes the feature ``tags.math: yes``.
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
    """Return a text, or the text of the user's last message in a list; empty if there is none."""
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
    """Places of features, and coordinates built from them; place 0 is the constant 1."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str | None], int] = {}
        """Place of a number, (name, ``None``), or of a text value, (name, value)."""
        self.rest: dict[str, int] = {}
        """Text feature → place of all its other values."""
        self.names = [""]
        """Feature of each place."""
        self.moments: Floats = np.zeros((3, 1))
        """Count, mean and sum of squared deviations of the numbers at each place, (3,
        n_places)."""
        self.origin: Floats = np.zeros(1)
        """Number encoded as 0 at each place."""
        self.unit: Floats = np.ones(1)
        """Distance from the origin that is encoded as 1."""
        self.left: Ints = np.zeros(1, dtype=np.int64)
        """Place of the first factor of each coordinate, (d,)."""
        self.right: Ints = np.zeros(1, dtype=np.int64)
        """Place of the second factor of each coordinate; 0, the constant, if it is not a pair."""

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
        """Assign places to new features, and add numbers to the moments."""
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
        # Earlier requests have 0 here, which is the average, since the origin starts at the first
        # number.
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
        """Update origins and units to the current moments.

        Return the matrix from old coordinates to new ones, (d, d), or ``None`` if nothing changed.
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
