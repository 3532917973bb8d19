"""Requests and answers, as both clients send and read them."""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from convergence.client.answers import Gates, ServiceRefusedError
from convergence_core.errors import ConfigurationError, InfrastructureFault, Problem
from tasks.http.bodies import CODINGS, MAX_RESPONSE_BYTES, limit_body

_AGAIN = frozenset({429, 503})
_MEANT = {("update", 404), ("update", 409)}
"""Answers that are no refusals: the reward is nobody's, or another one came first."""
_LONGEST_WAIT_S = 30.0

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """One request."""

    what: str
    method: str
    path: str
    json: Mapping[str, Any] | None = None
    params: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None


class Requests:
    """Requests and answers, as both clients send and read them."""

    def __init__(
        self, url: str, *, token: str | None, token_env: str | None, retries: int, timeout_s: float
    ) -> None:
        secret = token or (os.environ.get(token_env, "") if token_env else "")
        if not secret:
            raise ConfigurationError(
                [
                    Problem(
                        key="token_env",
                        rule="must name an environment variable that holds the token",
                        value=str(token_env),
                        fix="Export the token that `convergence serve` was told, or give `token`.",
                    )
                ]
            )
        self._retries = retries
        self._settings: dict[str, Any] = {
            "base_url": url,
            "headers": {
                "Authorization": f"Bearer {secret}",
                "Accept-Encoding": ", ".join(CODINGS),
            },
            "timeout": timeout_s,
        }

    def wait_s(self, attempt: int, outcome: httpx.Response | httpx.RequestError) -> float | None:
        """Return the seconds until a request is sent again; ``None``: it is not."""
        if attempt >= self._retries or isinstance(outcome, httpx.DecodingError):
            return None
        waits = 0.05 * 2.0**attempt
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in _AGAIN:
                return None
            asked = outcome.headers.get("retry-after", "")
            waits = max(waits, float(asked) if asked.isdigit() else 0.0)
        return min(waits, _LONGEST_WAIT_S)

    @staticmethod
    def limit(response: httpx.Response) -> None:
        """Limit what is read of an answer; a hook of the HTTP client.

        Raises:
            httpx.DecodingError: reading it, or its head, shows that it is no answer of the service.
        """
        told = f"the answer has more than {MAX_RESPONSE_BYTES:,} bytes"
        try:
            limit_body(response, MAX_RESPONSE_BYTES, lambda: httpx.DecodingError(told))
        except InfrastructureFault as fault:
            raise httpx.DecodingError(str(fault)) from None

    @staticmethod
    def answer_of(ask: ServiceRequest, response: httpx.Response) -> dict[str, Any]:
        """Return the answer's JSON.

        Raises:
            ServiceRefusedError: it is a refusal.
        """
        try:
            found = response.json()
        except ValueError:
            found = {}
        fits = response.is_success or (
            (ask.what, response.status_code) in _MEANT and "success" in found
        )
        if not fits or not isinstance(found, dict):
            told = found.get("detail") if isinstance(found, dict) else None
            raise ServiceRefusedError(
                response.status_code, str(told or f"HTTP {response.status_code}")
            )
        return found


def select_ask(
    system: str,
    user_id: str,
    agent_type: str | None,
    context: Mapping[str, Any] | None,
    request_key: str | None,
) -> ServiceRequest:
    """Return the request for an arm, under a name of its own."""
    return ServiceRequest(
        what="select",
        method="POST",
        path=f"/v1/systems/{quote(system, safe='')}/select",
        json=_given(
            user_id=user_id,
            agent_type=agent_type,
            context=None if context is None else dict(context),
        ),
        headers={"Idempotency-Key": request_key or uuid.uuid4().hex},
    )


def update_ask(system: str, **told: Any) -> ServiceRequest:
    """Return the request that tells what came of a decision."""
    path = f"/v1/systems/{quote(system, safe='')}/update"
    return ServiceRequest(what="update", method="POST", path=path, json=_given(**told))


def system_ask(
    method: str, system: str, *rest: str, json: Any = None, **params: str | None
) -> ServiceRequest:
    """Return a request for something of a system; query parameters that are ``None`` are left out."""
    path = "/".join(quote(part, safe="") for part in (system, *rest))
    return ServiceRequest(
        what=rest[0], method=method, path=f"/v1/systems/{path}", json=json, params=_given(**params)
    )


def offer_ask(
    system: str,
    arm_id: str,
    params: Mapping[str, Any],
    *,
    agent_type: str | None,
    prior: tuple[float, float] | None,
    cost: float | None,
) -> ServiceRequest:
    """Return the request that puts an arm on offer."""
    body = _given(
        params=dict(params),
        agent_type=agent_type,
        prior=None if prior is None else {"mean": prior[0], "sd": prior[1]},
        cost=cost,
    )
    return system_ask("PUT", system, "arms", arm_id, json=body)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def made(kind: type[Made], found: Mapping[str, Any]) -> Made:
    """Return an answer as a value; members that a later service adds are left out."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in found.items() if name in known})


def gates_of(found: Mapping[str, Any]) -> Gates:
    """Return evidence, looks and champion of an answer."""
    return Gates(
        evidence=found["evidence"],
        quality=found["quality"],
        looks=tuple(found["looks"]),
        guards=tuple(found["guards"]),
        alarms=tuple(found["alarms"]),
        champion=found["champion"],
    )
