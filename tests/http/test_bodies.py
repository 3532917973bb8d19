"""Answers of any size and coding: never read beyond the limit, by any client."""

import asyncio
import contextlib
import gzip
import random
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import repeat
from typing import Any

import httpx
import pytest

from convergence.client import AsyncClient, Client, ServiceRefusedError
from convergence_core.config.evaluation import LlmConfig
from convergence_core.errors import CandidateFault, InfrastructureFault
from tasks.http.bodies import MAX_ERROR_BYTES, TOO_LARGE
from tasks.http.clients import ClientSettings
from tasks.providers import make_llm
from tasks.secrets.redaction import Secrets
from tests.support import chat_servers, http_targets
from tests.support.configurations import chat_api, http_api
from tests.support.http_server import Answer, LoopbackServer

LIMIT = 200_000
JSON = {"content-type": "application/json"}
MIB = b" " * (1 << 20)


class RawServer:
    """Sends the same bytes to whoever connects, as long as they read."""

    def __init__(self, parts: Callable[[], Iterator[bytes]]) -> None:
        self._parts = parts
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.n_requests = 0
        self.n_sent = 0

    def __enter__(self) -> "RawServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1 << 20)
                    self.n_requests += 1
                    for part in self._parts():
                        connection.sendall(part)
                        self.n_sent += len(part)


def head(**headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return ("HTTP/1.1 200 OK\r\n" + "".join(lines) + "connection: close\r\n\r\n").encode()


def raw_deflate(data: bytes) -> bytes:
    maker = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return maker.compress(data) + maker.flush()


@cache
def bomb(n_mib: int) -> bytes:
    maker = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    return b"".join([*(maker.compress(MIB) for _ in range(n_mib)), maker.flush()])


def endless(start: bytes, more: bytes) -> Callable[[], Iterator[bytes]]:
    def parts() -> Iterator[bytes]:
        yield start
        yield from repeat(more)

    return parts


ENDLESS = {
    "a body without an end": endless(head(content_type="application/json"), b" " * 65_536),
    "a line of a stream without an end": endless(
        head(content_type="text/event-stream") + b"data: ", b"x" * 65_536
    ),
    "a stream without an end": endless(
        head(content_type="text/event-stream"),
        b'data: {"choices": [{"index": 0, "delta": {"content": "abcdefgh"}}]}\n\n' * 500,
    ),
    "a stream of comments": endless(head(content_type="text/event-stream"), b": alive\n" * 5_000),
    "chunks without an end": endless(
        head(content_type="application/json", transfer_encoding="chunked"),
        b"1000\r\n" + b" " * 4096 + b"\r\n",
    ),
}


def clients(url: str) -> dict[str, Callable[[], Any]]:
    request: dict[str, Any] = {"max_response_bytes": LIMIT}
    streamed = {**request, "stream": True}

    def judge() -> Any:
        llm = {"model": "openai/m", "endpoint": url}
        made = make_llm(LlmConfig.model_validate(llm), Secrets({}), max_response_bytes=LIMIT)

        async def go() -> Any:
            try:
                return await made.complete([{"role": "user", "content": "x"}], model="m")
            finally:
                await made.aclose()

        return asyncio.run(go())

    return {
        "http": lambda: http_targets.ask(http_api(url, request=request)),
        "chat": lambda: chat_servers.ask(chat_api(url, request=request)),
        "chat streamed": lambda: chat_servers.ask(chat_api(url, request=streamed)),
        "judge": judge,
    }


CLIENTS = [*clients("http://127.0.0.1:1")]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("form", [*ENDLESS])
def test_an_answer_without_an_end_is_left_at_the_limit(client, form):
    with RawServer(ENDLESS[form]) as server:
        with pytest.raises(InfrastructureFault) as caught:
            clients(server.url)[client]()
        assert server.n_requests == 1
    fault = caught.value
    assert (fault.error_type, fault.retryable, fault.may_be_billed) == (TOO_LARGE, False, True)
    assert "`max_response_bytes`" in str(fault)
    assert "200,000" in str(fault)


CODED: dict[str, tuple[Callable[[], bytes], str]] = {
    "gzip": (lambda: bomb(64), "gzip"),
    "x-gzip": (lambda: bomb(64), "x-gzip"),
    "deflate": (lambda: zlib.compress(MIB * 64), "deflate"),
    "raw deflate": (lambda: raw_deflate(MIB * 64), "deflate"),
    "twice": (lambda: gzip.compress(bomb(256)), "gzip, gzip"),
    "many members": (lambda: bomb(1) * 64, "gzip"),
}


@cache
def coded(form: str) -> bytes:
    make, _ = CODED[form]
    return make()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("form", [*CODED])
def test_a_small_body_that_decodes_to_a_large_one_takes_no_memory(client, form):
    body, coding = coded(form), CODED[form][1]
    answer = Answer(body, headers={**JSON, "content-encoding": coding})
    with LoopbackServer(lambda _: answer) as server:
        ask = clients(server.url)[client]
        with pytest.raises(InfrastructureFault):  # what is imported at the first use
            ask()
        tracemalloc.start()
        try:
            with pytest.raises(InfrastructureFault) as caught:
                ask()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert caught.value.error_type == TOO_LARGE
    assert peak < 8_000_000, f"{peak:,} bytes for a limit of {LIMIT:,}"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "gzip, gzip, gzip", "compress", "x"])
def test_codings_that_were_not_asked_for_are_refused(coding):
    answer = Answer(b"\x00" * 100, headers={**JSON, "content-encoding": coding})
    with LoopbackServer(lambda _: answer) as server:
        with pytest.raises(InfrastructureFault, match="gzip and deflate") as caught:
            http_targets.ask(http_api(server.url))
        assert server.requests[0].headers["accept-encoding"] == "gzip, deflate"
    assert (caught.value.error_type, caught.value.retryable) == ("bad_body", False)


@pytest.mark.parametrize(
    ("pack", "coding"),
    [
        (bytes, "identity"), (gzip.compress, "gzip"), (zlib.compress, "deflate"),
        (raw_deflate, "Deflate"), (lambda b: gzip.compress(zlib.compress(b)), "deflate, gzip"),
        (lambda b: gzip.compress(b[:9]) + gzip.compress(b[9:]) + b"\0\0", "gzip"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 65_536, 131_072, 199_000])
def test_encoded_answers_below_the_limit_are_read_whole(pack, coding, size):
    text = "".join(random.Random(size).choices("abcdef", k=size))
    packed = pack(f'{{"result": "{text}"}}'.encode())
    answer = Answer(packed, headers={**JSON, "content-encoding": coding})
    with LoopbackServer(lambda _: answer) as server:
        api = http_api(server.url, request={"max_response_bytes": LIMIT})
        assert http_targets.ask(api).value == text


@pytest.mark.parametrize("n", [1, 5, 30])
def test_an_encoded_answer_that_is_cut_off_is_no_answer(n):
    packed = gzip.compress(b'{"result": "' + random.Random(1).randbytes(40).hex().encode() + b'"}')
    fault = http_targets.fault_of(
        Answer(packed[:-n], headers={**JSON, "content-encoding": "gzip"})
    )
    assert (fault.fault, fault.error_type) == ("infrastructure", "network")


@pytest.mark.parametrize(("status", "kind"), [(400, CandidateFault), (500, InfrastructureFault)])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_an_endless_error_keeps_its_status(status, kind, coding):
    body = b"k is too large " * 1_000_000
    packed = gzip.compress(body) if coding == "gzip" else body
    fault = http_targets.fault_of(Answer(packed, status, {"content-encoding": coding}))
    assert isinstance(fault, kind)
    assert fault.error_type == f"http_{status}"
    assert fault.details == body[:MAX_ERROR_BYTES].decode()


def test_a_stream_whose_end_never_comes_after_its_last_word_is_an_answer():
    said = (
        b'data: {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}'
    )
    form = endless(
        head(content_type="text/event-stream") + said + b"\n\ndata: [DONE]\n\n", b": x\n" * 9_999
    )
    with RawServer(form) as server:
        assert clients(server.url)["chat streamed"]().value == "hi"


@pytest.mark.parametrize("coding", ["identity", "gzip", "br"])
def test_clients_of_the_service_read_no_endless_answer_either(coding):
    body = bomb(64) if coding == "gzip" else b" " * 12_000_000
    answer = Answer(body, headers={**JSON, "content-encoding": coding})
    with LoopbackServer(lambda _: answer) as server:
        with (
            Client(server.url, token="t" * 40) as client,
            pytest.raises(ServiceRefusedError, match=r"more than 10,000,000 bytes|encoded as br"),
        ):
            client.arms("s")

        async def go() -> None:
            async with AsyncClient(server.url, token="t" * 40) as client:
                await client.arms("s")

        with pytest.raises(ServiceRefusedError):
            asyncio.run(go())
        assert len(server.requests) == 2


def test_what_a_proxy_of_the_environment_sends_is_limited_too(monkeypatch):
    with RawServer(ENDLESS["a body without an end"]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NO_PROXY", "")

        async def go() -> httpx.Response:
            async with ClientSettings(max_response_bytes=LIMIT).open() as client:
                return await client.get("http://somewhere.invalid/")

        with pytest.raises(InfrastructureFault) as caught:
            asyncio.run(go())
    assert caught.value.error_type == TOO_LARGE
