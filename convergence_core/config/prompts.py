"""``prompts``: how texts of parameters with ``mutate`` are written."""

from typing import Final, Literal, TypeAlias, get_args

from pydantic import Field

from convergence_core.config.base import Section, Text

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
"""Requests for one text at most, where a writer is paid: the second only if the first text was refused."""


class PromptPolicyConfig(Section):
    """How a policy learns which edit of a text to make (flow `policy`)."""

    enabled: bool = False
    """Whether `policy/nightly` runs by its schedule; by hand it always can."""
    episodes: int = Field(default=8, ge=1, le=10_000)
    """Episodes of one round, for the policy and for each of the two baselines that it is compared with."""
    n_cases: int = Field(default=6, ge=1, le=10_000)
    """Search cases that the texts of an episode are scored on, drawn anew for each."""
    max_share: float = Field(default=0.1, gt=0, le=1)
    """Share of `budget.max_calls` and `budget.max_usd` that one round may use."""
    price: float = Field(default=0.0, ge=0, le=1)
    """Reward that one edit costs."""


class PromptsConfig(Section):
    """How new texts of parameters with `mutate: true` are written while a run goes on."""

    nullable = frozenset({"temperature"})

    enabled: bool | None = None
    """Whether texts are written. Absent: where a text has `mutate: true`, an `llm` is configured (or
    `writer: rules`), and no preferences are (`society.learning.sao_enabled`), which distil texts of
    their own."""
    writer: Literal["llm", "rules"] = "llm"
    """Who writes: the model of `llm`, or fixed rules, which need no key and make no call."""
    embedding_model: Text | None = None
    """Model of the endpoint `embeddings` beside `llm`, by which the posterior of the search compares
    texts. Absent: by the words that they share."""
    operators: list[OperatorName] = Field(default_factory=lambda: list(OPERATORS), min_length=1)
    """Kinds of edits that may be chosen."""
    every: int = Field(default=1, ge=1, le=100_000)
    """Generations from one writing to the next."""
    n_texts: int = Field(default=4, ge=1, le=64)
    """Texts of one writing."""
    max_shots: int = Field(default=4, ge=0, le=32)
    """Demonstrations of a text at most, drawn from search cases; 0: none."""
    max_length: int = Field(default=4000, ge=20, le=1_000_000)
    """Longest text, in characters, demonstrations included."""
    length_price: float = Field(default=0.0, ge=0, le=1)
    """Reward that 1,000 characters of a text with `mutate: true` cost where candidates are drawn, raced
    and recommended, parents chosen and edits judged. Measured rewards hold no price."""
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    """How random written texts are. `null`: not sent, for models that refuse it."""
    max_tokens: int = Field(default=1500, ge=16, le=1_000_000)
    """Longest answer of the writer, in tokens."""
    max_share_usd: float = Field(default=0.2, gt=0, le=1)
    """Share of `budget.max_usd` that writing may cost. Without `max_usd` there is no limit of its
    own."""
    policy: PromptPolicyConfig = Field(default_factory=PromptPolicyConfig)
    """How a policy learns which edit to make."""
