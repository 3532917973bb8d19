"""Server process of the service, which shuts down without losing an answer.

On SIGTERM, SIGHUP or Ctrl-C the server accepts nothing new, answers open requests and commits its
queue. Acknowledged data is always on the disk, so a kill loses only answers in flight.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from convergence.service.app import make_app
from convergence.service.auth import AuthMiddleware, allowed_hosts
from convergence.service.connections import (
    ACCEPTED_AT_ONCE,
    GuardedProtocol,
    ServiceConnections,
    most_connections,
)
from convergence.service.metrics import Metrics
from convergence.service.policy import PolicyMount
from convergence.service.socket_server import SocketServer, listening_socket, url_of
from convergence.service.tokens import TokenRegistry
from tasks.chat.logged_chat import LoggedChat
from tasks.serving.committer import Committer
from tasks.serving.systems import Systems
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.version import code_version

DOCS = ("/docs", "/openapi.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Options of the service."""

    host: str = "127.0.0.1"
    port: int = 8700
    """0 means any free port."""
    max_body: int = 65_536
    """Longest body, in bytes."""
    rate: float | None = 2_000.0
    """Requests per second and token; ``None`` means no limit."""
    most_waiting: int = 10_000
    """Maximum requests that wait for their commit; the service refuses more."""
    grace_s: int = 30
    """Seconds for open requests at shutdown."""
    connections: int | None = None
    """Maximum open connections; ``None`` means 1,000, or as many as the limit of open files
    allows.
    """
    step_s: float = 10.0
    """Seconds for the head of a request, for the rest of a refused body, and for the client to
    read an answer."""
    has_docs: bool = False
    """Whether ``/docs`` and ``/openapi.json`` need no token."""


class Service(SocketServer):
    """Service of one store, in this thread (``run``) or in a new one (``with``)."""

    def __init__(
        self,
        store: RuntimeStore,
        tokens: TokenRegistry | None,
        options: ServiceOptions | None = None,
        pages: Callable[[str, int], ASGIApp] | None = None,
        chat: LoggedChat | None = None,
        *,
        policy: PolicyMount | None = None,
    ) -> None:
        """Listen; ``run`` or ``with`` starts to serve.

        Args:
            store: the runtime state.
            tokens: the known tokens; ``None`` if the policy's paths need none on loopback.
            options: options of the service.
            pages: makes the application below ``/ui`` from host and port; it has its own guard.
                ``None`` means no pages.
            chat: answers conversations; the service closes it. ``None`` means no chat.
            policy: chooses changes of prompts; the service closes it. ``None`` means no policy.

        Raises:
            ConnectionLimitError: the limit of connections exceeds the limit of open files.
            ServiceError: the server cannot listen on the address.
        """
        self.options = options or ServiceOptions()
        most = most_connections(self.options.connections)
        listening = listening_socket(self.options.host, self.options.port)
        self.url, port = url_of(self.options.host, listening), listening.getsockname()[1]
        self._committer = Committer(store, most_waiting=self.options.most_waiting)
        metrics = Metrics(lambda: self._committer.n_waiting, lambda: len(connections))
        connections = ServiceConnections(most, self.options.step_s, metrics.closed)
        has_docs = self.options.has_docs
        self._feedback = FeedbackStore(store.root, now_us=store.now_us)
        app = make_app(
            Systems(store),
            self._committer,
            metrics,
            self._feedback,
            version=code_version(),
            has_docs=has_docs,
            chat=chat,
            policy=policy,
        )
        guarded = AuthMiddleware(
            app,
            tokens=tokens,
            hosts=allowed_hosts(self.options.host, port),
            metrics=metrics,
            max_body=self.options.max_body,
            rate=self.options.rate,
            open_paths=DOCS if has_docs else (),
        )
        super().__init__(
            guarded if pages is None else _mounted(guarded, pages(self.options.host, port)),
            listening,
            name="service",
            http=functools.partial(GuardedProtocol, connections=connections),
            lifespan="on",
            date_header=True,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=self.options.grace_s,
            # asyncio accepts this many connections in one batch, past any limit; startup lengthens
            # the queue.
            backlog=ACCEPTED_AT_ONCE,
        )

    def run(self) -> None:
        """Serve until SIGTERM, SIGHUP or Ctrl-C, and finish the answers in progress."""
        try:
            super().run()
        finally:
            self._committer.close()
            self._feedback.close()


def _mounted(app: ASGIApp, pages: ASGIApp) -> ASGIApp:
    """Route requests below ``/ui`` to the pages, which have their own guard."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and f"{scope['path']}/".startswith("/ui/")
        await (pages if is_page else app)(scope, receive, send)

    return served
