"""HTTP services on this machine for tests, and simulated APIs."""

import base64
import contextlib
import json
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Final, Self, TypeAlias
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class HostileAnswer:
    """Answer of a broken, overloaded or hostile service."""

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
    """HTTP server on 127.0.0.1 that records its requests; use it in a ``with`` block.

    Args:
        answer: function of a request's path and body that returns the answer.
    """

    def __init__(self, answer: Callable[[str, bytes], HostileAnswer]) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """Path, headers by lower-case name, and body of each request, in order."""

        def recorded(method: str, path: str, headers: Message, body: bytes) -> HostileAnswer:  # noqa: ARG001
            listed = {name.lower(): value for name, value in headers.items()}
            self.requests.append((path, listed, body))
            return answer(path, body)

        self._server = _server(recorded)
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

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


MOST_TOKENS: Final = 1_000
"""Maximum states of a simulated service, which drops the oldest."""


class RefusedError(Exception):
    """Refusal of a simulated service: status and JSON body."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """Request to a simulated service."""

    token: str
    query: Mapping[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """Members of a JSON body, or fields of a form.

        Raises:
            ValueError: the body is neither.
        """
        if self.body[:1] == b"{":
            return dict(json.loads(self.body))
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    def limit(self, name: str, default: int, most: int) -> int:
        """Return the number of entries that the query requests, from 1 to ``most``.

        Raises:
            ValueError: the parameter is not a number.
        """
        return max(1, min(most, int(self.query.get(name, default))))


Route: TypeAlias = Callable[..., Any]
"""(state of the token, request, groups of the pattern) → JSON body; ``None`` means status 204."""


class SimulatedService:
    r"""Simulation of an HTTP API on 127.0.0.1, with a state for each token. Thread-safe.

    It starts at its first use. A ``LookupError`` of a route means status 404, as for a path
    without a route. A malformed request (``ValueError``, ``TypeError``, ``AttributeError``,
    ``RecursionError``) gets 400::

        service = SimulatedService(
            first_state=dict,
            reads={r"GET /items/(\w+)": lambda state, request, name: state[name]},
            writes={},
            unauthorized={"error": "Unauthorized"},
            not_found={"error": "Not Found"},
        )

    Args:
        first_state: function that returns the state of a new token.
        reads: method and path pattern → route.
        writes: likewise, for routes that change the state.
        unauthorized: body of status 401, for an unknown token.
        not_found: body of status 404.
        malformed: body of status 400.
        root: prefix of all paths.
    """

    def __init__(
        self,
        *,
        first_state: Callable[[], Any],
        reads: Mapping[str, Route],
        writes: Mapping[str, Route],
        unauthorized: Any,
        not_found: Any,
        malformed: Any = None,
        root: str = "",
    ) -> None:
        self.states: OrderedDict[str, Any] = OrderedDict()
        """Token → its state."""
        self.writes: list[tuple[str, str]] = []
        """Method and path of each request that changed a state."""
        self._first_state, self._reads, self._writes = first_state, reads, writes
        self._bodies = {400: malformed, 401: unauthorized, 404: not_found}
        self._root = root
        self._lock, self._tokens = threading.Lock(), count()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Address of the API; the first call starts the server."""
        with self._lock:
            if self._server is None:
                # Otherwise abandoned clients of agents would hold their connections until they are
                # collected.
                self._server = _server(self._serve, keep_alive=False)
                threading.Thread(
                    target=self._server.serve_forever, args=(0.05,), daemon=True
                ).start()
            return f"http://127.0.0.1:{self._server.server_port}{self._root}"

    def new_token(self) -> str:
        """Return a token with a fresh state."""
        with self._lock:
            token = f"simulated-{next(self._tokens)}"
            self.states[token] = self._first_state()
            while len(self.states) > MOST_TOKENS:
                self.states.popitem(last=False)
            return token

    def answer(
        self, method: str, path: str, authorization: str, raw: bytes = b""
    ) -> tuple[int, Any]:
        """Return the status and body that answer a request."""
        parts = urlsplit(path)
        token = _token_of(authorization)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        request = SimulatedRequest(token=token, query=query, body=raw)
        with self._lock:
            if token not in self.states:
                return 401, self._bodies[401]
            try:
                body = self._routed(method, parts.path.rstrip("/"), request)
            except RefusedError as refused:
                return refused.status, refused.body
            except LookupError:
                return 404, self._bodies[404]
            except (AttributeError, RecursionError, TypeError, ValueError):
                return 400, self._bodies[400]
        return (204 if body is None else 200), body

    def _serve(self, method: str, path: str, headers: Message, raw: bytes) -> HostileAnswer:
        status, body = self.answer(method, path, headers.get("Authorization") or "", raw)
        data = b"" if body is None else json.dumps(body).encode()
        return HostileAnswer("simulated", data, status)

    def _routed(self, method: str, path: str, request: SimulatedRequest) -> Any:
        request_line = f"{method} {path.removeprefix(self._root)}"
        for pattern, route in ({**self._reads, **self._writes}).items():
            if path.startswith(self._root) and (match := re.fullmatch(pattern, request_line)):
                body = route(self.states[request.token], request, *match.groups())
                if pattern in self._writes:
                    self.writes.append((method, path))
                return body
        raise LookupError(request_line)


def _token_of(authorization: str) -> str:
    """Return the token of a header; for `Basic`, the user name."""
    scheme, _, token = authorization.partition(" ")
    if scheme != "Basic":
        return token
    try:
        return base64.b64decode(token, validate=True).decode().partition(":")[0]
    except ValueError:
        return ""


def serve_json(function: Callable[..., Any], *, port: int, path: str) -> None:
    """Serve a function as JSON over HTTP on this machine until Ctrl-C.

    A malformed request gets status 400 and the reason.

    Args:
        function: gets the members of the request's JSON object as keyword arguments.
        port: port, unless the program's first argument names another.
        path: path in the printed address.
    """

    def answer(_method: str, _path: str, _headers: Message, body: bytes) -> HostileAnswer:
        try:
            status, reply = 200, function(**json.loads(body))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            status, reply = 400, {"error": f"{type(error).__name__}: {error}"}
        return HostileAnswer("served", json.dumps(reply).encode(), status)

    with _server(answer, port=int(sys.argv[1]) if len(sys.argv) > 1 else port) as server:
        print(f"serving http://127.0.0.1:{server.server_port}{path}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # agents call tools concurrently


_Answering: TypeAlias = Callable[[str, str, Message, bytes], HostileAnswer]
"""Method, path, headers and body of a request → its answer."""


def _server(
    answering: _Answering, *, port: int = 0, keep_alive: bool = True
) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            raw = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 1_000_000))
            answer = answering(self.command, self.path, self.headers, raw)
            self.close_connection = self.close_connection or not keep_alive
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(answer.body)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base names it
            """Print nothing."""

    return _Server(("127.0.0.1", port), Handler)
