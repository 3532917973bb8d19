"""Service behind the routes: requests counted, checked, answered, logged.

A request that waits (latency, a hang) holds up no other, and stops waiting when its client goes
away or the server closes.
"""

import asyncio
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Send

from convergence_core.budget.rate_limit import TokenBucket
from convergence_core.errors import ConfigurationError
from convergence_core.records import canonical_json
from tasks.mock.counts import RequestCounts, RequestLog
from tasks.mock.engine import Engine
from tasks.mock.options import FaultKind, MockOptions
from tasks.mock.protocol import ApiError, Attempt, Payload, TokenUsage

Answering: TypeAlias = Callable[[Engine, Attempt], Payload]
ErrorBody: TypeAlias = Callable[[int, str], Mapping[str, Any]]
"""Shape of an error, by status and message."""

UNLIMITED_RPM = 6e8
"""What the headers call the limit where there is none: more than any client sends, so that one
which heeds the headers is not slowed down."""
TOKENS_PER_MINUTE = 6e11
"""What the headers call the limit of tokens, which is never enforced."""


class MockService:
    """The state behind the routes of one server."""

    def __init__(self, options: MockOptions) -> None:
        self.options = options
        self.counts = RequestCounts()
        self.closing = asyncio.Event()
        self._engine = Engine(varies=options.varies)
        self._key = _key(options)
        self._log = None if options.log is None else RequestLog(options.log)
        now_s = time.monotonic()
        self._requests = TokenBucket((options.limit_rpm or UNLIMITED_RPM) / 60.0, now_s)
        self._tokens = TokenBucket(TOKENS_PER_MINUTE / 60.0, now_s)

    def reset(self) -> None:
        """Forget counts, attempts and earlier prompts."""
        self.counts.reset()
        self._engine.reset()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    async def serve(
        self,
        request: Request,
        send: Send,
        answering: Answering,
        *,
        error_body: ErrorBody | None = None,
    ) -> None:
        """Answer one request."""
        in_flight = self.counts.arrive()
        try:
            attempt = await self._read(request, in_flight)
            fault, payload = await self._answer(answering, attempt)
            await self._wait(request.receive, hangs=fault == "hang")
            self._count(payload, fault, attempt.digest)
            headers = {**self._headers(), "x-request-id": f"req_{attempt.digest[:24]}"}
            await _send_payload(send, payload, fault, headers)
        except ApiError as error:
            body = error_body(error.status, str(error)) if error_body else error.body
            self.counts.status(error.status)
            headers = {**self._headers(), **error.headers}
            await _send_whole(send, error.status, _encoded(body), headers)
        except ClientDisconnect:
            self.counts.abandoned()
        finally:
            self.counts.leave()

    def admits(self, request: Request) -> bool:
        """Whether a request carries the key, if one is required."""
        return self._key is None or _carries(request, self._key)

    async def _read(self, request: Request, in_flight: int) -> Attempt:
        raw = await request.body()
        if not self.admits(request):
            raise ApiError("Incorrect API key provided.", status=401, code="invalid_api_key")
        body = _parsed(raw)
        digest = _digest(request, body)
        return Attempt(
            body=body,
            digest=digest,
            number=self.counts.attempt(digest, time.monotonic()),
            path=request.url.path,
            path_params=request.path_params,
            query=request.query_params,
            in_flight=in_flight,
        )

    async def _answer(self, answering: Answering, attempt: Attempt) -> tuple[FaultKind, Payload]:
        """Return the fault of an attempt and its answer, once they are counted and logged."""
        row = {"hash": attempt.digest, "attempt": attempt.number, "path": attempt.path}
        fault = self.options.fault_of(attempt.digest, attempt.number)
        wait_s = self._limit_s(attempt.in_flight)
        kind: str = "limit" if wait_s is not None else fault
        try:
            if wait_s is not None:
                raise self._too_many(attempt.digest, wait_s)
            if fault == "429":
                raise self._too_many(attempt.digest, self.options.retry_after_s)
            if fault == "500":
                raise ApiError("The server had an error on purpose.", status=500)
            payload = answering(self._engine, attempt)
        except ApiError as error:
            kind = kind if kind in ("limit", "429", "500") else "refused"
            self.counts.fault(kind)
            used = TokenUsage().to_json()
            await self._write({**row, "fate": kind, "status": error.status, **used})
            raise
        self.counts.fault(kind)
        used = payload.tokens.to_json()
        await self._write({**row, "fate": kind, "status": 200, "model": payload.model, **used})
        return fault, payload

    def _count(self, payload: Payload, fault: FaultKind, digest: str) -> None:
        whole, tokens = fault not in ("cut", "invalid"), payload.tokens
        readable = whole and payload.has_usage
        self.counts.status(200)
        self.counts.answered(digest, payload.model, tokens, whole=whole, readable=readable)
        self._tokens.drain(time.monotonic(), tokens.prompt + tokens.completion)

    async def _wait(self, receive: Receive, *, hangs: bool) -> None:
        """Wait for latency and hang.

        Raises:
            ApiError: the server closes.
            ClientDisconnect: the client went away.
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

    def _limit_s(self, in_flight: int) -> float | None:
        """Return the seconds after which a request may come again; ``None`` if it may pass."""
        concurrency = self.options.limit_concurrency
        if concurrency is not None and in_flight > concurrency:
            return self.options.retry_after_s
        if self.options.limit_rpm is None:
            self._requests.drain(time.monotonic(), 1.0)
            return None
        return self._requests.take(time.monotonic()) or None

    def _too_many(self, digest: str, seconds: float) -> ApiError:
        headers, pause_s = self.options.retry_after(seconds, time.time())
        self.counts.pause(digest, time.monotonic() + pause_s)
        return ApiError(
            f"Rate limit reached. Please try again in {seconds:.3g}s.",
            status=429,
            code="rate_limit_exceeded",
            headers=headers,
        )

    def _headers(self) -> dict[str, str]:
        requests, tokens, now_s = self._requests, self._tokens, time.monotonic()
        return {
            "x-ratelimit-limit-requests": f"{self.options.limit_rpm or UNLIMITED_RPM:.0f}",
            "x-ratelimit-remaining-requests": str(requests.remaining(now_s)),
            "x-ratelimit-reset-requests": f"{requests.reset_s(now_s) * 1000.0:.0f}ms",
            "x-ratelimit-limit-tokens": f"{TOKENS_PER_MINUTE:.0f}",
            "x-ratelimit-remaining-tokens": str(tokens.remaining(now_s)),
            "x-ratelimit-reset-tokens": f"{tokens.reset_s(now_s) * 1000.0:.0f}ms",
        }

    async def _write(self, row: dict[str, Any]) -> None:
        if self._log is not None:
            await asyncio.to_thread(self._log.write, row)


# -- reading


def _key(options: MockOptions) -> str | None:
    if options.key_env is None:
        return None
    key = os.environ.get(options.key_env)
    if not key:
        rule, fix = "must name an environment variable that is set", "Set it: export"
        raise ConfigurationError.of(
            "require_key", rule, f"{fix} {options.key_env}=…", value=options.key_env
        )
    return key


def _carries(request: Request, key: str) -> bool:
    headers = request.headers
    carried = (
        headers.get("authorization", "").removeprefix("Bearer "),
        headers.get("api-key", ""),
        headers.get("x-goog-api-key", ""),
        headers.get("x-api-key", ""),
        headers.get("x-bb-api-key", ""),
        request.query_params.get("key", ""),
    )
    return any(hmac.compare_digest(candidate.encode(), key.encode()) for candidate in carried)


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError("We could not parse the JSON body of your request.") from error
    if not isinstance(body, dict):
        raise ApiError("The body of your request must be a JSON object.")
    return body


def _digest(request: Request, body: Mapping[str, Any]) -> str:
    query = sorted((k, v) for k, v in request.query_params.multi_items() if k != "key")
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
    """Send an answer whole, as a stream, cut midway, or as something that is no JSON."""
    if payload.events:
        await _send_stream(send, payload, fault, headers)
        return
    data = _encoded(payload.body)
    half = data[: len(data) // 2]
    if fault == "cut":
        # The length that is announced never comes; the server closes the connection.
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
