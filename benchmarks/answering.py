"""Minimal loopback server for measuring its clients."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

Answer: TypeAlias = Callable[[bytes], tuple[bytes, float]]
"""Maps a request's lower-case head to the response and its delay in seconds."""


def response(body: Any) -> bytes:
    """Return a complete HTTP response with a JSON body."""
    data = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class Answerer(asyncio.Protocol):
    """Protocol that answers each request from its head alone."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._transport: asyncio.WriteTransport | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport for answers."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer all complete requests."""
        assert self._transport is not None
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            _, _, rest = head.partition(b"content-length:")
            whole = end + 4 + int(rest.partition(b"\r\n")[0] or b"0")
            if len(self._data) < whole:
                return
            self._data = self._data[whole:]
            told, delay_s = self._answer(head)
            if delay_s:
                asyncio.get_running_loop().call_later(delay_s, self._transport.write, told)
            else:
                self._transport.write(told)


async def serve(answer: Answer) -> None:
    """Serve on a free loopback port and print it, until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answerer(answer), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


@contextlib.contextmanager
def serving(module: str, arguments: Sequence[str]) -> Iterator[str]:
    """Run a serving module in a separate process and return its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.communicate()
