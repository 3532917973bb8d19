"""Embeddings of prompts, by which the same question in other words is found."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.records import Json, sha256_hex
from tasks.rlp.model_calls import SAO, Model, ThoughtAsker, UnreadableAnswerError
from tasks.sao.writer import FailedError, reply_of

DIGITS: Final = 4
"""Of each coordinate that the journal keeps; a cosine moves by less than 1e-4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """A model of the endpoint `embeddings`."""

    model: Model

    async def vector(self, text: str, asker: ThoughtAsker) -> np.ndarray:
        """Return the direction of a text, (n_dims,), of length 1; each text is asked once in a run.

        Raises:
            FailedError: there is none.
        """
        body: dict[str, Json] = {"input": text, "encoding_format": "float"}
        call = self.model.exchange(SAO, "embeddings", body, read=_kept)
        reply = await reply_of(lambda: call, f"embedding/{sha256_hex(text)[:16]}", asker)
        return np.asarray(reply.value, np.float64)

    async def vectors(
        self, texts: Iterable[str], asker: ThoughtAsker
    ) -> tuple[dict[str, np.ndarray], list[str]]:
        """Return text → vector, and why others have none."""
        wanted = list(dict.fromkeys(texts))
        found = await asyncio.gather(
            *(self.vector(text, asker) for text in wanted), return_exceptions=True
        )
        vectors, failed = {}, []
        for text, one in zip(wanted, found, strict=True):
            if isinstance(one, FailedError):
                failed.append(str(one))
            elif isinstance(one, BaseException):
                raise one
            else:
                vectors[text] = one
        return vectors, failed


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
