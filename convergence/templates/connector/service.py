"""Search service on this machine, in place of your own.

Start it with ``python service.py`` and leave it running. It needs nothing but Python.
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
    """Return the pages that share most words, by their first ``stem`` letters."""
    words = {word[:stem] for word in re.findall(r"[a-z]+", query.lower()) if len(word) > 2}
    points = {
        page: len(words & {word[:stem] for word in text.split()}) for page, text in PAGES.items()
    }
    hits = sorted(
        (page for page in points if points[page] >= least), key=lambda p: (-points[p], p)
    )
    return {"hits": hits, "cost_usd": 0.0001}


class SearchHandler(BaseHTTPRequestHandler):
    """Answers ``POST /search``."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or the second write of an answer waits 40 ms for the first

    def do_POST(self) -> None:
        """Answer one request; a malformed one gets status 400 and the reason."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, reply = 200, search(**json.loads(body))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            status, reply = 400, {"error": f"{type(error).__name__}: {error}"}
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    with ThreadingHTTPServer(("127.0.0.1", port), SearchHandler) as server:
        print(f"serving http://127.0.0.1:{server.server_port}/search", flush=True)
        server.serve_forever()
