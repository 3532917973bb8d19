"""Middleware for tokens, rates and length of bodies.

One plain ASGI layer before the application, so that a refusal costs next to nothing and no route
can forget to ask.
"""

import asyncio
import time
from collections.abc import Collection

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from convergence.service.metrics import Metrics
from convergence.service.problems import ProblemResponse, RequestRefusedError
from convergence.service.tokens import Scope as TokenScope, Token, TokenRegistry
from convergence_core.budget.rate_limit import TokenBucket

TOKEN = "convergence.token"  # noqa: S105 - a key, not a secret
_BODY_S = 30.0
"""Seconds in which a body has to arrive."""


def require(request: Request, *scopes: TokenScope) -> None:
    """Refuse a request whose token has none of these scopes.

    Raises:
        RequestRefusedError: it has none.
    """
    if not request.scope[TOKEN].may(*scopes):
        raise RequestRefusedError(403, f"This token lacks the scope {' or '.join(scopes)}.")


class AuthMiddleware:
    """The layer before the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: TokenRegistry,
        metrics: Metrics,
        max_body: int,
        rate: float | None,
        open_paths: Collection[str] = (),
    ) -> None:
        """Guard an application.

        Args:
            app: what is guarded.
            tokens: those that are known.
            metrics: counts every answer.
            max_body: longest body, in bytes.
            rate: requests a second of each token; ``None``: no limit.
            open_paths: paths that need no token.
        """
        self._app, self._tokens, self._metrics = app, tokens, metrics
        self._max_body, self._rate = max_body, rate
        self._open = frozenset(open_paths)
        self._buckets: dict[str, TokenBucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._pass(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "")
            self._metrics.answered(route, status or 499, time.perf_counter() - begun)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in self._open:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        token = self._tokens.of(headers.get(b"authorization"))
        refusal = self._refusal(token)
        if refusal is None and _has_nul(scope):
            refusal = ProblemResponse(404, "No name has the character 0.")
        if refusal is None:
            body = await self._body(headers.get(b"content-length"), receive)
            if isinstance(body, bytes):
                scope[TOKEN] = token
                await self._app(scope, _replayed(body, receive), send)
                return
            refusal = body
        await refusal(scope, receive, send)

    def _refusal(self, token: Token | None) -> ProblemResponse | None:
        if token is None:
            return ProblemResponse(
                401,
                "This service answers to bearer tokens that it knows.",
                {"WWW-Authenticate": "Bearer"},
            )
        if self._rate is None:
            return None
        now_s = time.monotonic()
        bucket = self._buckets.get(token.name)
        if bucket is None:
            bucket = self._buckets[token.name] = TokenBucket(self._rate, now_s)
        wait = bucket.take(now_s)
        if not wait:
            return None
        return ProblemResponse(
            429,
            f"This token may ask {self._rate:g} times a second.",
            {"Retry-After": str(max(1, round(wait)))},
        )

    async def _body(self, length: bytes | None, receive: Receive) -> bytes | ProblemResponse:
        """Return the whole body, or why it is not read to its end."""
        too_long = ProblemResponse(
            413, f"A body may have {self._max_body:,} bytes.", {"Connection": "close"}
        )
        if length is not None and (not length.isdigit() or int(length) > self._max_body):
            return too_long
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(_BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return ProblemResponse(400, "The connection closed within the body.")
                    parts.append(message.get("body", b""))
                    if sum(map(len, parts)) > self._max_body:
                        return too_long
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            return ProblemResponse(
                408, f"The body took more than {_BODY_S:g} seconds.", {"Connection": "close"}
            )


def _has_nul(scope: Scope) -> bool:
    """Return whether a name in the address holds what no database takes."""
    return "\0" in scope["path"] or b"%00" in scope["query_string"]


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
