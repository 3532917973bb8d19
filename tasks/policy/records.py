"""Records of a served policy: its settings, questions, answers, reports, receipts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, StrictBool

from convergence_core.field_types import Count, Name, Share, StrictNumber
from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS
from convergence_core.policy.settings import PPOConfig
from convergence_core.records import Category

Action = Literal[
    "try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition",
    "reflect", "stop",
]  # fmt: skip
FORBID: Final = ConfigDict(extra="forbid", allow_inf_nan=False)
LARGEST_REWARD: Final = 1e6
ShortText = Annotated[str, Field(max_length=20_000)]
PromptText = Annotated[str, Field(min_length=1, max_length=50_000)]
Embedding = Annotated[Sequence[StrictNumber], Field(min_length=1, max_length=16_384)]
StepReward = Annotated[float, Field(strict=True, ge=-LARGEST_REWARD, le=LARGEST_REWARD)]
ReceiptStatus = Literal["stored", "archived", "off_policy", "duplicate"]
OFF_POLICY: Final = -1
"""Version of a decision that this policy did not make; its unknown log-probability is stored as 0.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """Settings of a served policy.

    Raises:
        ValueError: the dimensions disagree.
    """

    embedding: str = "given"
    """Name of the embedding; ``given`` means that callers send embeddings, always of one kind."""
    embedding_dim: int = 1536
    """Number of components of an embedding."""
    max_steps: int = 5
    """Maximum changes in one episode."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(
            input_dim=1536 + N_PROGRESS, action_dim=len(PROMPT_ACTIONS)
        )
    )
    """Its ``input_dim`` is ``embedding_dim`` plus the number of progress features."""
    seed: int = 0
    """Seed of the first weights and of sampling."""

    def __post_init__(self) -> None:
        wanted = {"input_dim": self.embedding_dim + N_PROGRESS, "action_dim": len(PROMPT_ACTIONS)}
        for name, value in wanted.items():
            if getattr(self.ppo, name) != value:
                raise ValueError(f"`{name}` must be {value}, but got {getattr(self.ppo, name)}")
        if self.max_steps < 1:
            raise ValueError(f"`max_steps` must be 1 or more, but got {self.max_steps}")

    @classmethod
    def of(cls, embedding: str, embedding_dim: int, **more: Any) -> Self:
        """Return the settings for embeddings of a dimension, with defaults for the others."""
        ppo = PPOConfig(input_dim=embedding_dim + N_PROGRESS, action_dim=len(PROMPT_ACTIONS))
        return cls(embedding=embedding, embedding_dim=embedding_dim, **{"ppo": ppo, **more})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyQuestion:
    """Current prompt of an episode, for which the policy chooses an action."""

    __pydantic_config__ = FORBID
    embedding: Embedding | None = None
    """Embedding of the prompt, of the same kind for all prompts of a policy, (embedding_dim,). If
    absent, `prompt` is given.
    """
    prompt: PromptText | None = None
    """The prompt, if the service computes embeddings."""
    history: Annotated[tuple[Action, ...], Field(max_length=16)] = ()
    """Earlier actions of this episode, in order. Empty at its start."""
    category: Category = "none"
    """Main category of the prompt's failures."""
    score: Share | None = None
    """Current mean score of the prompt. Absent if unknown."""
    excluded: Annotated[tuple[Action, ...], Field(max_length=16)] = ()
    """Actions that cannot be applied; used ones never can, and `stop` always can."""


@dataclass(frozen=True, kw_only=True)
class ChosenAction:
    """An action that the policy chose."""

    decision_id: str | None
    """Id for reporting the outcome; ``None`` if the policy does not learn from it."""
    episode_id: str
    step: int
    action: Action
    log_prob: float
    """Log-probability in nats."""
    value: float
    """Expected discounted return."""
    mask: tuple[bool, ...]
    """Whether each of the policy's actions was legal, in their order."""
    probabilities: tuple[float, ...]
    """Probability of each action, in the same order; 0 for an illegal one."""
    policy_version: int


@dataclass(frozen=True, kw_only=True)
class MutatedPrompt:
    """Result of an action on a prompt."""

    prompt: str | None
    """``None`` if no prompt was kept; ``verdict`` gives the reason."""
    verdict: str
    """``kept``, or the rule that the prompt breaks, or that there is no prompt."""
    reason: str
    """Reason of the writer's failure; empty if it did not fail."""
    diagnosis: str
    writer: str
    """Name of the model, or ``rules``."""
    cost_usd: float | None
    """Cost of the call in dollars. ``None`` if unknown."""


@dataclass(frozen=True, kw_only=True)
class MutatedAction(MutatedPrompt, ChosenAction):
    """An action, and the prompt after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFailure:
    """A case that a prompt got wrong."""

    __pydantic_config__ = FORBID
    input: ShortText
    answer: ShortText
    expected: ShortText | None = None
    """``None`` if unknown."""
    reason: ShortText = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceReport:
    """Outcome of a decision, as its collector reports it."""

    __pydantic_config__ = FORBID
    decision_id: Name
    episode_id: Name
    step: Count
    reward: StepReward
    terminated: StrictBool
    """Whether the episode ended naturally, with no further reward possible."""
    truncated: StrictBool
    """Whether a limit of steps or time cut the episode."""
    final: PolicyQuestion | None = None
    """Prompt at which the episode was cut. Its estimated value replaces the unseen rewards; if
    absent, 0 does.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceReceipt:
    """Result of reporting an outcome."""

    decision_id: str
    status: ReceiptStatus
    """``stored``: an update will learn from it; ``archived``: from an older version;
    ``off_policy``: another policy chose, so nothing learns from it; ``duplicate``: already stored.
    """
    policy_version: int
    """Version that chose."""
