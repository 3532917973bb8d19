"""Sending answers over ASGI: whole, as a stream, cut midway, or as something that is no JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.types import Receive, Send

from tasks.mock.faults import Fate
from tasks.mock.protocol import Payload


class Sender:
    """Sends one response."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.receive = receive
        self._send = send

    async def json(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        """Send a value as JSON."""
        await self._whole(status, encoded(body), headers, "application/json")

    async def payload(self, payload: Payload, fate: Fate, headers: Mapping[str, str]) -> None:
        """Send an answer in the way its fate has it."""
        if payload.events:
            await self._stream(payload, fate, headers)
            return
        data = encoded(payload.body)
        match fate:
            case "cut":
                # The length that is announced never comes; the server closes the connection.
                head = {**headers, "content-length": str(len(data))}
                await self._start(200, head, "application/json")
                await self._part(data[: len(data) // 2], more=True)
            case "invalid":
                await self._whole(200, data[: len(data) // 2], headers, "application/json")
            case _:
                await self._whole(200, data, headers, "application/json")

    async def _stream(self, payload: Payload, fate: Fate, headers: Mapping[str, str]) -> None:
        await self._start(200, {**headers, "cache-control": "no-cache"}, "text/event-stream")
        lines = list(_lines(payload))
        if fate not in ("cut", "invalid"):
            for line in lines:
                await self._part(line, more=True)
            await self._part(b"", more=False)
            return
        for line in lines[: len(lines) // 2]:
            await self._part(line, more=True)
        if fate == "invalid":
            await self._part(b'data: {"id": "chat\n\n', more=False)

    async def _whole(
        self, status: int, data: bytes, headers: Mapping[str, str], content_type: str
    ) -> None:
        await self._start(status, {**headers, "content-length": str(len(data))}, content_type)
        await self._part(data, more=False)

    async def _start(self, status: int, headers: Mapping[str, str], content_type: str) -> None:
        listed = [(b"content-type", content_type.encode())]
        listed += [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})

    async def _part(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


def encoded(body: Any) -> bytes:
    """Return a value as JSON bytes."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        "utf-8", "replace"
    )


def _lines(payload: Payload) -> Iterator[bytes]:
    for event in payload.events:
        yield b"data: " + encoded(event) + b"\n\n"
    if payload.ends_with_done:
        yield b"data: [DONE]\n\n"
