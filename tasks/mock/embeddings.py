"""``/v1/embeddings``: a hashed bag of words, of length 1; the same text, the same vector.

Each word adds ±1 to a place that the CRC-32 of the word names; texts that share words lie close.
"""

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.mock.engine import Engine
from tasks.mock.prompt_text import words
from tasks.mock.protocol import ApiError, Payload, TokenUsage, text, whole
from tasks.mock.word_pieces import count_pieces

DEFAULT_DIMENSIONS = 256
MOST_DIMENSIONS = 4096


def embed(told: str, dimensions: int) -> list[float]:
    """Return the vector of a text, (dimensions,), of length 1."""
    vector = [0.0] * dimensions
    for word in words(told) or [told]:
        code = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        vector[(code >> 1) % dimensions] += 1.0 if code & 1 else -1.0
    length = math.sqrt(sum(x * x for x in vector))
    if length == 0.0:  # words cancelled each other
        vector[zlib.crc32(told.encode("utf-8", "surrogatepass")) % dimensions] = length = 1.0
    return [x / length for x in vector]


def embeddings(brain: Engine, body: Mapping[str, Any], digest: str) -> Payload:  # noqa: ARG001 - one signature for all endpoints
    """Embed one or more texts.

    Raises:
        ApiError: the request is wrong.
    """
    model = text(body, "model")
    told = _inputs(body)
    dimensions = whole(body, "dimensions", 1, MOST_DIMENSIONS) or DEFAULT_DIMENSIONS
    form = body.get("encoding_format", "float")
    if form not in ("float", "base64"):
        raise ApiError(
            f"`encoding_format` must be float or base64, but got {form!r}.",
            param="encoding_format",
        )
    vectors = [embed(one, dimensions) for one in told]
    tokens = TokenUsage(prompt=sum(count_pieces(one) for one in told))
    return Payload(
        body={
            "object": "list",
            "model": model,
            "data": [
                {"object": "embedding", "index": i, "embedding": _encoded(vector, form)}
                for i, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": tokens.prompt, "total_tokens": tokens.prompt},
        },
        model=model,
        tokens=tokens,
    )


def _inputs(body: Mapping[str, Any]) -> list[str]:
    value = body.get("input")
    listed = [value] if isinstance(value, str) else value
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(one, str) and one for one in listed)
    ):
        raise ApiError("`input` must be a text or a list of texts, none empty.", param="input")
    return listed


def _encoded(vector: Sequence[float], form: str) -> list[float] | str:
    if form == "float":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
