"""Spaces that gain variants of a text while a run continues."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from convergence_core.space.parameters import Choice
from convergence_core.space.space import Space

_LARGEST: Final = 127
"""Of a packed coordinate."""


def widened(
    space: Space,
    variants: Mapping[str, Sequence[str]],
    vectors: Mapping[str, str] | None = None,
) -> Space:
    """Return the space with further variants of text parameters, the same where there are none.

    A variant's name is its text, as of one that was written into the configuration. Candidates keep
    their identity: it is a hash of their values.

    Args:
        space: to be widened.
        variants: text parameter → texts.
        vectors: as of ``Space.vectors``, further ones.
    """
    parameters = dict(space.parameters)
    for name, texts in variants.items():
        parameter = parameters.get(name)
        if not isinstance(parameter, Choice) or parameter.kind != "text":
            continue
        new = tuple(text for text in dict.fromkeys(texts) if text not in parameter.choices)
        parameters[name] = replace(
            parameter, choices=(*parameter.choices, *new), names=(*parameter.names, *new)
        )
    return replace(space, parameters=parameters, vectors={**space.vectors, **(vectors or {})})


def packed(vector: Sequence[float]) -> str:
    """Return a direction, (n_dims,), as a short text: a byte per coordinate, in base 64.

    A cosine of two moves by less than .01.
    """
    values = np.asarray(vector, np.float64)
    whole = np.round(values * (_LARGEST / np.abs(values).max())).astype(np.int8)
    return base64.b64encode(whole.tobytes()).decode("ascii")


def unpacked(text: str) -> np.ndarray:
    """Return the direction that ``packed`` wrote, (n_dims,), of length 1."""
    values = np.frombuffer(base64.b64decode(text), np.int8).astype(np.float64)
    return np.asarray(values / np.linalg.norm(values), np.float64)
