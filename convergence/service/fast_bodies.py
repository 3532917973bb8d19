"""Bodies of the two busiest routes, read by pydantic alone.

FastAPI would look through a route's parameters anew for each request, which costs as much as all the
rest. ``described`` gives the schema what these routes take instead.
"""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from convergence.service.bodies import SelectBody, UpdateBody, without_secret
from convergence.service.problems import RequestRefusedError

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
