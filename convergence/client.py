"""Blocking and asynchronous clients of the HTTP service.

::

    with Client("http://127.0.0.1:8700", token_env="APP_TOKEN") as client:
        chosen = client.select("support_bot", user_id="u1")
        client.update("support_bot", user_id="u1", decision_id=chosen.decision_id, reward=1.0)

Both repeat a request after a lost connection, 429 or 503, at most ``retries`` times, and wait as
long as ``Retry-After`` requires. A repeat has no second effect: each choice carries an
``Idempotency-Key``, and a reward counts once. ``generate`` may cost, so only a failed connection,
429 or 503 repeats it.

Each call is a function that returns a ``ServiceCall``; ``Endpoint`` makes it a method of both
clients with the same signature.
"""

import asyncio
import functools
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload
from urllib.parse import quote

import httpx

from convergence_core.errors import ConfigurationError, ConvergenceError, InfrastructureFault
from tasks.http.bodies import CODINGS, MAX_RESPONSE_BYTES, limit_body
from tasks.http.environment import check_network_environment
from tasks.serving.answers import Arm, Gates, GeneratedAnswer, RewardOutcome as Updated, Selection
from tasks.store.runtime.rows import Decision

__all__ = [
    "Arm",
    "AsyncClient",
    "Client",
    "Decision",
    "Gates",
    "GeneratedAnswer",
    "Selection",
    "ServiceCall",
    "ServiceRefusedError",
    "Updated",
    "reads",
]

_AGAIN = frozenset({429, 503})
_LONGEST_WAIT_S = 30.0

Outcome = httpx.Response | httpx.RequestError
_FAILURES = (httpx.TransportError, httpx.DecodingError)
P = ParamSpec("P")
Answer = TypeVar("Answer")


class ServiceRefusedError(ConvergenceError):
    """The service refused a request, or could not be reached."""

    def __init__(self, status: int | None, detail: str) -> None:
        """Store the HTTP status; ``None`` if there was no answer."""
        self.status, self.detail = status, detail
        super().__init__(f"the service refused: {detail}" if status else f"no answer: {detail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCall(Generic[Answer]):
    """A request and the parser of its answer."""

    read: Callable[[dict[str, Any]], Answer]
    request: Mapping[str, Any]
    """Arguments of ``httpx``'s ``request``."""
    meant: frozenset[int] = frozenset()
    """Statuses of successful answers."""
    may_repeat: bool = True
    """Whether to repeat the request if its arrival is unknown."""

    def answer(self, outcome: Outcome) -> Answer:
        """Return the answer.

        Raises:
            ServiceRefusedError: the service refused the request or did not answer.
        """
        if isinstance(outcome, httpx.RequestError):
            raise ServiceRefusedError(None, str(outcome) or type(outcome).__name__) from outcome
        try:
            body = outcome.json()
        except ValueError:
            body = {}
        status = outcome.status_code
        fits = outcome.is_success or (status in self.meant and "success" in body)
        if not fits or not isinstance(body, dict):
            detail = body.get("detail") if isinstance(body, dict) else None
            raise ServiceRefusedError(status, str(detail or f"HTTP {status}"))
        return self.read(body)


class Endpoint(Generic[P, Answer]):
    """Call as a method of both clients."""

    def __init__(self, call: Callable[P, ServiceCall[Answer]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, Answer]: ...

    @overload
    def __get__(
        self, client: "AsyncClient", owner: type
    ) -> Callable[P, Coroutine[Any, Any, Answer]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        """Return the method of a client, or the call itself for the class."""
        if client is None:
            return self._call

        @functools.wraps(self._call)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.answer(self._call(*args, **kwargs))

        return method


def _select(
    system: str,
    *,
    user_id: str,
    agent_type: str | None = None,
    context: Mapping[str, Any] | None = None,
    request_key: str | None = None,
) -> ServiceCall[Selection]:
    """Choose an arm for a request; the decision is durable when this returns.

    Raises:
        ServiceRefusedError: the service refused the request or did not answer.
    """
    return ServiceCall(
        read=reads(Selection),
        request=_request(
            "POST", system, "select",
            json=_given(user_id=user_id, agent_type=agent_type, context=context),
            headers={"Idempotency-Key": request_key or uuid.uuid4().hex},
        ),
    )  # fmt: skip


def _update(
    system: str,
    *,
    decision_id: str,
    user_id: str | None = None,
    reward: float | None = None,
    signals: Mapping[str, float] | None = None,
    engagement_score: float | None = None,
    grading_score: float | None = None,
    metadata: Mapping[str, Any] | None = None,
    cost: float | None = None,
) -> ServiceCall[Updated]:
    """Reward a decision; durable when this returns.

    Raises:
        ServiceRefusedError: the service refused the request or did not answer.
    """
    body = _given(
        user_id=user_id, decision_id=decision_id, reward=reward, signals=signals,
        engagement_score=engagement_score, grading_score=grading_score, metadata=metadata,
        cost=cost,
    )  # fmt: skip
    # 404: no such decision. 409: another reward came first.
    return ServiceCall(
        read=reads(Updated),
        request=_request("POST", system, "update", json=body),
        meant=frozenset({404, 409}),
    )


def _arms(system: str, *, agent_type: str | None = None) -> ServiceCall[list[Arm]]:
    """List all arms, active and retired."""
    request = _request("GET", system, "arms", params=_given(agent_type=agent_type))
    read = reads(Arm)
    return ServiceCall(read=lambda body: [read(arm) for arm in body["arms"]], request=request)


def _offer(
    system: str,
    arm_id: str,
    params: Mapping[str, Any],
    *,
    agent_type: str | None = None,
    prior: tuple[float, float] | None = None,
    cost: float | None = None,
) -> ServiceCall[Arm]:
    """Activate an arm; ``prior`` is the mean and standard deviation that a nightly run measured.

    ``cost`` is the cost of one request, used until rewards report costs.
    """
    night = None if prior is None else {"mean": prior[0], "sd": prior[1]}
    body = _given(params=dict(params), agent_type=agent_type, prior=night, cost=cost)
    request = _request("PUT", system, "arms", arm_id, json=body)
    return ServiceCall(read=reads(Arm), request=request)


def _retire(system: str, arm_id: str, *, agent_type: str | None = None) -> ServiceCall[bool]:
    """Retire an arm; return whether it was active."""
    request = _request("DELETE", system, "arms", arm_id, params=_given(agent_type=agent_type))
    return ServiceCall(read=lambda body: bool(body["retired"]), request=request)


def _decision(system: str, *, user_id: str, decision_id: str) -> ServiceCall[Decision]:
    """Return a user's decision and its reward."""
    request = _request("GET", system, "decisions", decision_id, params=_given(user_id=user_id))
    return ServiceCall(read=reads(Decision), request=request)


def _gates(system: str) -> ServiceCall[Gates]:
    """Return the evidence from traffic, every look of a gate, and the champion."""
    return ServiceCall(read=reads(Gates), request=_request("GET", system, "gates"))


def _generate(
    prompt: str,
    *,
    role: str | None = None,
    user: str | None = None,
    conversation_id: str | None = None,
    max_tokens: int | None = None,
    timeout_s: float = 120.0,
) -> ServiceCall[GeneratedAnswer]:
    """Let a role answer a prompt; logged when this returns. Sent once: an answer may cost.

    Raises:
        ServiceRefusedError: the service refused, or did not answer within ``timeout_s`` seconds.
    """
    body = _given(
        prompt=prompt, role=role, user=user, conversation_id=conversation_id, max_tokens=max_tokens
    )
    return ServiceCall(
        read=reads(GeneratedAnswer),
        request={"method": "POST", "url": "/v1/generate", "json": body, "timeout": timeout_s},
        may_repeat=False,
    )


class _Calls(ABC):
    """Calls and settings that both clients share."""

    select = Endpoint(_select)
    update = Endpoint(_update)
    arms = Endpoint(_arms)
    offer = Endpoint(_offer)
    retire = Endpoint(_retire)
    decision = Endpoint(_decision)
    gates = Endpoint(_gates)
    generate = Endpoint(_generate)

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_env: str | None = None,
        retries: int = 3,
        timeout_s: float = 10.0,
    ) -> None:
        """Prepare to call a service.

        Args:
            url: root of its paths.
            token: the bearer token.
            token_env: environment variable that holds it.
            retries: maximum repeats of a request after a lost connection, 429 or 503.
            timeout_s: longest wait for one answer, in seconds.

        Raises:
            ConfigurationError: there is no token, or the environment names an unusable proxy or
                certificates.
        """
        check_network_environment()
        secret = token or (os.environ.get(token_env, "") if token_env else "")
        if not secret:
            raise ConfigurationError.of(
                "token_env",
                "must name an environment variable that holds the token",
                "Export the token that `convergence serve` was given, or give `token`.",
                value=str(token_env),
            )
        self._retries = retries
        headers = {"Authorization": f"Bearer {secret}", "Accept-Encoding": ", ".join(CODINGS)}
        self._open({"base_url": url, "headers": headers, "timeout": timeout_s})

    @abstractmethod
    def _open(self, settings: dict[str, Any]) -> None:
        """Open the HTTP client."""

    def _wait_s(self, attempt: int, outcome: Outcome, call: ServiceCall[Any]) -> float | None:
        """Return the seconds before the next attempt; ``None`` for no further attempt."""
        has_arrived = not isinstance(outcome, httpx.ConnectError | httpx.Response)
        if has_arrived and not call.may_repeat:
            return None
        if attempt >= self._retries or isinstance(outcome, httpx.DecodingError):
            return None
        wait_s = 0.05 * 2.0**attempt
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in _AGAIN:
                return None
            header = outcome.headers.get("retry-after", "")
            wait_s = max(wait_s, float(header) if header.isdigit() else 0.0)
        return min(wait_s, _LONGEST_WAIT_S)


class Client(_Calls):
    """Client for synchronous code. Thread-safe."""

    def _open(self, settings: dict[str, Any]) -> None:
        self._http = httpx.Client(**settings, event_hooks={"response": [_limit]})

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self.close()

    def answer(self, call: ServiceCall[Answer]) -> Answer:
        """Return the answer to a call, after repeats if necessary.

        Raises:
            ServiceRefusedError: the service refused the request or did not answer.
        """
        attempt = 0
        while True:
            try:
                outcome: Outcome = self._http.request(**call.request)
            except _FAILURES as error:
                outcome = error
            wait_s = self._wait_s(attempt, outcome, call)
            if wait_s is None:
                return call.answer(outcome)
            time.sleep(wait_s)
            attempt += 1


class AsyncClient(_Calls):
    """Client for asynchronous code, with the methods of ``Client``."""

    def _open(self, settings: dict[str, Any]) -> None:
        async def limit(response: httpx.Response) -> None:
            _limit(response)

        self._http = httpx.AsyncClient(**settings, event_hooks={"response": [limit]})

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self.aclose()

    async def answer(self, call: ServiceCall[Answer]) -> Answer:
        """Return the answer to a call, as ``Client.answer`` does."""
        attempt = 0
        while True:
            try:
                outcome: Outcome = await self._http.request(**call.request)
            except _FAILURES as error:
                outcome = error
            wait_s = self._wait_s(attempt, outcome, call)
            if wait_s is None:
                return call.answer(outcome)
            await asyncio.sleep(wait_s)
            attempt += 1


def _request(method: str, system: str, *rest: str, **more: Any) -> dict[str, Any]:
    path = "/".join(quote(part, safe="") for part in (system, *rest))
    return {"method": method, "url": f"/v1/systems/{path}", **more}


def _given(**values: Any) -> dict[str, Any]:
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def reads(kind: type[Answer]) -> Callable[[Mapping[str, Any]], Answer]:
    """Return an answer's parser, which ignores members of later services."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    return lambda body: kind(**{name: body[name] for name in known if name in body})


def _limit(response: httpx.Response) -> None:
    """Limit the size of an answer; an event hook of the HTTP client.

    Raises:
        httpx.DecodingError: the answer is too long or is not the service's.
    """
    message = f"the answer has more than {MAX_RESPONSE_BYTES:,} bytes"
    try:
        limit_body(response, MAX_RESPONSE_BYTES, lambda: httpx.DecodingError(message))
    except InfrastructureFault as fault:
        raise httpx.DecodingError(str(fault)) from None
