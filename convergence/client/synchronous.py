"""The client of synchronous code."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from convergence.client.answers import (
    Arm,
    Decision,
    Gates,
    Selection,
    ServiceRefusedError,
    Updated,
)
from convergence.client.asks import (
    Requests,
    ServiceRequest,
    gates_of,
    made,
    offer_ask,
    select_ask,
    system_ask,
    update_ask,
)


class Client(Requests):
    """The service, asked from synchronous code. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_env: str | None = None,
        retries: int = 3,
        timeout_s: float = 10.0,
    ) -> None:
        """Ask a service.

        Args:
            url: root of its paths.
            token: the bearer token.
            token_env: environment variable that holds it.
            retries: how often a request is sent again that may pass by itself.
            timeout_s: of one answer.

        Raises:
            ConfigurationError: there is no token.
        """
        super().__init__(
            url, token=token, token_env=token_env, retries=retries, timeout_s=timeout_s
        )
        self._http = httpx.Client(**self._settings, event_hooks={"response": [self.limit]})

    def select(
        self,
        system: str,
        *,
        user_id: str,
        agent_type: str | None = None,
        context: Mapping[str, Any] | None = None,
        request_key: str | None = None,
    ) -> Selection:
        """Choose an arm for a request; the decision is durable when this returns.

        Raises:
            ServiceRefusedError: it was refused, or nobody answered.
        """
        ask = select_ask(system, user_id, agent_type, context, request_key)
        return made(Selection, self._asked(ask))

    def update(
        self,
        system: str,
        *,
        user_id: str,
        decision_id: str,
        reward: float | None = None,
        signals: Mapping[str, float] | None = None,
        engagement_score: float | None = None,
        grading_score: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        cost: float | None = None,
    ) -> Updated:
        """Tell what came of a decision; durable when this returns.

        Raises:
            ServiceRefusedError: it was refused, or nobody answered.
        """
        ask = update_ask(
            system, user_id=user_id, decision_id=decision_id, reward=reward, signals=signals,
            engagement_score=engagement_score, grading_score=grading_score, metadata=metadata,
            cost=cost,
        )  # fmt: skip
        return made(Updated, self._asked(ask))

    def arms(self, system: str, *, agent_type: str | None = None) -> list[Arm]:
        """List arms, those retired included."""
        found = self._asked(system_ask("GET", system, "arms", agent_type=agent_type))
        return [made(Arm, one) for one in found["arms"]]

    def offer(
        self,
        system: str,
        arm_id: str,
        params: Mapping[str, Any],
        *,
        agent_type: str | None = None,
        prior: tuple[float, float] | None = None,
        cost: float | None = None,
    ) -> Arm:
        """Put an arm on offer, with a night's mean and standard deviation of its reward if known.

        ``cost`` is what a request of it costs, until updates tell it.
        """
        return made(
            Arm,
            self._asked(
                offer_ask(system, arm_id, params, agent_type=agent_type, prior=prior, cost=cost)
            ),
        )

    def retire(self, system: str, arm_id: str, *, agent_type: str | None = None) -> bool:
        """Take an arm off offer; return whether it was on."""
        ask = system_ask("DELETE", system, "arms", arm_id, agent_type=agent_type)
        return bool(self._asked(ask)["retired"])

    def decision(self, system: str, *, user_id: str, decision_id: str) -> Decision:
        """Return a user's decision and its reward."""
        ask = system_ask("GET", system, "decisions", decision_id, user_id=user_id)
        return made(Decision, self._asked(ask))

    def gates(self, system: str) -> Gates:
        """Return the evidence of the traffic, every look of a gate, and the champion."""
        return gates_of(self._asked(system_ask("GET", system, "gates")))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _asked(self, ask: ServiceRequest) -> dict[str, Any]:
        attempt = 0
        while True:
            try:
                outcome: httpx.Response | httpx.RequestError = self._http.request(
                    ask.method, ask.path, json=ask.json, params=ask.params, headers=ask.headers
                )
            except (httpx.TransportError, httpx.DecodingError) as error:
                outcome = error
            wait = self.wait_s(attempt, outcome)
            if wait is None:
                break
            time.sleep(wait)
            attempt += 1
        if isinstance(outcome, httpx.RequestError):
            raise ServiceRefusedError(None, str(outcome) or type(outcome).__name__) from outcome
        return self.answer_of(ask, outcome)
