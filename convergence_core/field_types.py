"""Types of fields in external data, with rules for validation and schemas.

A record with fields of these types serves as request body, table row and Python value. Only the
boundary validates it: the HTTP service, and the code that stores it.
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
"""Maximum characters of a feature."""
MOST_OF_TEXT: Final = 10_000
"""Characters of a request's text that count."""
CONTROL = r"\x00-\x1f\x7f"


def storable(value: JsonObject) -> JsonObject:
    """Return a mapping that JSON and UTF-8 can represent.

    Raises:
        ValueError: The mapping cannot be represented.
    """
    try:
        canonical_json(dict(value)).encode()
    except (TypeError, ValueError) as error:
        raise ValueError("must be JSON of finite numbers and Unicode text") from error
    return value


def _bounded(features: dict[str, Any]) -> dict[str, Any]:
    """Return features with `text` truncated.

    Raises:
        ValueError: Another feature is too long.
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
    """Return an integral JSON number, such as 3.0, as an integer; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, Field(min_length=1, max_length=200, pattern=f"^[^{CONTROL}]+$")]
"""Identifier without control characters."""
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
"""Number in [0, 1]."""
Amount = Annotated[float, Field(ge=0, strict=True)]
"""Nonnegative number."""
StrictNumber = Annotated[float, Field(strict=True)]


def _number_of_truth(value: Any) -> Any:
    return float(value) if isinstance(value, bool) else value


Outcome = Annotated[
    StrictNumber,
    BeforeValidator(_number_of_truth, json_schema_input_type=StrictBool | StrictNumber),
]
"""Number, or a boolean as 0 or 1."""
Score = Annotated[
    Share, BeforeValidator(_number_of_truth, json_schema_input_type=StrictBool | Share)
]
"""Number in [0, 1], or a boolean as 0 or 1."""
Count = Annotated[StrictInt, Field(ge=0, le=2**53), BeforeValidator(whole_number)]
Feature = StrictBool | StrictFloat | Annotated[str, Field(max_length=2**20)] | None
Features = Annotated[dict[str, Feature], AfterValidator(_bounded), AfterValidator(storable)]
Values = Annotated[dict[str, JsonValue], AfterValidator(storable)]
