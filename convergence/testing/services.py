"""HTTP service on this machine that gives the answers of a test, hostile ones too."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class HostileAnswer:
    """One answer of a service that is broken, overloaded or hostile."""

    name: str
    body: bytes
    status: int = 200
    content_type: str = "application/json"


HOSTILE_ANSWERS: tuple[HostileAnswer, ...] = (
    HostileAnswer("empty", b""),
    HostileAnswer("cut off", b'{"result": "hal'),
    HostileAnswer("no JSON", b"<html>Bad gateway</html>", content_type="text/html"),
    HostileAnswer("no UTF-8", b'{"result": "\xff\xfe"}'),
    HostileAnswer("not a number", b'{"result": NaN, "score": Infinity, "cost_usd": -1e999}'),
    HostileAnswer("null", b"null"),
    HostileAnswer("a list", b"[1, 2, 3]"),
    HostileAnswer("other fields", b'{"unexpected": {"deep": true}}'),
    HostileAnswer("nested too deeply", b"[" * 20_000 + b"]" * 20_000),
    HostileAnswer("large", b'{"result": "' + b"x" * 2_000_000 + b'"}'),
    HostileAnswer("bad request", b'{"error": "no"}', status=400),
    HostileAnswer("unauthorized", b'{"error": "who are you"}', status=401),
    HostileAnswer("too many requests", b"", status=429),
    HostileAnswer("server error", b"oops", status=500, content_type="text/plain"),
    HostileAnswer("overloaded", b"", status=529),
)
"""Answers that a target must turn into a reply or a fault, never into another exception."""


class LoopbackService:
    """HTTP server on 127.0.0.1, for a ``with`` block; keeps what it was asked.

    Args:
        answer: given path and body of a request, returns its answer.
    """

    def __init__(self, answer: Callable[[str, bytes], HostileAnswer]) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """Path, headers by lower-case name, and body of each request, in order."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.requests.append((self.path, headers, body))
                told = answer(self.path, body)
                self.send_response(told.status)
                self.send_header("Content-Type", told.content_type)
                self.send_header("Content-Length", str(len(told.body)))
                self.end_headers()
                self.wfile.write(told.body)

            do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - http.server's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base names it
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        """Address without a path, e.g. ``http://127.0.0.1:40001``."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
