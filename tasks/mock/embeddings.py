"""Mock of ``/v1/embeddings``, with hashed words.

Each word adds ±1 at an index from its CRC-32. Texts that share words are close, and equal texts
have equal vectors.
"""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from tasks.mock.prompt_text import count_pieces, words
from tasks.mock.protocol import Attempt, Name, Payload, RequestBody, TokenUsage
from tasks.mock.responder import Engine

DEFAULT_DIMENSIONS = 256
MOST_DIMENSIONS = 4096


def embed(content: str, dimensions: int) -> list[float]:
    """Return the unit vector of a text, (dimensions,)."""
    vector = [0.0] * dimensions
    for word in words(content) or [content]:
        code = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        vector[(code >> 1) % dimensions] += 1.0 if code & 1 else -1.0
    length = math.sqrt(sum(x * x for x in vector))
    if length == 0.0:  # words cancelled each other out
        vector[zlib.crc32(content.encode("utf-8", "surrogatepass")) % dimensions] = length = 1.0
    return [x / length for x in vector]


class _EmbeddingsBody(RequestBody):
    model: Name
    input: Name | Annotated[list[Name], Field(min_length=1)]
    dimensions: int | None = Field(None, ge=1, le=MOST_DIMENSIONS)
    encoding_format: Literal["float", "base64"] = "float"


def embeddings(engine: Engine, attempt: Attempt) -> Payload:  # noqa: ARG001 - one signature for all endpoints
    """Embed one or more texts.

    Raises:
        ApiError: the request is invalid.
    """
    body = _EmbeddingsBody.read(attempt.body)
    inputs = [body.input] if isinstance(body.input, str) else body.input
    dimensions = body.dimensions or DEFAULT_DIMENSIONS
    tokens = TokenUsage(prompt=sum(count_pieces(text) for text in inputs))
    return Payload(
        body={
            "object": "list",
            "model": body.model,
            "data": [
                {
                    "object": "embedding",
                    "index": i,
                    "embedding": _encoded(embed(text, dimensions), body.encoding_format),
                }
                for i, text in enumerate(inputs)
            ],
            "usage": {"prompt_tokens": tokens.prompt, "total_tokens": tokens.prompt},
        },
        model=body.model,
        tokens=tokens,
    )


def _encoded(vector: Sequence[float], form: str) -> list[float] | str:
    if form == "float":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
