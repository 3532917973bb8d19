"""``society``: thoughts that predict, and what they may cost."""

from typing import Any, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from convergence_core.config.base import Section, Text

StrategyName: TypeAlias = Literal[
    "winners",
    "contrast",
    "trends",
    "interactions",
    "failures",
    "boundaries",
    "costs",
    "novelty",
]


def _all_strategies() -> list[StrategyName]:
    return list(get_args(StrategyName))


class LearningConfig(Section):
    """What the society learns by."""

    rlp_enabled: bool = True
    """Whether a model thinks before candidates are chosen, and is paid by what it predicts."""
    sao_enabled: Literal[False] = False
    """Only `false`."""


class RlpConfig(Section):
    """How thoughts are written, predicted with, and learned from."""

    model_name: Text | None = None
    """Model that thinks and predicts, at the endpoint of `llm`. Absent: that of `llm`."""
    thought_length: int = Field(default=2048, ge=1, le=1_000_000)
    """Longest thought, in tokens; one that is cut off earns nothing."""
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    """How random thoughts are. `null`: not sent, for models that refuse it."""
    n_thoughts: int = Field(default=4, ge=1, le=64)
    """Thoughts drawn in each generation."""
    n_predicted: int = Field(default=8, ge=1, le=64)
    """Candidates of a generation whose reward is predicted, at most; never more than half."""
    strategies: list[StrategyName] = Field(default_factory=_all_strategies, min_length=1)
    """Kinds of thoughts that may be drawn."""
    max_share_usd: float = Field(default=0.2, gt=0, le=1)
    """Share of `budget.max_usd` that thoughts and predictions may cost. Without `max_usd` there is
    no limit of their own."""
    use_logprobs: Literal["auto"] | bool = "auto"
    """How predictions are read: `true`: from log-probabilities and decisions alone; `false`: from
    what the model writes alone; `auto`: from the best that its server can do."""
    both_orders: bool = False
    """Whether decisions (`/v1/decisions`) are asked with their options in both orders, so that a
    liking for what stands first cancels; twice the requests."""
    buffer_size: int = Field(default=10_000, ge=1, le=1_000_000)
    """Outcomes remembered, the oldest leaving first."""
    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of later generations in the advantage."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """How far the generalized advantage looks ahead."""
    normalize_rewards: bool = True
    """Whether rewards are divided by their root mean square; they are never centred."""
    clip_epsilon: float = Field(default=0.2, gt=0, lt=1)
    """How far one update may move the probability of a strategy, relative to it."""
    kl_target: float = Field(default=0.02, gt=0, le=10)
    """Divergence from the policy before it, in nats, at which an update stops."""
    ema_decay: float = Field(default=0.9, ge=0, lt=1)
    """Memory of the baseline's weights, per generation."""
    use_gpu: Literal[False] = False
    """Only `false`: the model is a server."""

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        """As elsewhere, but a temperature left empty is one that is not sent."""
        if not isinstance(value, dict):
            return value
        known = cls.model_fields.keys() - {"temperature"}
        return {key: item for key, item in value.items() if item is not None or key not in known}


class SocietyConfig(Section):
    """Thoughts before choices."""

    enabled: bool = False
    """Whether anybody thinks. It takes an `llm`; without one the run says so and goes on."""
    learning: LearningConfig = Field(default_factory=LearningConfig)
    rlp: RlpConfig = Field(default_factory=RlpConfig)

    @property
    def thinks(self) -> bool:
        """Whether thoughts are to be written."""
        return self.enabled and self.learning.rlp_enabled
