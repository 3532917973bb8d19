"""Embeddings of texts, by which the same in other words is found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.records import Json, sha256_hex
from tasks.rlp.model_calls import SAO, Model, Purpose, ThoughtAsker, UnreadableAnswerError

DIGITS: Final = 4
"""Of each coordinate that the journal keeps; a cosine moves by less than 1e-4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """A model of the endpoint `embeddings`."""

    model: Model
    purpose: Purpose = SAO
    """Who pays."""

    async def vector(self, text: str, asker: ThoughtAsker) -> np.ndarray:
        """Return the direction of a text, (n_dims,), of length 1; each text is asked once in a run.

        Raises:
            EvaluationFault: there is none.
        """
        call = self.model.embed(self.purpose, text, _kept)
        answered = await asker.ask(call, f"embedding/{sha256_hex(text)[:16]}")
        return np.asarray(answered.reply.value, np.float64)


def _kept(raw: Mapping[str, Json]) -> Json:
    data = raw.get("data")
    first = data[0] if isinstance(data, list) and data else None
    values = first.get("embedding") if isinstance(first, dict) else None
    try:
        vector = np.asarray(values, np.float64)
        length = float(np.linalg.norm(vector))
    except (TypeError, ValueError):
        raise UnreadableAnswerError("it holds no vector of numbers") from None
    if vector.ndim != 1 or not vector.size or not 0.0 < length < np.inf:
        raise UnreadableAnswerError("it holds no vector of numbers")
    kept: list[Json] = np.round(vector / length, DIGITS).tolist()
    return kept
