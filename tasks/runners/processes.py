"""Runner ``processes``: fresh interpreters of this machine, one for each place.

Each has a pipe for orders and a life line: when this process dies, however it dies, the life line
closes and the worker ends, so that nobody makes calls for a run that nobody follows.
"""

import os
import queue
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection

from convergence_core.errors import WorkerLostError

_CHILD = "from tasks.runners.child import main; main()"
_END_S = 15.0
"""What a worker has to end by itself: its calls in flight, and its journal."""


class ProcessRunner:
    """A worker process for each place, started at once."""

    def __init__(self, n_places: int) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._free: queue.LifoQueue[_Child] = queue.LifoQueue()
        self._children = {_Child() for _ in range(n_places)}
        for child in self._children:
            self._free.put(child)

    @property
    def pids(self) -> frozenset[int]:
        """Numbers of the worker processes."""
        with self._lock:
            return frozenset(child.pid for child in self._children)

    def run(self, order: bytes) -> bytes:
        """Have an order fulfilled by a free worker; see ``Runner``."""
        child = self._free.get()
        try:
            return child.call(order)
        except (OSError, EOFError) as error:
            child = self._replaced(child)
            raise WorkerLostError(
                "a worker process ended while it evaluated a candidate; what it was paid for is "
                "in the journal. Look at what it wrote: was it killed, e.g. for memory?"
            ) from error
        finally:
            self._free.put(child)

    def stop(self, opening: str) -> None:
        """Tell all workers to start no further call."""
        with self._lock:
            for child in self._children:
                child.stop(opening)

    def close(self) -> None:
        """Let the workers end; safe to call twice."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
        for child in children:
            child.hang_up()
        for child in children:
            child.end()

    def _replaced(self, lost: "_Child") -> "_Child":
        lost.end()
        with self._lock:
            if self._closed:
                return lost
            self._children.discard(lost)
            child = _Child()
            self._children.add(child)
            return child


class _Child:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        line_read, self._life_line = os.pipe()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [sys.executable, "-c", _CHILD, str(theirs.fileno()), str(line_read)],
                    pass_fds=(theirs.fileno(), line_read),
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                )
            finally:
                os.close(line_read)
        self._sending = threading.Lock()
        self._pipe = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def call(self, order: bytes) -> bytes:
        """Have an order fulfilled.

        Raises:
            EOFError: the process ended.
        """
        self._send(("fulfil", order))
        delivery: bytes = self._pipe.recv_bytes()
        return delivery

    def stop(self, opening: str) -> None:
        """Tell it to start no further call; one that has ended starts none."""
        try:
            self._send(("stop", opening))
        except OSError:
            return

    def hang_up(self) -> None:
        """Tell it that no further order comes."""
        try:
            self._send(None)
        except OSError:
            return

    def end(self) -> None:
        """Wait for its end, which comes at last by force; safe to call twice."""
        if self._pipe.closed:
            return
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pipe.close()
        os.close(self._life_line)

    def _send(self, message: tuple[str, bytes | str] | None) -> None:
        with self._sending:
            self._pipe.send(message)
