"""Functions in processes of their own: one child per worker thread, ended when it hangs.

Children import the function by name; see ``tasks.functions.child_process`` for what they are.
"""

import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tasks.functions.child_process import ChildProcess
from tasks.functions.workers import WorkerFailure, WorkOutcome

START_TIMEOUT_S = 120.0
"""How long a child may take to start and import the function."""


class ChildPool:
    """Children of this process that call one function. Each calling thread has its own."""

    start_timeout_s = START_TIMEOUT_S

    def __init__(self, path: str, base_dir: Path, *, timeout_s: float) -> None:
        self._path = path
        self._base_dir = base_dir.resolve()
        self._timeout_s = timeout_s
        self._local = threading.local()
        self._lock = threading.Lock()
        self._children: set[_Child] = set()
        self._closed = False

    def call(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> WorkOutcome:
        """Call the function in this thread's child, starting one if there is none."""
        try:
            child = self._child()
            outcome = child.call(args, keywords, self._timeout_s)
        except TimeoutError:
            self._drop()
            return WorkOutcome(None, WorkerFailure("timeout", "timeout"), self._timeout_s * 1000)
        except (OSError, EOFError) as error:
            code = self._drop()
            ended = f"ended with exit code {code}" if code is not None else "did not start"
            why = f"the process of {self._path} {ended} ({type(error).__name__})"
            return WorkOutcome(None, WorkerFailure("worker_died", why), 0.0)
        return outcome

    def close(self) -> None:
        """End all children; safe to call twice."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
        for child in children:
            child.end()

    def _child(self) -> "_Child":
        child: _Child | None = getattr(self._local, "child", None)
        if child is None:
            child = self._local.child = _Child(self._path, self._base_dir)
            with self._lock:
                if self._closed:
                    child.end()
                self._children.add(child)
            child.wait_until_ready()
        return child

    def _drop(self) -> int | None:
        """End this thread's child; the next call starts another."""
        child: _Child | None = getattr(self._local, "child", None)
        if child is None:
            return None
        self._local.child = None
        with self._lock:
            self._children.discard(child)
        return child.end()


class _Child(ChildProcess):
    def __init__(self, path: str, base_dir: Path) -> None:
        super().__init__("tasks.functions.child")
        self.pipe.send({"path": path, "base_dir": str(base_dir), "sys_path": sys.path})

    def wait_until_ready(self) -> None:
        """Wait until the function is imported.

        Raises:
            EOFError: the process ended, or could not import it.
        """
        if not self.pipe.poll(START_TIMEOUT_S) or self.pipe.recv() != "ready":
            raise EOFError

    def call(
        self, args: tuple[Any, ...], keywords: Mapping[str, Any], timeout_s: float
    ) -> WorkOutcome:
        """Call the function.

        Raises:
            EOFError: the process ended.
            TimeoutError: it took too long.
        """
        self.pipe.send((args, keywords))
        if not self.pipe.poll(timeout_s):
            raise TimeoutError
        value, failure, latency_ms = self.pipe.recv()
        return WorkOutcome(value, None if failure is None else WorkerFailure(*failure), latency_ms)

    def end(self) -> int | None:
        """Kill the process and return its exit code."""
        # One that is about to end by itself keeps its own exit code.
        if self.process.poll() is None and not self._ends_by_itself():
            self.process.kill()
        code = self.process.wait()
        self.close()
        return code

    def _ends_by_itself(self) -> bool:
        if not self.pipe.closed and not _is_at_end(self.pipe):
            return False
        deadline = time.monotonic() + 1.0
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.process.poll() is not None


def _is_at_end(pipe: Connection) -> bool:
    try:
        if pipe.poll(0):
            pipe.recv()
    except (EOFError, OSError):
        return True
    return False
