"""Types of fields that come from outside: rules for checks and for schemas.

A record whose fields have these types is at once the body of a request, the row of a table and the
value in Python. Only the edge validates it: the HTTP service, and whatever stores it.
"""

from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
)

from convergence_core.records import canonical_json

JsonObject = TypeVar("JsonObject", bound=Any)

MOST_OF_FEATURE: Final = 2_000
"""Characters of a feature."""
MOST_OF_TEXT: Final = 10_000
"""The first characters of a request's text, which count."""
CONTROL = r"\x00-\x1f\x7f"


def storable(value: JsonObject) -> JsonObject:
    """Return a mapping that JSON and UTF-8 can represent.

    Raises:
        ValueError: they cannot.
    """
    try:
        canonical_json(dict(value)).encode()
    except (TypeError, ValueError) as error:
        raise ValueError("must be JSON of finite numbers and Unicode text") from error
    return value


def _bounded(features: dict[str, Any]) -> dict[str, Any]:
    """Return features with as much of `text` as counts.

    Raises:
        ValueError: another one is longer than a feature may be.
    """
    for name, value in features.items():
        if isinstance(value, str) and name != "text" and len(value) > MOST_OF_FEATURE:
            raise ValueError(
                f"`{name[:200]}` must have at most {MOST_OF_FEATURE:,} characters, but has "
                f"{len(value):,}; what the user wrote belongs in `text`"
            )
    text = features.get("text")
    return features | {"text": text[:MOST_OF_TEXT]} if isinstance(text, str) else features


def whole_number(value: Any) -> Any:
    """Return a whole number of JSON, where 3.0 is 3, as an integer; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, Field(min_length=1, max_length=200, pattern=f"^[^{CONTROL}]+$")]
"""An identifier without control characters, stored as it is."""
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
"""A number in [0, 1]."""
Amount = Annotated[float, Field(ge=0, strict=True)]
"""A number of 0 or more."""
StrictNumber = Annotated[float, Field(strict=True)]


def _number_of_truth(value: Any) -> Any:
    return float(value) if isinstance(value, bool) else value


Outcome = Annotated[
    StrictNumber,
    BeforeValidator(_number_of_truth, json_schema_input_type=StrictBool | StrictNumber),
]
"""A number, or a truth value as 0 or 1."""
Score = Annotated[
    Share, BeforeValidator(_number_of_truth, json_schema_input_type=StrictBool | Share)
]
"""A number in [0, 1], or a truth value as one."""
Count = Annotated[StrictInt, Field(ge=0, le=2**53), BeforeValidator(whole_number)]
Feature = StrictBool | StrictFloat | Annotated[str, Field(max_length=2**20)] | None
Features = Annotated[dict[str, Feature], AfterValidator(_bounded), AfterValidator(storable)]
Values = Annotated[dict[str, JsonValue], AfterValidator(storable)]
