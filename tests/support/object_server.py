"""Loopback object storage with the few S3 or Google XML API requests that a store makes.

It keeps objects in memory and records every request. PUT honours the condition of its dialect and, like
each service, ignores the other's. It answers 412 for an existing object. Listings come in pages.
"""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 5
"""Keys per listing page, few enough to need several pages."""

CONDITIONS = {"s3": ("If-None-Match", "*"), "gs": ("x-goog-if-generation-match", "0")}
"""Scheme → header and value by which a PUT asks to replace nothing."""


class ObjectServer:
    """Buckets in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        """``bucket/key`` → bytes and when they were put."""
        self.requests: list[tuple[str, str, int]] = []
        """Method, ``bucket/key`` and status of each."""
        self.authorizations: set[str] = set()
        """Authorization headers of callers."""
        self.refuses = False
        """Whether to answer 403 to everything, as for a revoked key."""
        self.lock = threading.Lock()

    def put(self, path: str, data: bytes, *, only_new: bool) -> int:
        with self.lock:
            if only_new and path in self.objects:
                return 412
            self.objects[path] = (data, time())
            return 200

    def listing(self, bucket: str, query: dict[str, list[str]]) -> str:
        prefix = f"{bucket}/{query.get('prefix', [''])[0]}"
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        with self.lock:
            found = sorted(path for path in self.objects if path.startswith(prefix))
        keys = [path.removeprefix(f"{bucket}/") for path in found]
        left = [key for key in keys if key > after]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(_tag(*self.objects[f'{bucket}/{key}']))}</ETag>"
            f"<Size>{len(self.objects[f'{bucket}/{key}'][0])}</Size>"
            "</Contents>"
            for key in left[:PAGE]
        )
        more = len(left) > PAGE
        token = (
            f"<NextContinuationToken>{escape(left[:PAGE][-1])}</NextContinuationToken>"
            if more
            else ""
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
            f"<Name>{bucket}</Name><KeyCount>{len(left[:PAGE])}</KeyCount><MaxKeys>{PAGE}</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}"
            "</ListBucketResult>"
        )


class Handler(BaseHTTPRequestHandler):
    """One request."""

    kept: ObjectServer
    condition: tuple[str, str]
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet: the peer would wait for the second

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        name, value = self.condition
        only_new = self.headers.get(name) == value
        status = 403 if self.kept.refuses else self.kept.put(self._path, data, only_new=only_new)
        code = {412: "PreconditionFailed", 403: "AccessDenied"}.get(status)
        if code is None:
            put = self.kept.objects[self._path]
            # Google's clients want the version that was written, too, which counts microseconds.
            self._answer(
                status, b"", {"ETag": _tag(*put), "x-goog-generation": f"{put[1] * 1e6:.0f}"}
            )
        else:
            self._answer(status, _error(code))

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if self.kept.refuses:
            self._answer(403, _error("AccessDenied"))
        elif "list-type" in query:
            bucket = parts.path.strip("/").split("/")[0]
            self._answer(200, self.kept.listing(bucket, query).encode())
        else:
            self._give()

    def do_HEAD(self) -> None:
        self._give()

    def do_POST(self) -> None:
        """Delete several objects."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        bucket = urlsplit(self.path).path.strip("/")
        keys = re.findall(r"<Key>([^<]*)</Key>", body)
        with self.kept.lock:
            for key in keys:
                self.kept.objects.pop(f"{bucket}/{key}", None)
        gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        with self.kept.lock:
            gone = self.kept.objects.pop(self._path, None)
        if gone is None:  # only S3 calls that a success, and clients of it ask by POST
            self._answer(404, _error("NoSuchKey"))
        else:
            self._answer(204, b"")

    @property
    def _path(self) -> str:
        return unquote(urlsplit(self.path).path.strip("/"))

    def _give(self) -> None:
        found = self.kept.objects.get(self._path)
        if found is None:
            self._answer(404, _error("NoSuchKey"))
            return
        data, put_at = found
        headers = {"ETag": _tag(data, put_at), "Last-Modified": formatdate(put_at, usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        if asked is None:
            self._answer(200, data, headers)
            return
        start, end = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        self._answer(206, data[start : end + 1], headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.kept.requests.append((self.command, self._path, status))
        self.kept.authorizations.add(self.headers.get("authorization", ""))
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return None


@contextmanager
def object_server(scheme: str = "s3") -> Iterator[tuple[ObjectServer, str]]:
    """Serve one in the dialect of a scheme; give it and its address."""
    kept = ObjectServer()
    handler = type("Bound", (Handler,), {"kept": kept, "condition": CONDITIONS[scheme]})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield kept, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _tag(data: bytes, put_at: float) -> str:
    """Return the entity tag of one version: another PUT of the same bytes has another one."""
    return f'"{hashlib.sha256(data + str(put_at).encode()).hexdigest()}"'


def _error(code: str | None) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
