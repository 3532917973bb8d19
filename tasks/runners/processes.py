"""Runner ``processes``: fresh interpreters of this machine, one for each place.

They end when this process does (``tasks.functions.child_process``), so that nobody makes calls for a run that
nobody follows.
"""

import queue
import subprocess
import threading

from convergence_core.errors import WorkerLostError
from tasks.functions.child_process import ChildProcess

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


class _Child(ChildProcess):
    def __init__(self) -> None:
        super().__init__("tasks.runners.child")
        self._sending = threading.Lock()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.process.pid

    def call(self, order: bytes) -> bytes:
        """Have an order fulfilled.

        Raises:
            EOFError: the process ended.
        """
        self._send(("fulfil", order))
        delivery: bytes = self.pipe.recv_bytes()
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
        if self.pipe.closed:
            return
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.close()

    def _send(self, message: tuple[str, bytes | str] | None) -> None:
        with self._sending:
            self.pipe.send(message)
