"""``search_space``: parameters, their values and their constraints."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from convergence_core.config.base import Choice, Section, Text

_BOUND = 1e300
_INT_BOUND = 2**53

FloatBound = Annotated[float, Field(ge=-_BOUND, le=_BOUND)]
IntBound = Annotated[int, Field(ge=-_INT_BOUND, le=_INT_BOUND)]


class BaseParam(Section):
    """What every parameter has."""

    when: dict[str, list[Choice]] = Field(default_factory=dict)
    """The parameter is active only while each named parameter has the given value, or one of the
    given list. Absent: always."""


class FloatParam(BaseParam):
    """A real number; `continuous` is read too."""

    type: Literal["float"]
    """Also `continuous`."""
    min: FloatBound
    """Smallest value, inclusive."""
    max: FloatBound
    """Largest value, inclusive."""
    log: bool = False
    """Whether values are drawn evenly on a logarithmic scale; needs `min` above 0."""
    step: float | None = Field(default=None, gt=0, le=_BOUND)
    """Distance between allowed values, counted from `min`. Absent: 1 for `int`, else any value."""
    default: float | None = None
    """The value in use today; the baseline of the report is made of all defaults."""


class IntParam(BaseParam):
    """A whole number."""

    type: Literal["int"]
    """Whole numbers."""
    min: IntBound
    """Smallest value, inclusive."""
    max: IntBound
    """Largest value, inclusive."""
    log: bool = False
    """Whether values are drawn evenly on a logarithmic scale; needs `min` above 0."""
    step: int | None = Field(default=None, gt=0, le=_INT_BOUND)
    """Distance between allowed values, counted from `min`. Absent: 1 for `int`, else any value."""
    default: int | None = None
    """The value in use today; the baseline of the report is made of all defaults."""


class CategoricalParam(BaseParam):
    """One of several values."""

    type: Literal["categorical"]
    """A plain list stands for a categorical parameter."""
    choices: list[Choice] = Field(min_length=1, max_length=10_000)
    """Texts, numbers or booleans, without duplicates."""
    default: Choice | None = None
    """The value in use today; the baseline of the report is made of all defaults."""


class BooleanParam(BaseParam):
    """True or false."""

    type: Literal["boolean"]
    """Also `bool`."""
    default: bool | None = None
    """The value in use today; the baseline of the report is made of all defaults."""


class TextParam(BaseParam):
    """A text, such as a prompt, chosen among variants."""

    type: Literal["text"]
    """Prompts and other texts."""
    variants: list[Text] = Field(min_length=1, max_length=10_000)
    """Each a path to a `.md`, `.txt` or `.prompt` file relative to the configuration, or the text
    itself."""
    mutate: bool = False
    """Whether new variants are written while a run goes on, and tried like any other: by the `llm`, as
    `prompts` says, or, with `society.learning.sao_enabled`, distilled from preferred answers."""
    default: Text | None = None
    """The variant in use today, as written in `variants`."""


ParameterConfig: TypeAlias = Annotated[
    FloatParam | IntParam | CategoricalParam | BooleanParam | TextParam,
    Field(discriminator="type"),
]


class SearchSpaceConfig(Section):
    """What may be varied."""

    parameters: dict[str, ParameterConfig] = Field(min_length=1)
    """Parameters by name (letters, digits and underscores)."""
    constraints: list[Text] = Field(default_factory=list)
    """Expressions over parameters that must hold, e.g. `min_tokens <= max_tokens` or
    `model == "large" or max_tokens < 1000`; one that names an inactive parameter does not apply."""
