"""Process that answers JSON requests line by line, and is killed if it hangs."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from convergence_core.errors import ConvergenceError

MOST_REPLY: Final = 64 << 20
"""Maximum bytes of a reply; a longer one ends the process."""
START_S: Final = 120.0
"""Seconds allowed for the start."""
KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR")
"""Environment variables that the process inherits; the others may hold keys."""


class NoReplyError(ConvergenceError):
    """A process gave no reply within the limit, or has exited. It no longer runs."""


class LineProcess:
    """A separate Python process, which starts with the first request and restarts after a failure.

    Thread-safe: requests wait for each other, and each limit starts when its request is sent.

    Args:
        arguments: Arguments of the interpreter.
        environment: Environment variables besides ``KEPT``.
        first: First request of every process.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], first: Mapping[str, Any]
    ) -> None:
        self._arguments, self._environment, self._first = arguments, environment, first
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self.greeting: dict[str, Any] = {}
        """Reply to ``first``."""

    def start(self, limit_s: float = START_S) -> dict[str, Any]:
        """Start the process unless it runs; return its reply to ``first``.

        Raises:
            NoReplyError: it did not reply.
        """
        with self._lock:
            if self._child is None:
                self._start(limit_s)
            return self.greeting

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the reply to a request.

        Args:
            request: JSON request.
            limit_s: Seconds allowed, without those of a start.

        Raises:
            NoReplyError: the process did not reply.
        """
        with self._lock:
            if self._child is None:
                self._start(START_S)
            return self._exchange(request, limit_s)

    def close(self) -> None:
        """Kill the process and its children; safe to call twice."""
        with self._lock:
            self._end()

    def _start(self, limit_s: float) -> None:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self._child = subprocess.Popen(  # noqa: S603 - this interpreter, on programs of ours
            [sys.executable, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "OMP_NUM_THREADS": "1", **self._environment},
            start_new_session=True,
        )
        self.greeting = self._exchange(self._first, limit_s)

    def _exchange(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        child = self._child
        if child is None or child.stdin is None or child.stdout is None:
            raise NoReplyError("the process has no pipes")
        deadline = time.monotonic() + limit_s
        try:
            data = json.dumps(request).encode("ascii") + b"\n"
            os.set_blocking(child.stdin.fileno(), False)
            _write(child.stdin.fileno(), data, deadline)
            line = _line(child.stdout.fileno(), deadline)
            return dict(json.loads(line))
        except TimeoutError:
            self._end()
            raise NoReplyError(f"nothing within {limit_s:g} s") from None
        except (OSError, ValueError, RecursionError):
            self._end()
            raise NoReplyError("the end of its process") from None
        except BaseException:
            self._end()  # interrupted: the next request must not read this reply
            raise

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        child.wait()


def _write(stream: int, data: bytes, deadline: float) -> None:
    """Write all data, or raise ``TimeoutError``: a process that hangs reads nothing."""
    while data:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([], [stream], [], left)[1]:
            raise TimeoutError
        data = data[os.write(stream, data[: 1 << 16]) :]


def _line(stream: int, deadline: float) -> bytes:
    """Read a line.

    Raises:
        TimeoutError: no line arrived in time.
        OSError: the process has exited, or wrote more than ``MOST_REPLY``.
    """
    pieces: list[bytes] = []
    n_read = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            raise TimeoutError
        piece = os.read(stream, 1 << 16)
        n_read += len(piece)
        if not piece or n_read > MOST_REPLY:
            raise OSError("it has ended, or wrote without end")
        pieces.append(piece)
        if piece.endswith(b"\n"):
            return b"".join(pieces)
