"""Server process of the web application, by default on loopback."""

from collections.abc import Callable, Collection

from convergence.service.auth import allowed_hosts
from convergence.service.socket_server import SocketServer, listening_socket, url_of
from convergence.service.tokens import TokenRegistry
from convergence.ui.app import ServedChat, make_app
from convergence.ui.guard import ROOT, UiGuard
from convergence.ui.sessions import BrowserSessions
from tasks.pages.source import PageSource

PORT = 8710
_GRACE_S = 3


def guarded(
    source: PageSource,
    sessions: BrowserSessions,
    tokens: TokenRegistry | None,
    *,
    hosts: frozenset[str],
    port: int,
    ends: Callable[[], bool],
    chat: ServedChat | None = None,
) -> UiGuard:
    """Return the web application with its guard.

    Args:
        source: pages of the store.
        sessions: browser sessions.
        tokens: tokens that may write; ``None`` forbids writing.
        hosts: accepted values of ``Host``.
        port: listening port, part of the cookie's name, because browsers share cookies between a
            host's ports.
        ends: returns whether the server shuts down, which ends event streams.
        chat: chat that the same server offers below ``/v1``; ``None`` if there is none.
    """
    return UiGuard(
        make_app(source, can_write=tokens is not None, chat=chat, ends=ends),
        sessions=sessions,
        tokens=tokens,
        hosts=hosts,
        cookie=f"convergence_ui_{port}",
    )


class UiServer(SocketServer):
    """Web application of a store, in this thread (``run``) or in a new one (``with``)."""

    def __init__(
        self,
        source: PageSource,
        tokens: TokenRegistry | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        allowed: Collection[str] = (),
    ) -> None:
        """Listen; ``run`` or ``with`` starts to serve.

        Args:
            source: pages of the store.
            tokens: tokens that may write; ``None`` forbids writing.
            host: address to listen on.
            port: port; 0 means any free one.
            allowed: further values of ``Host``, as a proxy sends them.

        Raises:
            ServiceError: the server cannot listen on the address.
        """
        self.host, self.sessions = host, BrowserSessions()
        listening = listening_socket(host, port)
        self.url, port = url_of(host, listening), listening.getsockname()[1]
        hosts = allowed_hosts(host, port, allowed)
        app = guarded(
            source,
            self.sessions,
            tokens,
            hosts=hosts,
            port=port,
            ends=lambda: self.is_ending,
        )
        super().__init__(
            app,
            listening,
            name="web application",
            lifespan="off",
            timeout_graceful_shutdown=_GRACE_S,
            limit_concurrency=500,
        )

    def address(self, page: str = "") -> str:
        """Return a one-time login link to a page such as ``runs/NAME/answers``."""
        return f"{self.url}{ROOT}/{page}?token={self.sessions.one_time_token()}"


def announce(
    sessions: BrowserSessions, say: Callable[[str], None], url: str, page: str = ""
) -> None:
    """Print a one-time login link to a page, and a new one after each use."""

    def print_link() -> None:
        say(f"{url}{ROOT}/{page}?token={sessions.one_time_token()}")

    sessions.on_exchange = print_link
    print_link()
