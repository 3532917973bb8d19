"""Limits on connections: their number, and a deadline for each step.

uvicorn only closes idle connections between requests. A partial head, a body after its refusal and
an unread answer hold a connection forever. Here each of these steps has a deadline that further
bytes do not extend. If all connections are in use, a new one displaces the connection that has
waited longest without a request. Those that never sent a known token go first. So a peer that
opens sockets and sends nothing displaces its own connections, not clients with a token.
"""

import asyncio
import resource
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from convergence.service.auth import TOKEN
from convergence_core.errors import ConvergenceError

ACCEPTED_AT_ONCE = 16
"""Connections accepted from the system's queue between checks of the limit."""
_RESERVED = 128
"""Files reserved for the store, libraries, and connections accepted but not yet counted."""
_DEFAULT_MOST = 1_000
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_LATE = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class ConnectionLimitError(ConvergenceError):
    """The requested connections exceed the limit of open files."""


def most_connections(wanted: int | None) -> int:
    """Return the number of simultaneous connections to allow.

    Args:
        wanted: requested number; ``None`` means 1,000, or fewer if the process may open fewer
            files.

    Raises:
        ConnectionLimitError: the process may not open that many files.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted or _DEFAULT_MOST
    possible = max(1, files - _RESERVED)
    if wanted is None:
        return min(_DEFAULT_MOST, possible)
    if wanted > possible:
        raise ConnectionLimitError(
            f"`--connections` must leave {_RESERVED} of the {files:,} files that this process may "
            f"open (`ulimit -n`), but got {wanted:,}. Choose at most {possible:,}, or raise "
            "`ulimit -n`."
        )
    return wanted


class ServiceConnections:
    """Open connections of a service, and those that wait for a request."""

    def __init__(self, most: int, step_s: float, closed: Callable[[str], None]) -> None:
        """Start without connections.

        Args:
            most: maximum number of open connections.
            step_s: seconds for the head of a request, for the rest of a refused body, and for the
                client to read an answer.
            closed: called with the reason when a limit closes a connection.
        """
        self.most, self.step_s, self.closed = most, step_s, closed
        self._open: set[GuardedProtocol] = set()
        # Ordered by the start of their wait.
        self._strangers: dict[GuardedProtocol, None] = {}
        self._known: dict[GuardedProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, new: "GuardedProtocol") -> bool:
        """Count a new connection, displacing a waiting one if full; return whether it fits."""
        if len(self._open) >= self.most:
            waiting = self._strangers or self._known
            if not waiting:
                self.closed("all busy")
                return False
            oldest = next(iter(waiting))
            self.forget(oldest)
            self.closed("displaced")
            oldest.transport.abort()
        self._open.add(new)
        return True

    def forget(self, connection: "GuardedProtocol") -> None:
        """Stop counting a connection."""
        self._open.discard(connection)
        self.works(connection)

    def waits(self, connection: "GuardedProtocol") -> None:
        """Mark a connection as waiting for a request."""
        if (
            connection in self._open
            and connection not in self._strangers
            and connection not in self._known
        ):
            (self._known if connection.is_known else self._strangers)[connection] = None

    def works(self, connection: "GuardedProtocol") -> None:
        """Mark a connection as working on a request."""
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)


class GuardedProtocol(H11Protocol):
    """uvicorn's connection with a deadline for each step of a request."""

    def __init__(self, *, connections: ServiceConnections, **made_by_uvicorn: Any) -> None:
        super().__init__(**made_by_uvicorn)
        self.is_known = False
        """Whether a request of this connection had a known token."""
        self._guard = connections
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit or refuse the connection."""
        super().connection_made(transport)
        if not self._guard.admit(self):
            transport.write(_BUSY)
            transport.close()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._guard.forget(self)
        self._cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read further data within the deadline of the step."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.is_known = self.is_known or TOKEN in self.scope
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Start the deadline for the client to read."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """End the deadline for the client to read."""
        super().resume_writing()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        super().timeout_keep_alive_handler()
        self._watch()

    def _watch(self) -> None:
        """Set the deadline of the current step, unless it has one."""
        cycle: RequestResponseCycle | None = self.cycle
        answered = cycle is None or cycle.response_complete
        if answered:
            self._guard.waits(self)
        else:
            self._guard.works(self)
        is_idle = self.timeout_keep_alive_task is not None
        sends = answered and not (is_idle and self.conn.their_state is h11.IDLE)
        if not (sends or self.transport.is_closing() or self.flow.write_paused):
            self._cancel()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._guard.step_s, self._end)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        """Close a connection whose step took too long."""
        self._deadline = None
        if self.transport.is_closing() or self.flow.write_paused:
            self._guard.closed("not read")
            self.transport.abort()
            return
        self._guard.closed("not sent")
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self.transport.write(_LATE)
        self.transport.close()
        self._watch()
