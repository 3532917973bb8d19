"""Middleware for tokens, hosts, request rates and body lengths.

One plain ASGI layer in front of the application: a refusal costs almost nothing, and no route can
skip the check.

Without tokens, the service is a demonstration on one machine. A page of another site can make a
browser send requests to this machine, and can make its domain resolve to it (DNS rebinding). So
``Host`` must name this server, and an ``Origin`` must be one of its names.
"""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from convergence.service.metrics import Metrics
from convergence.service.problems import OPENAI_PATHS, ProblemResponse, RequestRefusedError
from convergence.service.tokens import SCOPES, Scope as TokenScope, Token, TokenRegistry
from convergence_core.budget.rate_limit import TokenBucket

TOKEN = "convergence.token"  # noqa: S105 - a key, not a secret
_BODY_S = 30.0
"""Seconds for a body to arrive."""
_MOST_OPENAI = 8 * 1024 * 1024
"""Longest body at OpenAI's paths, in bytes: it may hold images or a long conversation."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_LOCAL = Token("local", frozenset(SCOPES))
"""Token of every request to a service without tokens."""
_GUARDED_PATHS = "/v1/"
"""Prefix of the paths that a service without tokens does not serve: arms, answers and ratings."""


def allowed_hosts(host: str, port: int, further: Collection[str] = ()) -> frozenset[str]:
    """Return the accepted values of ``Host``.

    Args:
        host: address that the server listens on.
        port: its port.
        further: names that a proxy uses for this server, with their port unless it is 80 or 443.
    """
    shown = f"[{host}]" if ":" in host else host
    names = {shown.lower(), *(_LOOPBACK if shown in (*_LOOPBACK, "0.0.0.0", "[::]") else ())}  # noqa: S104 - compared
    return frozenset({f"{name}:{port}" for name in names} | {name.lower() for name in further})


def site_refusal(
    headers: Mapping[bytes, bytes], hosts: Collection[str], fix: str
) -> ProblemResponse | None:
    """Return the refusal of a request for another host or from another site, or ``None``."""
    if headers.get(b"host", b"").decode("latin-1").lower() not in hosts:
        return ProblemResponse(421, f"This server does not serve that host name. {fix}")
    origin = headers.get(b"origin")
    site, mode = headers.get(b"sec-fetch-site"), headers.get(b"sec-fetch-mode")
    is_foreign = (
        origin is not None and urlsplit(origin.decode("latin-1")).netloc.lower() not in hosts
    )
    if is_foreign or (site in (b"cross-site", b"same-site") and mode != b"navigate"):
        return ProblemResponse(403, "Requests from other sites are rejected.")
    return None


def require(request: Request, *scopes: TokenScope) -> None:
    """Raise unless the request's token has one of these scopes.

    Raises:
        RequestRefusedError: the token has none of them.
    """
    if not request.scope[TOKEN].may(*scopes):
        raise RequestRefusedError(403, f"This token lacks the scope {' or '.join(scopes)}.")


class AuthMiddleware:
    """ASGI layer in front of the application: tokens, hosts, rates and body lengths."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: TokenRegistry | None,
        hosts: Collection[str] = (),
        metrics: Metrics,
        max_body: int,
        rate: float | None,
        open_paths: Collection[str] = (),
    ) -> None:
        """Guard an application.

        Args:
            app: the application.
            tokens: the known tokens; ``None`` if requests to one of ``hosts`` need no token.
            hosts: values of ``Host`` that the service accepts without tokens.
            metrics: counts every answer.
            max_body: longest body, in bytes.
            rate: requests per second and token; ``None`` means no limit.
            open_paths: paths that need no token.
        """
        self._app, self._tokens, self._metrics = app, tokens, metrics
        self._hosts, self._max_body, self._rate = hosts, max_body, rate
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
        token = self._token(scope, headers)
        refusal = token if isinstance(token, ProblemResponse) else self._refusal(token)
        has_nul = "\0" in scope["path"] or b"%00" in scope["query_string"]
        if refusal is None and has_nul:
            refusal = ProblemResponse(404, "A name cannot hold the NUL character.")
        if refusal is None:
            is_openai = scope["path"] in OPENAI_PATHS
            most = max(self._max_body, _MOST_OPENAI) if is_openai else self._max_body
            body = await self._body(headers.get(b"content-length"), Request(scope, receive), most)
            if isinstance(body, bytes):
                scope[TOKEN] = token
                # Every body here is JSON; `curl -d` declares a form.
                others = [header for header in scope["headers"] if header[0] != b"content-type"]
                scope["headers"] = [*others, (b"content-type", b"application/json")]
                await self._app(scope, _replayed(body, receive), send)
                return
            refusal = body
        await refusal(scope, receive, send)

    def _token(
        self, scope: Scope, headers: Mapping[bytes, bytes]
    ) -> Token | ProblemResponse | None:
        if self._tokens is not None:
            return self._tokens.of(headers.get(b"authorization"))
        if scope["path"].startswith(_GUARDED_PATHS):
            return None
        fix = "Behind a proxy, serve with --token."
        return site_refusal(headers, self._hosts, fix) or _LOCAL

    def _refusal(self, token: Token | None) -> ProblemResponse | None:
        if token is None:
            return ProblemResponse(
                401,
                "This service needs a known bearer token.",
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

    async def _body(
        self, length: bytes | None, request: Request, most: int
    ) -> bytes | ProblemResponse:
        """Return the whole body, or a refusal if it is too long or too slow."""
        too_long = ProblemResponse(
            413, f"A body may have {most:,} bytes.", {"Connection": "close"}
        )
        if length is not None and (not length.isdigit() or int(length) > most):
            return too_long
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(_BODY_S):
                async for part in request.stream():
                    parts.append(part)
                    most -= len(part)
                    if most < 0:
                        return too_long
        except ClientDisconnect:
            return ProblemResponse(400, "The connection closed within the body.")
        except TimeoutError:
            return ProblemResponse(
                408, f"The body took more than {_BODY_S:g} seconds.", {"Connection": "close"}
            )
        return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    whole: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replayed() -> Message:
        return next(whole, None) or await receive()

    return replayed
