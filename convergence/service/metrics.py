"""Metrics of the service for Prometheus."""

from collections.abc import Callable
from functools import lru_cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tasks.serving.answers import RewardOutcome

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Metrics of one process."""

    def __init__(self, n_waiting: Callable[[], float], n_open: Callable[[], float]) -> None:
        """Count from zero.

        Args:
            n_waiting: returns the number of requests that wait for their commit.
            n_open: returns the number of open connections.
        """
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        self._requests = counter("convergence_requests", "Requests answered.", ("route", "status"))
        self._seconds = Histogram(
            "convergence_request_seconds", "Time to answer.", ("route",), buckets=_SECONDS,
            registry=self._registry,
        )  # fmt: skip
        self._decisions = counter("convergence_decisions", "Arms chosen.", ("system", "arm"))
        self._rewards = counter("convergence_rewards", "Rewards by outcome.", ("system", "status"))
        self._alarms = counter(
            "convergence_drift_alarms", "Alarms that a mean reward has changed.", ("system",)
        )
        self._feedback = counter(
            "convergence_feedback",
            "Logged answers, ratings and comparisons by outcome.",
            ("kind", "status"),
        )
        self._policy = counter(
            "convergence_policy",
            "Decisions, mutations, experiences and updates of the policy by outcome.",
            ("kind", "status"),
        )
        waiting = gauge("convergence_waiting", "Requests that wait for their commit.")
        waiting.set_function(n_waiting)
        connections = gauge("convergence_connections", "Connections that are open.")
        connections.set_function(n_open)
        self._closed = counter(
            "convergence_connections_closed",
            "Connections that a limit closed, by the limit.",
            ("why",),
        )
        # Looking up a child by its labels costs more than counting.
        self._request = lru_cache(1_024)(self._requests.labels)
        self._second = lru_cache(256)(self._seconds.labels)
        self._decision = lru_cache(4_096)(self._decisions.labels)
        self._reward = lru_cache(1_024)(self._rewards.labels)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer; ``route`` is the path's template."""
        self._request(route, str(status)).inc()
        self._second(route).observe(seconds)

    def decided(self, system: str, arm_id: str) -> None:
        """Count a choice."""
        self._decision(system, arm_id).inc()

    def rewarded(self, system: str, outcome: RewardOutcome) -> None:
        """Count a reward."""
        self._reward(system, outcome.status).inc()
        if outcome.alarm is not None:
            self._alarms.labels(system).inc()

    def feedback(self, kind: str, status: str) -> None:
        """Count a logged answer, a rating or a comparison."""
        self._feedback.labels(kind, status).inc()

    def policy(self, kind: str, status: str) -> None:
        """Count a decision, a mutation, an experience or an update of the policy."""
        self._policy.labels(kind, status).inc()

    def closed(self, why: str) -> None:
        """Count a connection that a limit closed."""
        self._closed.labels(why).inc()

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
