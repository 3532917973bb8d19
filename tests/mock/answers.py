"""Prints a digest of some answers, to be run in several processes."""

import hashlib

from tasks.mock.embeddings import embed
from tasks.mock.protocol import Message, ModelRequest
from tasks.mock.responder import respond


def digest() -> str:
    digest = hashlib.sha256()
    for i in range(20):
        said = (Message(role="user", text=f"Tell me of {i} foxes, red, blue or green? It rains."),)
        digest.update(respond(ModelRequest(model="m", messages=said)).text.encode())
        digest.update(repr(embed(said[0].text, 32)).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    print(digest())  # noqa: T201 - for the parent
