"""Models of requests and answers, for validation and the schema."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Self, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from starlette.requests import Request
from starlette.responses import Response

from convergence.service.problems import RequestRefusedError
from convergence_core.feedback.records import EventId
from convergence_core.field_types import Amount, Features, Name, Share, Values
from tasks.secrets.process_redaction import redacted_text
from tasks.serving.answers import Arm
from tasks.serving.evidence import TrafficEvidence
from tasks.store.runtime.rows import Champion, GateLook, Reward, StoredAlarm, StoredGuard

Record = TypeVar("Record")


@cache
def _identifiers(kind: Any) -> tuple[str, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(field for field, hint in hints.items() if hint in (Name, Name | None, EventId))


def without_secrets(record: Record) -> Record:
    """Return a record whose identifiers, which are stored as they are, hold no secret of the service.

    Raises:
        ValueError: one does.
    """
    kind: Any = type(record)
    for field in _identifiers(kind):
        check_secret(field, getattr(record, field))
    return record


def check_secret(field: str, name: str | None) -> None:
    """Refuse an identifier that holds a secret of the service.

    Raises:
        ValueError: it does.
    """
    if name is not None and redacted_text(name) != name:
        raise ValueError(
            f"`{field}` must not hold a secret, because it is stored. Send another identifier"
        )


class Body(BaseModel):
    """A request's body: no unknown fields, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    @model_validator(mode="after")
    def _has_no_secrets(self) -> Self:
        return without_secrets(self)


class SelectBody(Body):
    """A request that needs an arm."""

    user_id: Name
    """The user that it serves."""
    agent_type: Name | None = None
    """Kind of agent. Absent: the system's default."""
    context: Features | None = None
    """Features of the request; `session_id` keeps a session's arm where the system says so."""


class PriorBody(Body):
    """Prior of an arm, as a night has measured it."""

    mean: Share
    sd: Annotated[float, Field(gt=0, strict=True)]


class ArmBody(Body):
    """An arm to put on offer."""

    params: Values
    agent_type: Name | None = None
    prior: PriorBody | None = None
    cost: Amount | None = None
    """What a request of it costs, until rewards come with costs."""


class ArmsAnswer(BaseModel):
    """All arms of a system."""

    arms: list[Arm]


class RetiredAnswer(BaseModel):
    """Result of taking an arm off offer."""

    arm_id: str
    retired: bool
    """False: it was off already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAnswer(StoredGuard):
    """Guard of a promotion, with its agent type."""

    agent_type: str


class GatesAnswer(BaseModel):
    """Evidence of the traffic, every look of a gate, and the champion."""

    evidence: dict[str, TrafficEvidence]
    """Agent type → its traffic; those with two arms or more."""
    guards: list[GuardAnswer]
    alarms: list[StoredAlarm]
    looks: list[GateLook]
    champion: Champion | None


class HealthAnswer(BaseModel):
    """State of the service."""

    status: Literal["ok"]
    version: str
    waiting: int
    """Requests in line for their commit."""


class ProblemAnswer(BaseModel):
    """Refusal of a request."""

    title: str
    status: int
    detail: str
    errors: list[str] | None = None
    """Of a body: each field and rule."""
    error: dict[str, str | None] | None = None
    """`message`, `type`, `param`, `code`, of paths in OpenAI's form."""


def json_answer(value: Any, status: int = 200) -> Response:
    """Return an answer of JSON."""
    return Response(
        json.dumps(value, allow_nan=False).encode(), status, media_type="application/json"
    )


LONGEST = 200
"""Characters of a name in the address or a header."""
KEY = "Idempotency-Key"

_REFERENCE = "#/components/schemas/{model}"
SELECT: TypeAdapter[SelectBody] = TypeAdapter(SelectBody)
UPDATE: TypeAdapter[Reward] = TypeAdapter(Annotated[Reward, AfterValidator(without_secrets)])


def described(body: type, *, has_key: bool = False) -> dict[str, Any]:
    """Return what a route takes, for the OpenAPI schema."""
    name = {"type": "string", "minLength": 1, "maxLength": LONGEST}
    parameters: list[dict[str, Any]] = [
        {"name": "system", "in": "path", "required": True, "schema": name}
    ]
    if has_key:
        parameters.append(
            {
                "name": KEY,
                "in": "header",
                "required": False,
                "schema": name,
                "description": "Idempotency key: a repeated request with this key gets the same answer.",
            }
        )
    schema = {"$ref": _REFERENCE.format(model=body.__name__)}
    return {
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
    }


def read_bodies() -> dict[str, Any]:
    """Return the schemas of these bodies, by their names."""
    bodies: dict[str, Any] = {}
    for adapter in (SELECT, UPDATE):
        schema = adapter.json_schema(ref_template=_REFERENCE)
        bodies |= schema.pop("$defs", {})
        bodies[schema["title"]] = schema
    return bodies


async def body_of(request: Request, form: TypeAdapter[Record]) -> Record:
    """Return a request's body, in the form of ``SELECT`` or ``UPDATE``.

    Raises:
        RequestRefusedError: it is not of this form.
    """
    try:
        return form.validate_json(await request.body())
    except ValidationError as error:
        raise RequestRefusedError(
            422,
            "The request does not match the schema.",
            errors=[
                f"{'.'.join(('body', *map(str, defect['loc'])))}: {defect['msg']}"
                for defect in error.errors(include_input=False, include_url=False)[:20]
            ],
        ) from None


def system_of(request: Request) -> str:
    """Return the system of a request's address.

    Raises:
        RequestRefusedError: no name is as long.
    """
    return _name("path.system", request.path_params["system"])


def key_of(request: Request) -> str | None:
    """Return a request's own name, ``None`` without one.

    Raises:
        RequestRefusedError: no name is as long, or it is empty.
    """
    key = request.headers.get(KEY)
    return None if key is None else _name(f"header.{KEY}", key)


def _name(where: str, text: str) -> str:
    if not 1 <= len(text) <= LONGEST:
        rule = f"{where}: must have 1 to {LONGEST} characters"
        raise RequestRefusedError(422, "The request does not match the schema.", errors=[rule])
    try:
        check_secret(where, text)
    except ValueError as error:
        raise RequestRefusedError(
            422, "The request does not match the schema.", errors=[str(error)]
        ) from None
    return text
