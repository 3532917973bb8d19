"""Request and answer models, and routes that require scopes."""

import json
from collections.abc import Callable, Coroutine
from functools import cache, partial
from typing import Annotated, Any, Literal, Self, TypeVar, get_type_hints

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response

from convergence.service.auth import require
from convergence.service.problems import refusals
from convergence.service.tokens import Scope as TokenScope
from convergence_core.feedback.records import EventId
from convergence_core.field_types import Amount, Features, Name, Share, Values
from tasks.secrets.process_redaction import redacted_text
from tasks.serving.answers import Arm, as_dict
from tasks.serving.evidence import TrafficEvidence
from tasks.store.runtime.rows import Champion, GateLook, Reward, StoredAlarm, StoredGuard

Record = TypeVar("Record")


@cache
def _identifiers(kind: Any) -> tuple[str, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(field for field, hint in hints.items() if hint in (Name, Name | None, EventId))


def without_secrets(record: Record) -> Record:
    """Return a record unchanged if its identifiers, which are stored in clear, hold no secret.

    Raises:
        ValueError: an identifier holds a secret of the service.
    """
    kind: Any = type(record)
    for field in _identifiers(kind):
        check_secret(field, getattr(record, field))
    return record


def check_secret(field: str, name: str | None) -> str | None:
    """Return an identifier unchanged if it holds no secret of the service.

    Raises:
        ValueError: it holds one.
    """
    if name is not None and redacted_text(name) != name:
        raise ValueError(
            f"`{field}` must not hold a secret, because it is stored. Send another identifier"
        )
    return name


System = Annotated[
    str, Path(min_length=1, max_length=200), AfterValidator(partial(check_secret, "system"))
]
Id = Annotated[str, Path(min_length=1, max_length=200)]
UserId = Annotated[str, Query(min_length=1, max_length=200)]
RequestKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Idempotency key: a repeated request with this key gets the same answer.",
    ),
    AfterValidator(partial(check_secret, "Idempotency-Key")),
]


class Body(BaseModel):
    """A request's body: no unknown fields, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    @model_validator(mode="after")
    def _has_no_secrets(self) -> Self:
        return without_secrets(self)


class SelectBody(Body):
    """Request for an arm."""

    user_id: Name
    """User whom the answer serves."""
    agent_type: Name | None = None
    """Kind of agent. Absent: the system's default."""
    context: Features | None = None
    """Features of the request; `session_id` keeps a session's arm if the system is configured so.
    """


RewardBody = Annotated[Reward, AfterValidator(without_secrets)]


class PriorBody(Body):
    """Prior of an arm, measured by a nightly run."""

    mean: Share
    sd: Annotated[float, Field(gt=0, strict=True)]


class ArmBody(Body):
    """An arm to activate."""

    params: Values
    agent_type: Name | None = None
    prior: PriorBody | None = None
    cost: Amount | None = None
    """Cost of one request to this arm, used until rewards report costs."""


class ArmsAnswer(BaseModel):
    """All arms of a system."""

    arms: list[Arm]


class RetiredAnswer(BaseModel):
    """Result of retiring an arm."""

    arm_id: str
    retired: bool
    """False if it was already retired."""


class GatesAnswer(BaseModel):
    """Evidence from traffic, every look of a gate, and the champion."""

    evidence: dict[str, TrafficEvidence]
    """Traffic of each agent type with two or more arms."""
    guards: list[StoredGuard]
    alarms: list[StoredAlarm]
    looks: list[GateLook]
    champion: Champion | None


class HealthAnswer(BaseModel):
    """State of the service."""

    status: Literal["ok"]
    version: str
    waiting: int
    """Requests that wait for their commit."""


class ProblemAnswer(BaseModel):
    """Refusal of a request."""

    title: str
    status: int
    detail: str
    errors: list[str] | None = None
    """Field and rule of each problem of a body."""
    error: dict[str, str | None] | None = None
    """`message`, `type`, `param` and `code`, at paths in OpenAI's form."""


def json_answer(value: Any, status: int = 200) -> Response:
    """Return a JSON answer; dataclasses become objects."""
    text = json.dumps(value, allow_nan=False, default=as_dict)
    return Response(text.encode(), status, media_type="application/json")


def add_route(  # noqa: PLR0917 - the parts of one route
    router: APIRouter,
    scopes: TokenScope | tuple[TokenScope, ...],
    method: str,
    path: str,
    handler: Any,
    answer: Any,
    *refused: int,
    **more: Any,
) -> None:
    """Add a route with its answer and refusals in the schema.

    Args:
        router: router of a feature, or of the application.
        scopes: a request's token must have one of them.
        method: HTTP method.
        path: path template.
        handler: its docstring becomes the description.
        answer: model of its answer.
        refused: statuses of refusals in addition to those of every route.
        more: arguments for FastAPI; ``responses`` are merged.
    """
    responses = {200: {"model": answer}, **refusals(*refused), **more.pop("responses", {})}
    needed = (scopes,) if isinstance(scopes, str) else scopes

    class ScopedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def checked(request: Request) -> Response:
                require(request, *needed)  # before the body is read
                return await handle(request)

            return checked

    router.add_api_route(
        path, handler, methods=[method], responses=responses, route_class_override=ScopedRoute,
        **more,
    )  # fmt: skip
