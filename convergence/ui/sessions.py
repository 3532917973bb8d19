"""Browser sessions: one-time tokens, cookies, tokens against forged requests."""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tasks.secrets.process_redaction import hide
from tasks.secrets.redaction import Redactor

LIFETIME_S = 12 * 3600.0
"""Seconds without a request after which a session ends."""
_MOST = 1_000
_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """Session of one browser."""

    csrf: str
    """CSRF token that the header of every writing request must repeat."""
    used_s: float


class BrowserSessions:
    """Sessions of a server, in its memory, which end with it. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without sessions."""
        self._clock = clock
        self._mutex = threading.Lock()
        self.on_exchange: Callable[[], None] | None = None
        """Callback after the exchange of a one-time token."""
        self._once: set[bytes] = set()
        self._sessions: dict[bytes, BrowserSession] = {}

    def one_time_token(self) -> str:
        """Return a token that can be exchanged for one session."""
        token = secrets.token_urlsafe(_BYTES)
        with self._mutex:
            self._once.add(_digest(token))
        hide(Redactor(values=[token]))
        return token

    def exchange(self, token: str) -> str | None:
        """Return the cookie of a new session; ``None`` if the token is unknown or used."""
        with self._mutex:
            if _digest(token) not in self._once:
                return None
            self._once.discard(_digest(token))
        if self.on_exchange is not None:
            self.on_exchange()
        return self.begin()

    def begin(self) -> str:
        """Return the cookie of a new session."""
        cookie = secrets.token_urlsafe(_BYTES)
        made = BrowserSession(csrf=secrets.token_urlsafe(_BYTES), used_s=self._clock())
        with self._mutex:
            self._sessions[_digest(cookie)] = made
            while len(self._sessions) > _MOST:
                oldest = min(self._sessions, key=lambda key: self._sessions[key].used_s)
                del self._sessions[oldest]
        hide(Redactor(values=[cookie, made.csrf]))
        return cookie

    def of(self, cookie: str | None) -> BrowserSession | None:
        """Return the session of a cookie; ``None`` if it is unknown or has expired."""
        if cookie is None:
            return None
        key, now_s = _digest(cookie), self._clock()
        with self._mutex:
            session = self._sessions.get(key)
            if session is None:
                return None
            if now_s - session.used_s > LIFETIME_S:
                del self._sessions[key]
                return None
            session = self._sessions[key] = replace(session, used_s=now_s)
            return session


def is_same(given: str | None, known: str) -> bool:
    """Return whether a secret is the known one, in a time that does not depend on it."""
    return given is not None and hmac.compare_digest(given.encode(), known.encode())


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
