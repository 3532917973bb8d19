"""Requests in flight of all processes that serve one store."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tasks.store.layout import locked

FILE: Final = "requests.lock"


class RequestsInFlight:
    """Shared file lock of an answering process; the kernel releases it if the process dies."""

    def __init__(self, root: Path) -> None:
        """Prepare the lock; the first request creates the file.

        Args:
            root: folder of the store.
        """
        self._path = root / FILE
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._n = 0

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Count one request for the duration of the block."""
        with self._lock:
            if self._descriptor is None:
                descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                self._descriptor = descriptor
            self._n += 1
        try:
            yield
        finally:
            with self._lock:
                self._n -= 1
                if self._n == 0:
                    os.utime(self._descriptor)
                    os.close(self._descriptor)
                    self._descriptor = None


def is_answering(root: Path) -> bool:
    """Return whether any process is answering a request of this store."""
    if not (root / FILE).exists():
        return False
    with locked(root / FILE, should_wait=False) as is_free:
        return not is_free


def seconds_since_request(root: Path) -> float | None:
    """Return the seconds since the last request ended.

    0 while a request is in flight; ``None`` if there was none.
    """
    if is_answering(root):
        return 0.0
    try:
        return max(0.0, time.time() - (root / FILE).stat().st_mtime)
    except FileNotFoundError:
        return None
