"""Service behind the routes: counts, reads and answers requests.

A request that waits (latency, a hang) delays no other, and ends early if its client disconnects or
the server closes.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Send

from convergence_core.records import canonical_json
from tasks.mock.counts import RequestCounts
from tasks.mock.options import FaultKind, MockOptions
from tasks.mock.protocol import ApiError, Attempt, Payload, TokenUsage
from tasks.mock.responder import Engine

Answering: TypeAlias = Callable[[Engine, Attempt], Payload]
ErrorBody: TypeAlias = Callable[[int, str], Mapping[str, Any]]
"""Function that forms an error from status and message."""


class MockService:
    """State behind the routes of one server."""

    def __init__(self, options: MockOptions) -> None:
        self.options = options
        self.counts = RequestCounts()
        self.closing = asyncio.Event()
        self._engine = Engine(varies=options.varies)
        self._log = None if options.log is None else options.log.open("a", encoding="utf-8")

    def close(self) -> None:
        """Close the log; safe to call twice."""
        if self._log is not None:
            self._log.close()

    def _write(self, attempt: Attempt, fate: str, status: int, payload: Payload | None) -> None:
        """Append a line to the log and flush it to disk."""
        if self._log is None:
            return
        used = TokenUsage() if payload is None else payload.tokens
        row = {
            "hash": attempt.digest,
            "attempt": attempt.number,
            "fate": fate,
            "status": status,
            "model": None if payload is None else payload.model,
            **used.to_json(),
        }
        self._log.write(json.dumps(row) + "\n")
        self._log.flush()
        os.fsync(self._log.fileno())

    async def serve(
        self,
        request: Request,
        send: Send,
        answering: Answering,
        *,
        error_body: ErrorBody | None = None,
    ) -> None:
        """Answer one request."""
        self.counts.arrive()
        try:
            attempt = await self._read(request)
            fault, payload = self._answer(answering, attempt)
            await self._wait(request.receive, hangs=fault == "hang")
            self.counts.count("status", "200")
            readable = fault not in ("cut", "invalid") and payload.has_usage
            self.counts.answered(payload.model, payload.tokens, readable=readable)
            headers = {"x-request-id": f"req_{attempt.digest[:24]}"}
            await _send_payload(send, payload, fault, headers)
        except ApiError as error:
            body = error_body(error.status, str(error)) if error_body else error.body
            self.counts.count("status", str(error.status))
            await _send_whole(send, error.status, _encoded(body), error.headers)
        except ClientDisconnect:
            self.counts.count("abandoned")
        finally:
            self.counts.leave()

    async def _read(self, request: Request) -> Attempt:
        body = _parsed(await request.body())
        digest = _digest(request, body)
        return Attempt(
            body=body,
            digest=digest,
            number=self.counts.count("attempt", digest),
            path_params=request.path_params,
            query=request.query_params,
        )

    def _answer(self, answering: Answering, attempt: Attempt) -> tuple[FaultKind, Payload]:
        """Count an attempt, and return its fault and answer."""
        fault = self.options.fault_of(attempt.digest, attempt.number)
        try:
            if fault == "429":
                raise self._too_many()
            if fault == "500":
                raise ApiError("The server had an error on purpose.", status=500)
            payload = answering(self._engine, attempt)
        except ApiError as error:
            fate = fault if fault in ("429", "500") else "refused"
            self.counts.count("fate", fate)
            self._write(attempt, fate, error.status, None)
            raise
        self.counts.count("fate", fault)
        self._write(attempt, fault, 200, payload)
        return fault, payload

    async def _wait(self, receive: Receive, *, hangs: bool) -> None:
        """Wait for latency and hang.

        Raises:
            ApiError: the server closes.
            ClientDisconnect: the client disconnected.
        """
        seconds = self.options.latency_ms / 1000.0 + (self.options.hang_s if hangs else 0.0)
        if seconds <= 0.0:
            return
        gone = asyncio.create_task(_disconnected(receive))
        closing = asyncio.create_task(self.closing.wait())
        try:
            await asyncio.wait(
                {gone, closing}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if gone.done():
                raise ClientDisconnect
            if closing.done():
                raise ApiError("The server is closing.", status=503)
        finally:
            gone.cancel()
            closing.cancel()
            await asyncio.gather(gone, closing, return_exceptions=True)

    def _too_many(self) -> ApiError:
        seconds = f"{self.options.retry_after_s:.6g}"
        return ApiError(
            f"Rate limit reached. Please try again in {seconds}s.",
            status=429,
            code="rate_limit_exceeded",
            headers={"retry-after": seconds},
        )


# -- reading


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError("We could not parse the JSON body of your request.") from error
    if not isinstance(body, dict):
        raise ApiError("The body of your request must be a JSON object.")
    return body


def _digest(request: Request, body: Mapping[str, Any]) -> str:
    query = sorted(request.query_params.multi_items())
    try:
        text = canonical_json([request.method, request.url.path, query, body])
    except ValueError as error:
        raise ApiError("The body of your request has a number that is not finite.") from error
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# -- sending


async def _send_payload(
    send: Send, payload: Payload, fault: FaultKind, headers: Mapping[str, str]
) -> None:
    """Send an answer whole, as a stream, cut midway, or as invalid JSON."""
    if payload.events:
        await _send_stream(send, payload, fault, headers)
        return
    data = _encoded(payload.body)
    half = data[: len(data) // 2]
    if fault == "cut":
        # The announced length never arrives; the server closes the connection.
        await _start(send, 200, {**headers, "content-length": str(len(data))})
        await _part(send, half, more=True)
    else:
        await _send_whole(send, 200, half if fault == "invalid" else data, headers)


async def _send_stream(
    send: Send, payload: Payload, fault: FaultKind, headers: Mapping[str, str]
) -> None:
    lines = [b"data: " + _encoded(event) + b"\n\n" for event in payload.events]
    if payload.ends_with_done:
        lines.append(b"data: [DONE]\n\n")
    is_whole = fault not in ("cut", "invalid")
    await _start(send, 200, {**headers, "cache-control": "no-cache"}, "text/event-stream")
    for line in lines if is_whole else lines[: len(lines) // 2]:
        await _part(send, line, more=True)
    if fault != "cut":
        await _part(send, b"" if is_whole else b'data: {"id": "chat\n\n', more=False)


async def _send_whole(send: Send, status: int, data: bytes, headers: Mapping[str, str]) -> None:
    await _start(send, status, {**headers, "content-length": str(len(data))})
    await _part(send, data, more=False)


async def _start(
    send: Send, status: int, headers: Mapping[str, str], content_type: str = "application/json"
) -> None:
    listed = {"content-type": content_type, **headers}
    encoded = [(name.encode(), value.encode()) for name, value in listed.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def _part(send: Send, data: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def _encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        "utf-8", "replace"
    )
