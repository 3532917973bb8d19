"""Endpoints broken in every way we know: each cell is missing, never 0, and no secret is kept."""

import asyncio
import contextlib
import gzip
import json
import math
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from convergence_core.errors import EvaluationFault, InfrastructureFault
from tasks.calls.outcomes import fault_outcome
from tasks.secrets.redaction import Redactor
from tests.support.chat_servers import CASE, target_of
from tests.support.configurations import chat_api, http_api, loaded
from tests.support.http_targets import made_target

TOKEN = "tk-Q7vN2xLpW9rZ4cKmH8sB5dTyG1fJ"  # noqa: S105 - nobody's
GOOD = {
    "result": "1",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "1"}}
    ],
}
BODY = json.dumps(GOOD).encode()
RESET = object()
"""Ends the connection at once, whatever was sent."""


def answered(body: bytes, status: str = "200 OK", **headers: str) -> list[Any]:
    headers = {
        "content_type": "application/json",
        "content_length": str(len(body)),
        **headers,
    }
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items() if v)
    return [f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body]


def cut(n: int, *, reset: bool) -> list[Any]:
    whole = answered(BODY)[0]
    return [whole[:n], *([RESET] if reset else [])]


PLAIN, HTML = {"content_type": "text/plain"}, {"content_type": "text/html"}
PAGE = f"<html><body>502 Bad Gateway {TOKEN}</body></html>".encode()
HEAD_END = answered(BODY)[0].index(b"\r\n\r\n") + 4
ALL = len(answered(BODY)[0])

MODES: dict[str, list[Any]] = {
    "nothing": [],
    "reset at once": [RESET],
    **{
        f"{'reset' if reset else 'closed'} after {n} bytes": cut(n, reset=reset)
        for n in (1, 9, 17, 40, HEAD_END - 2, HEAD_END, HEAD_END + 1, HEAD_END + 20, ALL - 1)
        for reset in (False, True)
    },
    "half a body": answered(BODY[: len(BODY) // 2]),
    "half a body of no type": answered(BODY[: len(BODY) // 2], content_type=""),
    "empty": answered(b""),
    "empty plain": answered(b"", **PLAIN),
    "204": answered(b"", "204 No Content", content_length=""),
    "206": answered(BODY[:10], "206 Partial Content"),
    "spaces": answered(b"   \n"),
    "a page": answered(PAGE, **HTML),
    "a page as json": answered(PAGE),
    "a page as plain": answered(PAGE, **PLAIN),
    "a page with a bom": answered(b"\xef\xbb\xbf" + PAGE, **HTML),
    "upstream plain": answered(b"upstream connect error or disconnect/reset", **PLAIN),
    "upstream json": answered(b"upstream connect error or disconnect/reset"),
    "no upstream": answered(b"no healthy upstream", **PLAIN),
    "bad gateway": answered(b"Bad Gateway", **PLAIN),
    "gateway time-out": answered(b"504 Gateway Time-out\n", **PLAIN),
    "deep": answered(b"[" * 200_000 + b"]" * 200_000),
    "deep objects": answered(b'{"result":' * 100_000 + b"1" + b"}" * 100_000),
    "a huge integer": answered(b'{"result": ' + b"9" * 20_000 + b"}"),
    "two values": answered(BODY + BODY),
    "a comma at the end": answered(BODY[:-1] + b",}"),
    "single quotes": answered(b"{'result': '1'}"),
    "zeros": answered(b"\x00" * 50),
    "noise": answered(bytes(range(256)) * 4),
    "no utf-8": answered(b'{"result": "\xff\xfe\xfa"}'),
    "a wrong charset": answered(b'{"result": "\xff"}', content_type="application/json; charset=x"),
    "cut gzip": answered(gzip.compress(BODY)[:-9], content_encoding="gzip"),
    "gzip in name only": answered(BODY, content_encoding="gzip"),
    "gzip without a name": answered(gzip.compress(BODY)),
    "deflate in name only": answered(BODY, content_encoding="deflate"),
    "brotli": answered(b"\x0b\x02\x80", content_encoding="br"),
    "zstd": answered(b"\x28\xb5\x2f\xfd", content_encoding="zstd"),
    "a shorter length": answered(BODY, content_length="10"),
    "a longer length": answered(BODY, content_length="10000"),
    "a negative length": answered(BODY, content_length="-5"),
    "no number for a length": answered(BODY, content_length="many"),
    "chunks of nonsense": answered(b"zz\r\nhello", content_length="", transfer_encoding="chunked"),
    "a cut chunk": answered(b"ff\r\nhello", content_length="", transfer_encoding="chunked"),
    "no http": [b"SSH-2.0-OpenSSH_9.6\r\n"],
    "http/9": [b"HTTP/9.9 200 OK\r\n\r\n"],
    "status 999": answered(BODY, "999 What"),
    "status 99": answered(BODY, "99 What"),
    "a status of letters": answered(BODY, "abc OK"),
    "a head without an end": [b"HTTP/1.1 200 OK\r\n" + b"x-filler: " + b"a" * 300_000],
    "a thousand heads": [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000],
    "a line feed in a header": [b"HTTP/1.1 200 OK\r\nx: a\n\x00b\r\n\r\n"],
    **{
        f"status {status}": answered(f"echo {TOKEN}".encode() * 300, f"{status} X")
        for status in (301, 302, 307, 308, 401, 402, 403, 408, 409, 425, 429, 500, 502, 503, 504)
    },
    "status 520": answered(PAGE, "520 X", **HTML),
    "status 529": answered(BODY, "529 X"),
    "a loop of redirects": answered(b"", "302 Found", location="/"),
    "a redirect with a secret": answered(b"", "302 Found", location=f"/?key={TOKEN}"),
}
CHUNKED = {"content_length": "", "transfer_encoding": "chunked"}
TWICE = answered(BODY)[0].replace(b"content-length", b"content-length: 7\r\ncontent-length")
MODES |= {
    "304": answered(b"", "304 Not Modified", content_length=""),
    "300": answered(PAGE, "300 Multiple Choices", **HTML),
    "303 to no url": answered(b"", "303 See Other", location="http://[::1"),
    "101 without an end": [b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"],
    "100 and nothing more": [b"HTTP/1.1 100 Continue\r\n\r\n"],
    "103, then half a head": [b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\nx"],
    "two lengths": [TWICE],
    "a length and chunks": answered(BODY, transfer_encoding="chunked"),
    "a chunk of a negative size": answered(b"-5\r\nhello\r\n0\r\n\r\n", **CHUNKED),
    "a chunk of a huge size": answered(b"ffffffffffffffff\r\nhello", **CHUNKED),
    "chunks without a last one": answered(b"5\r\nhello\r\n", **CHUNKED),
    "gzip twice": answered(gzip.compress(gzip.compress(BODY)), content_encoding="gzip"),
    "a bomb": answered(gzip.compress(b"[" + b" " * 30_000_000), content_encoding="gzip"),
    "a bomb in chunks": answered(
        b"".join(b"100000\r\n" + b" " * 0x100000 + b"\r\n" for _ in range(12)), **CHUNKED
    ),
    "a zero in text": answered(b"upstream connect error\x00", **PLAIN),
    "utf-16": answered("{'result': ü}".encode("utf-16")),
    "a secret for a reason": answered(b"", f"503 {TOKEN}"),
    "a secret for a type": answered(PAGE, content_type=f"text/html; boundary={TOKEN}"),
    "a secret for a key of json": answered(json.dumps({TOKEN: 1}).encode(), "500 X"),
    "a secret beside zeros": answered(b"\x00".join([TOKEN.encode()] * 9), "500 X"),
    **{
        f"a retry after {when!r}": answered(b"{}", status, retry_after=when)
        for status in ("429 X", "503 X")
        for when in ("-5", "1e99", "nan", "soon", "9" * 400, "Thu, 01 Jan 1970 00:00:00 GMT",
                     "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 99 Foo 2026 99:99:99 GMT", "0x10")
    },
    **{
        f"a secret cut {cut} characters after {limit}": answered(
            b"z" * (limit + cut) + TOKEN.encode() + b"y" * 6000, "500 X"
        )
        for limit in (300, 2000, 4000)
        for cut in range(-len(TOKEN), 1, 8)
    },
}  # fmt: skip
assert len(MODES) >= 120


@contextlib.contextmanager
def broken(parts: list[Any]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that sends the parts to each request; yields its URL and what it was sent."""
    listening = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError):
                    got = b""
                    while b"\r\n\r\n" not in got or not got.rstrip().endswith(b"}"):
                        got += connection.recv(1 << 16)
                    seen.append(got)
                    for part in parts:
                        if part is RESET:  # no time to say good-bye
                            linger = struct.pack("ii", 1, 0)
                            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                        else:
                            connection.sendall(part)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", seen
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def fault_of(kind: str, url: str) -> EvaluationFault:
    auth = {"type": "bearer", "token_env": "KEY"}
    request: dict[str, Any] = {"timeout_seconds": 5}
    if kind == "http":
        target: Any = made_target(
            loaded(api=http_api(url, auth=auth, request=request)), {"KEY": TOKEN}
        )
        params: dict[str, Any] = {"k": 2}
    else:
        request["stream"] = kind == "stream"
        target = target_of(chat_api(url, auth=auth, request=request), environ={"KEY": TOKEN})
        params = {"temperature": 0.5}

    async def go() -> None:
        try:
            await target.call(params, CASE)
        finally:
            await target.aclose()

    with pytest.raises(EvaluationFault) as caught:
        asyncio.run(go())
    return caught.value


KINDS = ("http", "chat", "stream")
PLAIN_TEXTS = {
    *("a page as plain", "upstream plain", "no upstream", "bad gateway", "gateway time-out"),
    "a zero in text",
}
"""Answers of an endpoint that speaks no JSON."""


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (mode, KINDS[n % len(KINDS)] if mode not in PLAIN_TEXTS else KINDS[1 + n % 2])
        for n, mode in enumerate(MODES)
    ],
)
def test_what_breaks_is_missing_and_one_request(mode, kind):
    with broken(MODES[mode]) as (url, seen):
        fault = fault_of(kind, url)
    assert isinstance(fault, InfrastructureFault), (fault.error_type, str(fault))
    assert len(seen) == 1, "what the ledger counts once has left once"
    assert TOKEN.encode() in seen[0]
    assert 0 <= (fault.retry_after_s or 0) < math.inf
    stored = json.dumps(fault_outcome(fault, Redactor(values=[TOKEN]), keep_text=True))
    pieces = [TOKEN[i : i + 8] for i in range(len(TOKEN) - 7)]
    assert not [piece for piece in pieces if piece in stored]
    assert "Traceback" not in stored


REPORTED = {
    "a gateway's error": {"error": {"code": 502, "message": "Provider returned error"}},
    "an error of words": {"error": "upstream connect error"},
    "an overload": {"type": "error", "error": {"type": "overloaded_error"}},
    "a message alone": {"message": "Internal server error"},
    "a detail alone": {"detail": "Service Unavailable"},
    "nothing": {},
    "a list": [],
    "a text": "Bad Gateway",
    "a number": 5,
    "null": None,
}


@pytest.mark.parametrize(
    ("said", "kind"), [(said, ("chat", "stream")[n % 2]) for n, said in enumerate(REPORTED)]
)
def test_json_with_status_200_that_is_no_chat_is_missing(said, kind):
    with broken(answered(json.dumps(REPORTED[said]).encode())) as (url, seen):
        fault = fault_of(kind, url)
    assert isinstance(fault, InfrastructureFault), (fault.error_type, str(fault))
    assert len(seen) == 1
