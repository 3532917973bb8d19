"""One request's way through the server: counted, checked, its fate met, answered, logged, sent.

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
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from convergence_core.errors import ConfigurationError, Problem
from convergence_core.records import canonical_json
from tasks.mock import gemini
from tasks.mock.counts import RequestCounts, RequestLog
from tasks.mock.engine import Engine, UntrainedError
from tasks.mock.faults import (
    TOKENS_PER_MINUTE,
    UNLIMITED_RPM,
    Bucket,
    Fate,
    fate_of,
    retry_after,
)
from tasks.mock.options import MockOptions
from tasks.mock.protocol import ApiError, Payload, TokenUsage
from tasks.mock.responses import Sender
from tasks.mock.tiny_model import tiny_model

Body: TypeAlias = Mapping[str, Any]
Answering: TypeAlias = Callable[[Engine, Body, str], Payload]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a request."""

    body: Body
    digest: str
    """Hash of the request; equal requests have equal ones."""
    number: int
    """How often the request has come, this time included."""
    path: str
    in_flight: int
    """Requests in flight when it came, itself included."""


class MockService:
    """The state behind the routes of one server."""

    def __init__(self, options: MockOptions) -> None:
        self.options = options
        self.brain = Engine(fault_modes=options.fault_modes, strict=options.strict)
        self.counts = RequestCounts()
        self.closing = asyncio.Event()
        self._key = _key(options)
        self._log = None if options.log is None else RequestLog(options.log)
        self._requests = Bucket(options.limit_rpm or UNLIMITED_RPM, time.monotonic)
        self._tokens = Bucket(TOKENS_PER_MINUTE, time.monotonic)

    def reset(self) -> None:
        """Forget counts, attempts and earlier prompts."""
        self.counts.reset()
        self.brain.reset()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    async def serve(
        self, request: Request, sender: Sender, answering: Answering, *, google: bool
    ) -> None:
        """Answer one request."""
        in_flight = self.counts.arrive()
        try:
            await self._serve(request, sender, answering, in_flight)
        except ApiError as error:
            message = str(error)
            body = gemini.error_body(error.status, message) if google else error.body
            self.counts.status(error.status)
            await sender.json(error.status, body, {**self._headers(), **error.headers})
        except ClientDisconnect:
            self.counts.abandoned()
        finally:
            self.counts.leave()

    async def _serve(
        self, request: Request, sender: Sender, answering: Answering, in_flight: int
    ) -> None:
        raw = await request.body()
        if self._key is not None and not _carries(request, self._key):
            raise ApiError("Incorrect API key provided.", status=401, code="invalid_api_key")
        body = _parsed(raw)
        digest = _digest(request, body)
        attempt = Attempt(
            body=body,
            digest=digest,
            number=self.counts.attempt(digest, time.monotonic()),
            path=request.url.path,
            in_flight=in_flight,
        )
        fate, payload = await self._meet(answering, attempt)
        await self._wait(sender, hangs=fate == "hang")
        self._book(payload, fate, digest)
        headers = {**self._headers(), "x-request-id": f"req_{digest[:24]}"}
        await sender.payload(payload, fate, headers)

    async def _meet(self, answering: Answering, attempt: Attempt) -> tuple[Fate, Payload]:
        """Return what happens to an attempt and its answer, once they are counted and logged."""
        digest = attempt.digest
        row = {"hash": digest, "attempt": attempt.number, "path": attempt.path}
        fate = fate_of(self.options, digest, attempt.number)
        wait_s = self._limit_s(attempt.in_flight)
        met: str = "limit" if wait_s is not None else fate
        try:
            if wait_s is not None:
                raise self._too_many(digest, wait_s)
            if fate == "429":
                raise self._too_many(digest, self.options.retry_after_s)
            if fate == "500":
                raise ApiError("The server had an error on purpose.", status=500)
            payload = await self._answer(answering, attempt.body, digest)
        except ApiError as error:
            met = met if met in ("limit", "429", "500") else "refused"
            self.counts.fate(met)
            await self._write(
                {**row, "fate": met, "status": error.status, **TokenUsage().to_json()}
            )
            raise
        self.counts.fate(met)
        told = {"model": payload.model, **payload.tokens.to_json()}
        await self._write({**row, "fate": met, "status": 200, **told})
        return fate, payload

    def _book(self, payload: Payload, fate: Fate, digest: str) -> None:
        whole = fate not in ("cut", "invalid")
        self.counts.status(200)
        self.counts.answered(
            digest,
            payload.model,
            payload.tokens,
            whole=whole,
            told=whole and payload.tells_usage,
        )
        self._tokens.drain(payload.tokens.prompt + payload.tokens.completion)

    async def _answer(self, answering: Answering, body: Body, digest: str) -> Payload:
        try:
            return answering(self.brain, body, digest)
        except UntrainedError:
            await asyncio.to_thread(tiny_model)
            return answering(self.brain, body, digest)

    async def _wait(self, sender: Sender, *, hangs: bool) -> None:
        """Wait for latency and hang; raises if the client or the server goes away."""
        seconds = self.options.latency_ms / 1000.0 + (self.options.hang_s if hangs else 0.0)
        if seconds <= 0.0:
            return
        gone = asyncio.create_task(_disconnected(sender.receive))
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
        """Return the seconds after which a request may come again; ``None``: it may pass."""
        concurrency = self.options.limit_concurrency
        if concurrency is not None and in_flight > concurrency:
            return self.options.retry_after_s
        if self.options.limit_rpm is None:
            self._requests.drain(1.0)
            return None
        wait_s = self._requests.take()
        return wait_s if wait_s > 0.0 else None

    def _too_many(self, digest: str, seconds: float) -> ApiError:
        headers, asked_s = retry_after(self.options, seconds, time.time())
        self.counts.pause(digest, time.monotonic() + asked_s)
        return ApiError(
            f"Rate limit reached. Please try again in {seconds:.3g}s.",
            status=429,
            code="rate_limit_exceeded",
            headers=headers,
        )

    def _headers(self) -> dict[str, str]:
        requests, tokens = self._requests, self._tokens
        return {
            "x-ratelimit-limit-requests": f"{self.options.limit_rpm or UNLIMITED_RPM:.0f}",
            "x-ratelimit-remaining-requests": str(requests.remaining),
            "x-ratelimit-reset-requests": f"{requests.reset_s * 1000.0:.0f}ms",
            "x-ratelimit-limit-tokens": f"{TOKENS_PER_MINUTE:.0f}",
            "x-ratelimit-remaining-tokens": str(tokens.remaining),
            "x-ratelimit-reset-tokens": f"{tokens.reset_s * 1000.0:.0f}ms",
        }

    async def _write(self, row: dict[str, Any]) -> None:
        if self._log is not None:
            await asyncio.to_thread(self._log.write, row)


def _key(options: MockOptions) -> str | None:
    if options.key_env is None:
        return None
    key = os.environ.get(options.key_env)
    if not key:
        problem = Problem(
            key="require_key",
            rule="must name an environment variable that is set",
            value=options.key_env,
            fix=f"Set it: export {options.key_env}=…",
        )
        raise ConfigurationError([problem])
    return key


def _carries(request: Request, key: str) -> bool:
    headers = request.headers
    carried = (
        headers.get("authorization", "").removeprefix("Bearer "),
        headers.get("api-key", ""),
        headers.get("x-goog-api-key", ""),
        request.query_params.get("key", ""),
    )
    return any(hmac.compare_digest(one.encode(), key.encode()) for one in carried)


def _parsed(raw: bytes) -> Body:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError("We could not parse the JSON body of your request.") from error
    if not isinstance(body, dict):
        raise ApiError("The body of your request must be a JSON object.")
    return body


def _digest(request: Request, body: Body) -> str:
    query = sorted((k, v) for k, v in request.query_params.multi_items() if k != "key")
    try:
        text = canonical_json([request.method, request.url.path, query, body])
    except ValueError as error:
        raise ApiError("The body of your request has a number that is not finite.") from error
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
