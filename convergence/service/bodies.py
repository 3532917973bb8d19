"""Models of requests and answers, for validation and the schema."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictFloat,
    ValidationError,
)
from starlette.requests import Request
from starlette.responses import Response

from convergence.service.problems import RequestRefusedError
from convergence_core.records import canonical_json
from tasks.secrets.process_redaction import redacted_text
from tasks.serving.answers import Arm
from tasks.serving.evidence import TrafficEvidence
from tasks.store.runtime.rows import Champion, GateLook, StoredAlarm, StoredGuard

_NAME = r"^[^\x00-\x1f\x7f]+$"


def without_secret(name: str) -> str:
    """Return an identifier, which is stored as it is.

    Raises:
        ValueError: it holds a secret of the service.
    """
    if redacted_text(name) != name:
        raise ValueError("must not hold a secret, for it is stored. Send another identifier")
    return name


Name = Annotated[
    str, Field(min_length=1, max_length=200, pattern=_NAME), AfterValidator(without_secret)
]
"""An identifier; no control characters and no secret."""
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
"""A number in [0, 1]."""
Cost = Annotated[float, Field(ge=0, strict=True)]
Feature = StrictBool | StrictFloat | Annotated[str, Field(max_length=2_000)] | None


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError) as error:
        raise ValueError("must be JSON of finite numbers and Unicode text") from error
    return value


Features = Annotated[dict[str, Feature], AfterValidator(_storable)]
Values = Annotated[dict[str, JsonValue], AfterValidator(_storable)]


class Body(BaseModel):
    """A request's body: no unknown fields, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class SelectBody(Body):
    """A request that needs an arm."""

    user_id: Name
    """The user that it serves."""
    agent_type: Name | None = None
    """Kind of agent. Absent: the system's default."""
    context: Features | None = None
    """Features of the request; `session_id` keeps a session's arm where the system says so."""


class UpdateBody(Body):
    """The reward of a decision."""

    user_id: Name | None = None
    """Absent: the user of the decision."""
    decision_id: Name
    reward: Annotated[float, Field(strict=True)] | None = None
    """In [0, 1]."""
    signals: Annotated[dict[str, Share], AfterValidator(_storable)] | None = None
    """Measured parts of the reward, by the names of the system's `reward_metrics`."""
    engagement_score: Share | None = None
    grading_score: Share | None = None
    metadata: Values | None = None
    """Stored beside the reward."""
    cost: Cost | None = None
    """What the request cost, in the system's own unit."""


class PriorBody(Body):
    """Prior of an arm, as a night has measured it."""

    mean: Share
    sd: Annotated[float, Field(gt=0, strict=True)]


class ArmBody(Body):
    """An arm to put on offer."""

    params: Values
    agent_type: Name | None = None
    prior: PriorBody | None = None
    cost: Cost | None = None
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

_Body = TypeVar("_Body", bound=BaseModel)
_REFERENCE = "#/components/schemas/{model}"


def described(body: type[BaseModel], *, has_key: bool = False) -> dict[str, Any]:
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
                "description": "Name of this request: sent again under it, it is answered alike.",
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
    for body in (SelectBody, UpdateBody):
        schema = body.model_json_schema(ref_template=_REFERENCE)
        bodies |= schema.pop("$defs", {})
        bodies[body.__name__] = schema
    return bodies


async def body_of(request: Request, kind: type[_Body]) -> _Body:
    """Return a request's body.

    Raises:
        RequestRefusedError: it is not of this form.
    """
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestRefusedError(
            422,
            "The request is not of this form.",
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
        raise RequestRefusedError(422, "The request is not of this form.", errors=[rule])
    try:
        return without_secret(text)
    except ValueError as error:
        rule = f"{where}: {error}"
        raise RequestRefusedError(422, "The request is not of this form.", errors=[rule]) from None
