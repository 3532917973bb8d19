"""Counts of a mock server: requests, tokens, ignored pauses; and its log.

Equal requests have equal hashes: method, path, query without the key, and canonical body.
"""

import json
import os
import threading
from collections import Counter, deque
from pathlib import Path
from typing import Any

from tasks.mock.protocol import TokenUsage

RECENT = 1000
_CLOCKS_DIFFER_BY_S = 0.001


class RequestCounts:
    """The server's own account; safe to read and write from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything but the requests in flight."""
        with self._lock:
            self._calls = self._violations = self._abandoned = 0
            self._most_in_flight = self._in_flight
            self._attempts: Counter[str] = Counter()
            self._answered: Counter[str] = Counter()
            self._statuses: Counter[str] = Counter()
            self._faults: Counter[str] = Counter()
            self._readable: dict[str, Counter[str]] = {}
            """Model → tokens that clients could read in usage blocks."""
            self._unreadable: dict[str, Counter[str]] = {}
            self._recent: deque[str] = deque(maxlen=RECENT)
            self._not_before: dict[str, float] = {}

    def arrive(self) -> int:
        """Count a request in, and return how many are in flight with it."""
        with self._lock:
            self._calls += 1
            self._in_flight += 1
            self._most_in_flight = max(self._most_in_flight, self._in_flight)
            return self._in_flight

    def leave(self) -> None:
        """Count a request out."""
        with self._lock:
            self._in_flight -= 1

    def attempt(self, digest: str, now_s: float) -> int:
        """Return the number of this attempt at a request, from 1; notes an ignored pause."""
        with self._lock:
            self._attempts[digest] += 1
            self._recent.append(digest)
            not_before = self._not_before.pop(digest, now_s)
            self._violations += now_s < not_before - _CLOCKS_DIFFER_BY_S
            return self._attempts[digest]

    def pause(self, digest: str, not_before_s: float) -> None:
        """Note that a request was asked not to come again before a time."""
        with self._lock:
            self._not_before[digest] = max(not_before_s, self._not_before.get(digest, 0.0))

    def fault(self, kind: str) -> None:
        """Count the fault that an attempt met; ``answer`` for none."""
        with self._lock:
            self._faults[kind] += 1

    def status(self, status: int) -> None:
        """Count the status of a response that is sent."""
        with self._lock:
            self._statuses[str(status)] += 1

    def answered(
        self, digest: str, model: str, tokens: TokenUsage, *, whole: bool, readable: bool
    ) -> None:
        """Count an answer and its tokens.

        Args:
            digest: hash of the request.
            model: the model's name.
            tokens: what the answer is billed for.
            whole: whether it is sent whole and valid.
            readable: whether the client can read the tokens: not so in a stream without usage.
        """
        with self._lock:
            if whole:
                self._answered[digest] += 1
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
                "distinct_requests": len(self._attempts),
                "answered": sum(self._answered.values()),
                "answered_again": sum(n - 1 for n in self._answered.values() if n > 1),
                "abandoned": self._abandoned,
                "in_flight": self._in_flight,
                "max_in_flight": self._most_in_flight,
                "by_status": dict(self._statuses),
                "by_fate": dict(self._faults),
                "tokens": {model: dict(used) for model, used in self._readable.items()},
                "untold_tokens": {model: dict(used) for model, used in self._unreadable.items()},
                "retry_after_violations": self._violations,
                "recent": list(self._recent),
            }


class RequestLog:
    """A file with one JSON line per request, each on disk before ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: dict[str, Any]) -> None:
        """Append a line and wait until the disk has it."""
        line = json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock:
            self._file.close()
