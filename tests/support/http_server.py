"""A real HTTP server on loopback whose answers are written by the test."""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Answer:
    """What the server sends; ``body`` as JSON unless it is bytes."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """Close the connection after so many bytes of the body."""
    hangs: bool = False
    """Never answer; the connection stays open until the server closes."""


class LoopbackServer:
    """Counts what reaches it; use as a context manager."""

    def __init__(self, answer: Callable[[Request], Answer], *, delay_s: float = 0.0) -> None:
        self._answer = answer
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        self.arrived_s: list[float] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body must not wait for word of its headers

            def _serve(self) -> None:
                server.handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return None

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "LoopbackServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("content-length") or 0)
        raw = handler.rfile.read(length)
        path, _, query = handler.path.partition("?")
        request = Request(
            handler.command,
            path,
            query,
            {name.lower(): value for name, value in handler.headers.items()},
            json.loads(raw) if raw else None,
        )
        with self._lock:
            self.requests.append(request)
            self.arrived_s.append(time.monotonic())
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        answer = self._answer(request)
        if self._delay_s:
            self.closing.wait(self._delay_s)
        if answer.hangs:
            self.closing.wait()
        with self._lock:
            self.in_flight -= 1
        if not answer.hangs:
            _send(handler, answer)


class _QuietServer(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        return None  # a client that closes early is part of the tests


def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    is_raw = isinstance(answer.body, bytes)
    body = answer.body if is_raw else json.dumps(answer.body).encode()
    handler.send_response(answer.status)
    headers = {"content-type": "application/json", **answer.headers}
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    if answer.cut_after is None:
        handler.wfile.write(body)
        return
    handler.wfile.write(body[: answer.cut_after])
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def chat_answer(text: str | None, *, model: str = "served", **message: Any) -> Answer:
    """A whole answer of the chat protocol."""
    finish_reason = message.pop("finish_reason", "stop")
    return Answer(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", "content": text, **message},
                }
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )


def error_answer(status: int, message: str = "no", **headers: str) -> Answer:
    """An error of the chat protocol."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer({"error": {"message": message, "type": "t", "code": None}}, status, names)
