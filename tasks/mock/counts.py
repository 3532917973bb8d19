"""Counts of a mock server: requests, faults, tokens.

Equal requests have equal hashes of method, path, query and canonical body.
"""

import threading
from collections import Counter
from typing import Any, Literal, TypeAlias, get_args

from tasks.mock.protocol import TokenUsage

Group: TypeAlias = Literal["calls", "abandoned", "attempt", "status", "fate"]
"""Subject of a count: requests, disconnected clients, attempts at a request, statuses, fates."""


class RequestCounts:
    """Counters of a server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Clear everything but the requests in flight."""
        with self._lock:
            self._groups: dict[Group, Counter[str]] = {
                group: Counter() for group in get_args(Group)
            }
            self._readable: dict[str, Counter[str]] = {}
            """Model → tokens that clients could read in usage blocks."""
            self._unreadable: dict[str, Counter[str]] = {}

    def arrive(self) -> None:
        """Count an incoming request."""
        with self._lock:
            self._groups["calls"][""] += 1
            self._in_flight += 1

    def leave(self) -> None:
        """Count a finished request."""
        with self._lock:
            self._in_flight -= 1

    def count(self, group: Group, name: str = "") -> int:
        """Increment a name's count in a group, and return it."""
        with self._lock:
            self._groups[group][name] += 1
            return self._groups[group][name]

    def answered(self, model: str, tokens: TokenUsage, *, readable: bool) -> None:
        """Count the billed tokens of an answer.

        Args:
            model: Model name.
            tokens: Tokens of the answer.
            readable: Whether the client can read them, unlike in a stream without usage.
        """
        with self._lock:
            account = self._readable if readable else self._unreadable
            account.setdefault(model, Counter()).update({"answers": 1, **tokens.to_json()})

    def to_json(self) -> dict[str, Any]:
        """Return all counts; ``docs/offline.md`` explains them."""
        with self._lock:
            return {
                "calls": self._groups["calls"].total(),
                "abandoned": self._groups["abandoned"].total(),
                "in_flight": self._in_flight,
                "by_status": dict(self._groups["status"]),
                "by_fate": dict(self._groups["fate"]),
                "tokens": {model: dict(used) for model, used in self._readable.items()},
                "untold_tokens": {model: dict(used) for model, used in self._unreadable.items()},
            }
