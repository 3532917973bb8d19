"""``prompts``: writing of variants for parameters with ``mutate``."""

from typing import Final, Literal, TypeAlias, get_args

from pydantic import Field

from convergence_core.config.base import Section

OperatorName: TypeAlias = Literal[
    "try-catch-style",
    "context-reduction",
    "expansion",
    "constraint-addition",
    "task-decomposition",
    "reflect",
    "merge",
    "examples",
    "induce",
]
OPERATORS: tuple[OperatorName, ...] = get_args(OperatorName)
N_REQUESTS: Final = 2
"""Maximum paid requests per prompt; the second only if the first prompt was rejected."""


class PromptsConfig(Section):
    """Writing of variants of `mutate` parameters."""

    nullable = frozenset({"temperature"})

    enabled: bool | None = None
    """Whether to write. Default: if a text has `mutate`, `llm` (or `writer: rules`) is set, and
    preferences are off."""
    writer: Literal["llm", "rules"] = "llm"
    """The model of `llm`, or rules without calls."""
    operators: list[OperatorName] = Field(default_factory=lambda: list(OPERATORS), min_length=1)
    """Allowed kinds of edits."""
    every: int = Field(default=1, ge=1, le=100_000)
    """Generations between batches."""
    n_texts: int = Field(default=4, ge=1, le=64)
    """Prompts per batch."""
    max_shots: int = Field(default=4, ge=0, le=32)
    """Maximum demonstrations per prompt, from search cases."""
    max_length: int = Field(default=4000, ge=20, le=1_000_000)
    """Maximum prompt length in characters, demonstrations included."""
    length_price: float = Field(default=0.0, ge=0, le=1)
    """Reward that 1,000 characters of a `mutate` prompt cost in the search. Measured rewards
    exclude it."""
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    """Sampling temperature of the writer; `null` omits it."""
    max_tokens: int = Field(default=1500, ge=16, le=1_000_000)
    """Maximum answer length of the writer, in tokens."""
    max_share_usd: float = Field(default=0.2, gt=0, le=1)
    """Share of `budget.max_usd` for writing."""
