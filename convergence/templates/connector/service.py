"""Search service on this machine, to replace by yours.

Start it with ``python service.py`` and leave it running.
"""

import re

from convergence.testing import serve_json

PORT = 8809
PAGES = {
    "returns": "returning a parcel sending it back",
    "refunds": "refunded money paid back to the card",
    "tracking": "tracking where a delivery is now",
    "late": "late orders that have not arrived",
    "payment": "payments by card or by transfer",
    "account": "accounts closing and deleting one",
}


def search(query: str, stem: int, least: int) -> dict[str, object]:
    """Return the pages that share the most words, compared by their first ``stem`` letters."""
    words = {word[:stem] for word in re.findall(r"[a-z]+", query.lower()) if len(word) > 2}
    points = {
        page: len(words & {word[:stem] for word in text.split()}) for page, text in PAGES.items()
    }
    hits = sorted(
        (page for page in points if points[page] >= least), key=lambda p: (-points[p], p)
    )
    return {"hits": hits, "cost_usd": 0.0001}


if __name__ == "__main__":
    serve_json(search, port=PORT, path="/search")
