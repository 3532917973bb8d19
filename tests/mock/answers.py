"""Prints a digest of the tiny model and of some answers; a test runs it in several processes."""

import hashlib

from tasks.mock.embeddings import embed
from tasks.mock.requests import Message, ModelRequest
from tasks.mock.responder import respond
from tasks.mock.tiny_model import tiny_model
from tasks.mock.tiny_world import stories


def digest() -> str:
    model = tiny_model()
    found = hashlib.sha256(model.weights.tobytes() + model.bigram.tobytes())
    for story in stories(20, seed=8):
        found.update(repr(model.logprobs(story.text)).encode())
    for i in range(20):
        said = (Message(role="user", text=f"Tell me of {i} foxes, red, blue or green? It rains."),)
        found.update(respond(ModelRequest(model="m", messages=said)).text.encode())
        found.update(repr(embed(said[0].text, 32)).encode())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest())  # noqa: T201 - for the parent
