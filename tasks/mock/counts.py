"""Counts of a mock server: requests, faults, tokens.

Equal requests have equal hashes: method, path, query and canonical body.
"""

import threading
from collections import Counter
from typing import Any

from tasks.mock.protocol import TokenUsage


class RequestCounts:
    """The server's own account; safe to read and write from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything but the requests in flight."""
        with self._lock:
            self._calls = self._abandoned = 0
            self._attempts: Counter[str] = Counter()
            self._statuses: Counter[str] = Counter()
            self._faults: Counter[str] = Counter()
            self._readable: dict[str, Counter[str]] = {}
            """Model → tokens that clients could read in usage blocks."""
            self._unreadable: dict[str, Counter[str]] = {}

    def arrive(self) -> None:
        """Count a request in."""
        with self._lock:
            self._calls += 1
            self._in_flight += 1

    def leave(self) -> None:
        """Count a request out."""
        with self._lock:
            self._in_flight -= 1

    def attempt(self, digest: str) -> int:
        """Return the number of this attempt at a request, from 1."""
        with self._lock:
            self._attempts[digest] += 1
            return self._attempts[digest]

    def fault(self, kind: str) -> None:
        """Count the fault that an attempt met; ``answer`` for none."""
        with self._lock:
            self._faults[kind] += 1

    def status(self, status: int) -> None:
        """Count the status of a response that is sent."""
        with self._lock:
            self._statuses[str(status)] += 1

    def answered(self, model: str, tokens: TokenUsage, *, readable: bool) -> None:
        """Count the tokens that an answer is billed for.

        Args:
            model: the model's name.
            tokens: of the answer.
            readable: whether the client can read them: not so in a stream without usage.
        """
        with self._lock:
            account = self._readable if readable else self._unreadable
            account.setdefault(model, Counter()).update({"answers": 1, **tokens.to_json()})

    def abandoned(self) -> None:
        """Count a client that went away before its answer."""
        with self._lock:
            self._abandoned += 1

    def to_json(self) -> dict[str, Any]:
        """Return all numbers; ``docs/offline.md`` explains them."""
        with self._lock:
            return {
                "calls": self._calls,
                "abandoned": self._abandoned,
                "in_flight": self._in_flight,
                "by_status": dict(self._statuses),
                "by_fate": dict(self._faults),
                "tokens": {model: dict(used) for model, used in self._readable.items()},
                "untold_tokens": {model: dict(used) for model, used in self._unreadable.items()},
            }
