"""``society``: thoughts that predict, preferences that are distrusted, and what they may cost."""

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
    sao_enabled: bool = False
    """Whether a model writes prompts, has them answered twice and judges the answers, for a dataset and
    new texts of parameters with `mutate`."""


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
    """How predictions are read: `true`: from log-probabilities alone; `false`: from what the model
    writes alone; `auto`: from the best that its server can do."""
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


class SaoConfig(Section):
    """How preferences are written, judged, filtered and used."""

    every: int = Field(default=3, ge=1, le=100_000)
    """Generations from one round to the next; each begins before a generation."""
    model_name: Text | None = None
    """Model that writes prompts and judges, at the endpoint of `llm`. Absent: that of `llm`."""
    n_samples: int = Field(default=20, ge=1, le=10_000)
    """Prompts of one round."""
    n_personas: int = Field(default=100, ge=1, le=1_000_000)
    """Personas drawn for a run; those of a round are chosen among them."""
    temperature: float | None = Field(default=0.6, ge=0, le=2)
    """How random the incumbent's answers are, of chat models. `null`: as the incumbent says."""
    prompt_temperature: float | None = Field(default=0.9, ge=0, le=2)
    """How random prompts are. `null`: not sent, for models that refuse it."""
    response_pairs: int = Field(default=2, ge=2, le=8)
    """Answers to each prompt; above 2 all pairs of them are judged."""
    max_prompt_length: int = Field(default=512, ge=16, le=100_000)
    """Longest prompt, in tokens; one that is cut off is dropped."""
    max_response_length: int = Field(default=2048, ge=16, le=1_000_000)
    """Longest answer, in tokens, of chat models that nothing else limits; one that is cut off is
    dropped, and so is one above 4,000 characters."""
    min_response_length: int = Field(default=50, ge=0, le=4_000)
    """Shortest answer, in characters."""
    similarity_threshold: float = Field(default=0.9, gt=0, le=1)
    """Share of words in common (Jaccard) from which two texts count as one; with `embedding_model` also
    the cosine of two prompts."""
    embedding_model: Text | None = None
    """Model of the endpoint `embeddings` beside `llm`, by which the same prompt in other words is found.
    Absent: words alone decide."""
    quality_filter: bool = True
    """Whether answers are filtered by length, refusals and likeness, and prompts by likeness. Filters
    of cut-off answers, of held-out cases and of unsure judgements stay on."""
    diversity_factor: float = Field(default=0.7, ge=0, le=1)
    """What being unlike earlier personas counts when the next are chosen; the rest is how hard like
    ones were to judge."""
    iterative_rounds: int = Field(default=3, ge=1, le=1_000)
    """Rounds of a run at most; an alarm, or a judge that contradicts itself, ends them sooner."""
    batch_size: int = Field(default=10, ge=1, le=512)
    """Requests of a round in flight at most, within the limits of `llm` and of the run."""
    audit_items: int = Field(default=50, ge=0, le=1_000)
    """Grounded pairs that the judge is tried on in each round, new ones first. There is no verdict on a judge,
    and it is not believed, before it was tried on 50 different ones over all rounds."""
    max_share_usd: float = Field(default=0.2, gt=0, le=1)
    """Share of `budget.max_usd` that preferences may cost. Without `max_usd` there is no limit of their
    own."""
    use_logprobs: Literal["auto"] | bool = "auto"
    """How judgements are read: `true`: from log-probabilities alone; `false`: from plain verdicts, of
    which those count on which both orders agree; `auto`: from the best that its server can do."""
    released_alarms: int = Field(default=0, ge=0)
    """Alarms of coverage that a person has looked into: after three others nothing goes on."""
    released_silences: int = Field(default=0, ge=0)
    """Times that drift or exploitation silenced the judge and a person has looked into: it is watched
    anew then. Until then exploitation keeps it silent in further runs, and drift as long as it lasts."""
    dpo_beta: float = Field(default=0.1, gt=0)
    """Told in exports, for trainers; nothing here trains."""
    dpo_learning_rate: float = Field(default=1e-6, gt=0)
    """Told in exports, for trainers."""
    dpo_epochs: int = Field(default=1, ge=1)
    """Told in exports, for trainers."""

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        """As elsewhere, but a temperature left empty is one that is not sent."""
        if not isinstance(value, dict):
            return value
        known = cls.model_fields.keys() - {"temperature", "prompt_temperature"}
        return {key: item for key, item in value.items() if item is not None or key not in known}


class SocietyConfig(Section):
    """Thoughts before choices, and preferences between answers."""

    enabled: bool = False
    """Whether anybody thinks or prefers. It takes an `llm`; without one the run says so and goes on."""
    learning: LearningConfig = Field(default_factory=LearningConfig)
    rlp: RlpConfig = Field(default_factory=RlpConfig)
    sao: SaoConfig = Field(default_factory=SaoConfig)

    @property
    def thinks(self) -> bool:
        """Whether thoughts are to be written."""
        return self.enabled and self.learning.rlp_enabled

    @property
    def prefers(self) -> bool:
        """Whether preferences are to be written."""
        return self.enabled and self.learning.sao_enabled
