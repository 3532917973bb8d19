"""Candidates as arrays: numbers on the unit interval, choices as codes.

An inactive number lies in the middle, and an inactive choice has an extra code. So the kernel
stays positive definite, and inactive parameters do not distinguish candidates.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from convergence_core.records import Params
from convergence_core.space.parameters import Choice, Float
from convergence_core.space.space import Space

N_HASHED = 256
"""Number of buckets for a text's n-grams."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Encoded locations of n candidates."""

    numbers: np.ndarray
    """Numbers in [0, 1], (n, n_numbers)."""
    codes: np.ndarray
    """Choice indices; the number of choices if inactive, (n, n_choices)."""

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.codes)

    def take(self, rows: np.ndarray) -> "Points":
        """Return the points of these rows."""
        return Points(self.numbers[rows], self.codes[rows])

    def join(self, other: "Points") -> "Points":
        """Return these points followed by the others."""
        return Points(
            np.concatenate([self.numbers, other.numbers]),
            np.concatenate([self.codes, other.codes]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """Encoding of a space as arrays."""

    space: Space
    number_names: tuple[str, ...]
    choice_names: tuple[str, ...]
    distances: tuple[np.ndarray, ...]
    """Distances between the values of each choice, inactive last; in [0, 1], 0 on the diagonal."""

    @classmethod
    def of(cls, space: Space) -> "Encoding":
        """Return the encoding of a space."""
        choices = {
            name: parameter
            for name, parameter in space.parameters.items()
            if isinstance(parameter, Choice)
        }
        return cls(
            space=space,
            number_names=tuple(name for name in space.parameters if name not in choices),
            choice_names=tuple(choices),
            distances=tuple(_distances(choice) for choice in choices.values()),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters in the order of dimensions: numbers, then choices."""
        return (*self.number_names, *self.choice_names)

    @property
    def free_columns(self) -> tuple[int, ...]:
        """Dimensions of continuous numbers."""
        parameters = self.space.parameters
        is_free = [parameters[name].n_values is None for name in self.number_names]
        return tuple(j for j, free in enumerate(is_free) if free)

    def genes(self, points: Sequence[Params]) -> np.ndarray:
        """Return canonical points as rows of genes, (n, n_dims).

        The gene of a number is its place in [0, 1], that of a choice its index; NaN means
        inactive.
        """
        genes = np.full((len(points), len(self.names)), np.nan)
        parameters = self.space.parameters
        for j, name in enumerate(self.names):
            parameter = parameters[name]
            if (
                isinstance(parameter, Float)
                and not parameter.log
                and parameter.min < parameter.max
            ):
                # Vectorized ``to_unit``, with bit-identical results, for thousands of candidates.
                values = np.array([p.get(name, np.nan) for p in points], dtype=np.float64)
                units = (values - parameter.min) / (parameter.max - parameter.min)
                genes[:, j] = np.clip(units, 0.0, 1.0)
                continue
            to_gene = parameter.index if isinstance(parameter, Choice) else parameter.to_unit
            genes[:, j] = [to_gene(p[name]) if name in p else np.nan for p in points]
        return genes

    def places(self, genes: np.ndarray) -> Points:
        """Return the points of rows of ``genes``."""
        q = len(self.number_names)
        n_values = np.array([len(distance) - 1 for distance in self.distances])
        numbers, codes = genes[:, :q], genes[:, q:]
        return Points(
            np.where(np.isnan(numbers), 0.5, numbers),
            np.where(np.isnan(codes), n_values, codes).astype(np.intp),
        )

    def encode(self, points: Sequence[Params]) -> Points:
        """Return the points of canonical parameter values."""
        return self.places(self.genes(points))


def _distances(choice: Choice) -> np.ndarray:
    """Return distances between values: 1 between categories, less between similar texts.

    Similarity of texts is the cosine of the square roots of hashed counts of words and word pairs.
    For one minus a cosine as distance d, ``exp(-w d)`` is positive semi-definite.
    """
    n = choice.n_values
    distance = 1.0 - np.eye(n + 1)
    if choice.kind == "text":
        hashed = np.array([_hashed(str(text)) for text in choice.choices])
        distance[:n, :n] = 1.0 - np.clip(hashed @ hashed.T, 0.0, 1.0)
        np.fill_diagonal(distance, 0.0)
    return distance


def _hashed(text: str) -> np.ndarray:
    """Return the unit vector of a text's words and word pairs, (N_HASHED + 1,).

    The last element belongs to a text without words, which is similar to no other.
    """
    words = text.lower().split()
    counts = np.zeros(N_HASHED + 1)
    for gram in [*words, *(f"{a} {b}" for a, b in pairwise(words))]:
        counts[zlib.crc32(gram.encode("utf-8", "surrogatepass")) % N_HASHED] += 1.0
    counts[N_HASHED] = float(not words)
    vector = np.sqrt(counts)
    return np.asarray(vector / np.linalg.norm(vector), np.float64)
