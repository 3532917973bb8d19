"""Prints a digest of the tiny model and of some answers, to be run in several processes."""

import hashlib
import math

from tasks.mock.completions import embed
from tasks.mock.protocol import Message, ModelRequest
from tasks.mock.responder import respond
from tasks.mock.tiny_model import encode, stories, tiny_model


def logprobs(text: str) -> list[float | None]:
    """The log-probability of each word of a text by the tiny model; the first has none."""
    ids = encode(text)
    rows = [tiny_model().row(ids[:n]) for n in range(1, len(ids))]
    return [None, *(math.log(row[i]) for row, i in zip(rows, ids[1:], strict=True))]


def digest() -> str:
    model = tiny_model()
    found = hashlib.sha256(model.weights.tobytes() + model.bigram.tobytes())
    for story in stories(20, seed=8):
        found.update(repr(logprobs(story.text)).encode())
    for i in range(20):
        said = (Message(role="user", text=f"Tell me of {i} foxes, red, blue or green? It rains."),)
        found.update(respond(ModelRequest(model="m", messages=said)).text.encode())
        found.update(repr(embed(said[0].text, 32)).encode())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest())  # noqa: T201 - for the parent
