"""``search_space``: parameters, their values and their constraints."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from convergence_core.config.base import Choice, Section, Text

_BOUND = 1e300
_INT_BOUND = 2**53

FloatBound = Annotated[float, Field(ge=-_BOUND, le=_BOUND)]
IntBound = Annotated[int, Field(ge=-_INT_BOUND, le=_INT_BOUND)]


class BaseParam(Section):
    """Keys of every parameter."""

    when: dict[str, list[Choice]] = Field(default_factory=dict)
    """Active only while the named parameters have these values. Default: always."""


class FloatParam(BaseParam):
    """Real number; `continuous` is accepted, too."""

    type: Literal["float"]
    """Float: also `continuous`."""
    min: FloatBound
    """Smallest value."""
    max: FloatBound
    """Largest value."""
    log: bool = False
    """Whether to search on a logarithmic scale; needs `min` above 0."""
    step: float | None = Field(default=None, gt=0, le=_BOUND)
    """Distance between values, from `min`. Default: 1 for `int`, any for `float`."""
    default: float | None = None
    """Current value: the baseline of the report."""


class IntParam(BaseParam):
    """Integer."""

    type: Literal["int"]
    """Int: whole numbers."""
    min: IntBound
    """Smallest value."""
    max: IntBound
    """Largest value."""
    log: bool = False
    """Whether to search on a logarithmic scale; needs `min` above 0."""
    step: int | None = Field(default=None, gt=0, le=_INT_BOUND)
    """Distance between values, from `min`. Default: 1 for `int`, any for `float`."""
    default: int | None = None
    """Current value: the baseline of the report."""


class CategoricalParam(BaseParam):
    """One of several values."""

    type: Literal["categorical"]
    """A plain list is categorical."""
    choices: list[Choice] = Field(min_length=1, max_length=10_000)
    """Distinct texts, numbers or booleans."""
    default: Choice | None = None
    """Current value: the baseline of the report."""


class BooleanParam(BaseParam):
    """True or false."""

    type: Literal["boolean"]
    """Boolean: also `bool`."""
    default: bool | None = None
    """Current value: the baseline of the report."""


class TextParam(BaseParam):
    """Text, such as a prompt, chosen among variants."""

    type: Literal["text"]
    """Text: a prompt, for example."""
    variants: list[Text] = Field(min_length=1, max_length=10_000)
    """Prompts, or paths of `.md`, `.txt` or `.prompt` files."""
    mutate: bool = False
    """Whether the run writes new variants (`prompts`, or preferences)."""
    default: Text | None = None
    """Current value: the baseline of the report."""


ParameterConfig: TypeAlias = Annotated[
    FloatParam | IntParam | CategoricalParam | BooleanParam | TextParam,
    Field(discriminator="type"),
]


class SearchSpaceConfig(Section):
    """Parameters and their constraints."""

    parameters: dict[str, ParameterConfig] = Field(min_length=1)
    """Parameters by name (letters, digits, underscores). A plain list is a categorical
    parameter."""
    constraints: list[Text] = Field(default_factory=list)
    """Expressions that must hold, such as `min_tokens <= max_tokens` or `model == "large" or
    max_tokens < 1000`. Inactive parameters suspend them."""
