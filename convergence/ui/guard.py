"""Guard of the web application: hosts, origins, sessions and response headers.

A page of another site can make a browser send requests to this machine, and can make its domain
resolve to it (DNS rebinding). So ``Host`` must name this server, and an ``Origin`` must be one of
its names. Everything except the page's files needs a session cookie, which no other site's request
carries (``SameSite=Strict``).
"""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from convergence.service.auth import site_refusal
from convergence.service.problems import ProblemResponse
from convergence.service.tokens import Token, TokenRegistry
from convergence.ui.sessions import BrowserSession, BrowserSessions, is_same

ROOT = "/ui"
API = f"{ROOT}/api/"
SESSION = "convergence.session"
"""Key of the scope: the session; ``None`` if the request has a bearer token instead."""
CSRF_HEADER = "X-Convergence-CSRF"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_MAX_BODY = 65_536
_BEGIN = (
    "Open the one-time login link that `convergence ui` prints, or give a token of scope admin."
)
NO_WRITES = (
    "Read-only. To make changes, put a token into an environment variable NAME, start `convergence ui` "
    "with `--token NAME=admin`, and enter the token."
)


class UiGuard:
    """ASGI layer in front of the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        sessions: BrowserSessions,
        tokens: TokenRegistry | None,
        hosts: frozenset[str],
        cookie: str,
    ) -> None:
        """Guard an application.

        Args:
            app: the application.
            sessions: browser sessions.
            tokens: tokens that may write; ``None`` forbids writing.
            hosts: accepted values of ``Host``.
            cookie: name of the session cookie.
        """
        self._app, self._sessions, self._tokens = app, sessions, tokens
        self._hosts, self._cookie = hosts, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_data = scope["path"].startswith(API)

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [*message.get("headers", ()), *_HEADERS]
                if is_data:
                    kept.append((b"cache-control", b"no-store"))
                message = {**message, "headers": kept}
            await send(message)

        answer = self._answer(scope)
        await (self._app if answer is None else answer)(scope, receive, secured)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the guard's answer; ``None`` if the application answers."""
        request = Request(scope)
        refusal = site_refusal(
            dict(scope["headers"]), self._hosts, "Behind a proxy, name it with --allow-host."
        )
        if refusal is not None:
            return refusal
        if scope["path"].startswith(API):
            return self._data_refusal(request)
        if scope["path"].startswith(ROOT) and (token := request.query_params.get("token")):
            return self._login(scope["path"], token)
        return None if scope["method"] in ("GET", "HEAD") else ProblemResponse(405, "Only read.")

    def _data_refusal(self, request: Request) -> Response | None:
        """Return the guard's answer to a request for data; ``None`` if the application answers."""
        scope = request.scope
        session = self._sessions.of(request.cookies.get(self._cookie))
        headers = dict(scope["headers"])
        token = None if self._tokens is None else self._tokens.of(headers.get(b"authorization"))
        is_admin = token is not None and token.may("admin")
        if scope["path"] == f"{API}session" and scope["method"] == "POST":
            return self._with_cookie(Response(status_code=204)) if is_admin else _unknown()
        if session is None and not is_admin:
            return _unknown()
        scope[SESSION] = session
        if scope["method"] in ("GET", "HEAD"):
            return None
        return self._write_refusal(request, session, token)

    def _login(self, path: str, token: str) -> Response:
        """Exchange the one-time token of an address for a cookie, and redirect to its page."""
        cookie = self._sessions.exchange(token)
        if cookie is None:
            return ProblemResponse(403, f"This login link was used, or is invalid. {_BEGIN}")
        page = f"{ROOT}/" if path == ROOT else path
        return self._with_cookie(RedirectResponse(page, 303), cookie)

    def _with_cookie(self, response: Response, cookie: str | None = None) -> Response:
        value = self._sessions.begin() if cookie is None else cookie
        response.set_cookie(self._cookie, value, path=ROOT, httponly=True, samesite="strict")
        return response

    def _write_refusal(
        self, request: Request, session: BrowserSession | None, token: Token | None
    ) -> Response | None:
        """Return the refusal of a write; ``None`` if the request may write."""
        if self._tokens is None:
            return ProblemResponse(403, NO_WRITES)
        if token is None:
            return ProblemResponse(401, "This needs a token of scope admin.")
        if not token.may("admin"):
            return ProblemResponse(403, f"The token {token.name} lacks the scope admin.")
        repeated = request.headers.get(CSRF_HEADER)
        if session is None or not is_same(repeated, session.csrf):
            return ProblemResponse(
                403, f"The header {CSRF_HEADER} must repeat what /ui/api/session says."
            )
        length = request.headers.get("content-length", "")
        if not length.isdigit() or int(length) > _MAX_BODY:
            return ProblemResponse(413, f"A body may have {_MAX_BODY:,} bytes.")
        return None


def _unknown() -> ProblemResponse:
    return ProblemResponse(401, _BEGIN, {"WWW-Authenticate": "Bearer"})
