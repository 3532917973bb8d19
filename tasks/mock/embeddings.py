"""``/v1/embeddings``: hashed words.

Each word adds ±1 to a place that the CRC-32 of the word names; texts that share words lie close,
and the same text has the same vector.
"""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from tasks.mock.prompt_text import count_pieces, words
from tasks.mock.protocol import ApiError, Attempt, Payload, TokenUsage, text, whole
from tasks.mock.responder import Engine

DEFAULT_DIMENSIONS = 256
MOST_DIMENSIONS = 4096


def embed(content: str, dimensions: int) -> list[float]:
    """Return the vector of a text, (dimensions,), of length 1."""
    vector = [0.0] * dimensions
    for word in words(content) or [content]:
        code = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        vector[(code >> 1) % dimensions] += 1.0 if code & 1 else -1.0
    length = math.sqrt(sum(x * x for x in vector))
    if length == 0.0:  # words cancelled each other
        vector[zlib.crc32(content.encode("utf-8", "surrogatepass")) % dimensions] = length = 1.0
    return [x / length for x in vector]


def embeddings(engine: Engine, attempt: Attempt) -> Payload:  # noqa: ARG001 - one signature for all endpoints
    """Embed one or more texts.

    Raises:
        ApiError: the request is wrong.
    """
    body = attempt.body
    model = text(body, "model")
    inputs: Any = body.get("input")
    inputs = inputs if isinstance(inputs, list) else [inputs]
    if not inputs or not all(isinstance(text, str) and text for text in inputs):
        raise ApiError("`input` must be a text or a list of texts, none empty.", param="input")
    dimensions = whole(body, "dimensions", 1, MOST_DIMENSIONS) or DEFAULT_DIMENSIONS
    form = body.get("encoding_format", "float")
    if form not in ("float", "base64"):
        rule = f"`encoding_format` must be float or base64, but got {form!r}."
        raise ApiError(rule, param="encoding_format")
    tokens = TokenUsage(prompt=sum(count_pieces(text) for text in inputs))
    return Payload(
        body={
            "object": "list",
            "model": model,
            "data": [
                {
                    "object": "embedding",
                    "index": i,
                    "embedding": _encoded(embed(text, dimensions), form),
                }
                for i, text in enumerate(inputs)
            ],
            "usage": {"prompt_tokens": tokens.prompt, "total_tokens": tokens.prompt},
        },
        model=model,
        tokens=tokens,
    )


def _encoded(vector: Sequence[float], form: str) -> list[float] | str:
    if form == "float":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
