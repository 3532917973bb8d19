"""Pool of child processes, which answer messages and end with this process.

The pool kills a child that hangs. A child that ends fails only its own call, and the next call
gets another. Children are not forked, so threads and the user's ``__main__`` do not affect them,
and their output is not part of the protocol. Each waits for the end of a pipe, its life line, that
only this process holds open: however this process dies, its children end. No library does all of
this (docs/dependencies.md).
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

START_TIMEOUT_S: Final = 120.0
"""Maximum seconds for a child to start."""
_EXIT_S: Final = 1.0
"""Maximum seconds for a child with a closed pipe to exit with its own exit code."""


class ChildEndedError(Exception):
    """Error of a child that ended without an answer; its code is ``None`` if it never started."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class _Part(NamedTuple):
    """Message that a child sends before its answer."""

    value: object


class ProcessPool:
    """Children of one kind, each with one call at a time. Thread-safe."""

    def __init__(self, module: str, settings: object = None) -> None:
        """Create the pool without starting children.

        Args:
            module: Module whose ``main`` a child runs; see ``Parent``.
            settings: Settings of each child.
        """
        self._module = module
        self._settings = settings
        self._lock = threading.Lock()
        self._children: set[_Child] = set()
        self._idle: list[_Child] = []
        self._closed = False

    @property
    def pids(self) -> frozenset[int]:
        """Process ids of the children."""
        with self._lock:
            return frozenset(child.process.pid for child in self._children)

    def start(self, n: int) -> None:
        """Start children before the first call needs them."""
        with self._lock:
            self._idle += [self._new() for _ in range(n)]

    def call(
        self,
        message: object,
        timeout_s: float | None = None,
        on_part: Callable[[Any], object] | None = None,
    ) -> Any:
        """Return a child's answer; a child is started if none is idle.

        Args:
            message: Message that pickle can serialize.
            timeout_s: Maximum seconds of the call; ``None`` means no limit.
            on_part: Callback for messages before the answer; must not raise.

        Raises:
            TimeoutError: the child took longer and was ended.
            ChildEndedError: the child ended, or the pool is closed.
        """
        with self._lock:
            if self._closed:
                raise ChildEndedError(None)
            child = self._idle.pop() if self._idle else self._new()
        try:
            answer = child.call(message, timeout_s, on_part)
        except TimeoutError:
            self._drop(child, 0.0)
            raise
        except (OSError, EOFError) as error:
            raise ChildEndedError(self._drop(child, _EXIT_S)) from error
        with self._lock:
            self._idle.append(child)
        return answer

    def notify(self, notice: object) -> None:
        """Send a notice to all children, even during a call."""
        with self._lock:
            for child in self._children:
                child.send(("notice", notice))

    def close(self, patience_s: float = 0.0) -> None:
        """End all children, and kill those that take longer; safe to call twice."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
        for child in children:
            child.send(None)
        for child in children:
            child.end(patience_s)

    def _new(self) -> "_Child":
        child = _Child(self._module, self._settings)
        self._children.add(child)
        return child

    def _drop(self, child: "_Child", patience_s: float) -> int:
        with self._lock:
            self._children.discard(child)
        return child.end(patience_s)


class _Child:
    """Parent's handle of a child."""

    def __init__(self, module: str, settings: object) -> None:
        parent_end, child_end = socket.socketpair()
        life_line, self._life_line = os.pipe()
        with child_end:
            try:
                code = f"from {module} import main; main()"
                self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [sys.executable, "-c", code, str(child_end.fileno()), str(life_line)],
                    pass_fds=(child_end.fileno(), life_line),
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                )
            finally:
                os.close(life_line)
        self._pipe = Connection(parent_end.detach())
        self._sending = threading.Lock()
        self._is_ready = False
        self.send((sys.path, settings))

    def call(
        self,
        message: object,
        timeout_s: float | None,
        on_part: Callable[[Any], object] | None,
    ) -> Any:
        """Return the answer to a message.

        Raises:
            EOFError: the process ended or never started.
            TimeoutError: the answer took too long.
        """
        if not self._is_ready:
            if not self._pipe.poll(START_TIMEOUT_S):
                raise EOFError
            self._pipe.recv()
            self._is_ready = True
        self.send(("call", message))
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if ends_s is None else max(0.0, ends_s - time.monotonic())
            if not self._pipe.poll(left_s):
                raise TimeoutError
            received = self._pipe.recv()
            if not isinstance(received, _Part):
                return received
            if on_part is not None:
                on_part(received.value)

    def send(self, message: object) -> None:
        """Send a message; it is lost if the process has ended."""
        with self._sending, contextlib.suppress(OSError):
            self._pipe.send(message)

    def end(self, patience_s: float) -> int:
        """Return the exit code of the process, which is killed if it takes longer to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        self.process.kill()
        code = self.process.wait()
        with self._sending:
            if not self._pipe.closed:
                self._pipe.close()
                os.close(self._life_line)
        return code


class Parent:
    """Child's handle of its parent, created first in ``main``; a dead parent ends the child."""

    def __init__(self) -> None:
        self._pipe = Connection(int(sys.argv[1]))
        threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
        # Ctrl-C in a terminal reaches the whole group; the parent decides when the child ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.path[:], self.settings = self._pipe.recv()

    def tell(self, value: object) -> None:
        """Send a message before the current call's answer; call it in the answering thread."""
        self._pipe.send(_Part(value))

    def serve(
        self, answer: Callable[[Any], object], on_notice: Callable[[Any], None] | None = None
    ) -> None:
        """Answer messages in this thread, one at a time, until the pipe closes.

        Args:
            answer: Function that returns a picklable answer and never raises.
            on_notice: Callback for notices, in another thread, even during an answer.
        """
        calls: SimpleQueue[tuple[Any] | None] = SimpleQueue()

        def read() -> None:
            with contextlib.suppress(EOFError, OSError):
                while (received := self._pipe.recv()) is not None:
                    kind, message = received
                    if kind == "call":
                        calls.put((message,))
                    elif on_notice is not None:
                        on_notice(message)
            calls.put(None)

        threading.Thread(target=read, daemon=True).start()
        with contextlib.suppress(OSError):  # the parent no longer reads
            self._pipe.send("ready")
            while (call := calls.get()) is not None:
                self._pipe.send(answer(*call))


def _end_with(life_line: int) -> None:
    os.read(life_line, 1)
    os._exit(1)
