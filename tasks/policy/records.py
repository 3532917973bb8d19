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
"""Version of a decision that no version of this policy made; its log-probability is unknown and stored as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """Settings of a served policy.

    Raises:
        ValueError: the dimensions disagree.
    """

    embedding: str = "given"
    """Name of what makes embeddings. ``given``: the callers do, all in the same way."""
    embedding_dim: int = 1536
    """Numbers in an embedding."""
    max_steps: int = 5
    """Changes in one episode."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(
            input_dim=1536 + N_PROGRESS, action_dim=len(PROMPT_ACTIONS)
        )
    )
    """Its ``input_dim`` is ``embedding_dim`` and what an observation has beside it."""
    seed: int = 0
    """Of the first weights, and of what is drawn."""

    def __post_init__(self) -> None:
        wanted = {"input_dim": self.embedding_dim + N_PROGRESS, "action_dim": len(PROMPT_ACTIONS)}
        for name, value in wanted.items():
            if getattr(self.ppo, name) != value:
                raise ValueError(f"`{name}` must be {value}, but got {getattr(self.ppo, name)}")
        if self.max_steps < 1:
            raise ValueError(f"`max_steps` must be 1 or more, but got {self.max_steps}")

    @classmethod
    def of(cls, embedding: str, embedding_dim: int, **more: Any) -> Self:
        """Return the settings for embeddings of a dimension, all others by default."""
        ppo = PPOConfig(input_dim=embedding_dim + N_PROGRESS, action_dim=len(PROMPT_ACTIONS))
        return cls(embedding=embedding, embedding_dim=embedding_dim, **{"ppo": ppo, **more})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyQuestion:
    """A prompt as it is now, in its episode, for which a policy is to choose."""

    __pydantic_config__ = FORBID
    embedding: Embedding | None = None
    """Of the prompt, made in the same way for all prompts of a policy, (embedding_dim,). Absent: `prompt`
    is given."""
    prompt: PromptText | None = None
    """The text, where the service makes the embeddings itself."""
    history: Annotated[tuple[Action, ...], Field(max_length=16)] = ()
    """Actions that were done in this episode, in their order. Empty: it begins."""
    category: Category = "none"
    """What the prompt's failures are mostly like."""
    score: Share | None = None
    """Mean score of the prompt now. Absent: unknown."""
    excluded: Annotated[tuple[Action, ...], Field(max_length=16)] = ()
    """Actions that cannot be applied; used ones never can, and `stop` always can."""


@dataclass(frozen=True, kw_only=True)
class ChosenAction:
    """An action that the policy chose."""

    decision_id: str | None
    """Under which the outcome is reported; ``None`` if nothing is learned from it."""
    episode_id: str
    step: int
    action: Action
    log_prob: float
    """In nats."""
    value: float
    """Expected discounted return."""
    mask: tuple[bool, ...]
    """Whether each of the policy's actions was legal, in their order."""
    probabilities: tuple[float, ...]
    """Of each action, in the same order; 0 for an illegal one."""
    policy_version: int


@dataclass(frozen=True, kw_only=True)
class MutatedPrompt:
    """What an action made of a prompt."""

    prompt: str | None
    """``None`` if no text was kept, and ``verdict`` says why."""
    verdict: str
    """``kept``, or the rule that the text breaks, or that there is none."""
    reason: str
    """Of the writer's failure; empty: it did not fail."""
    diagnosis: str
    writer: str
    """The model's name, or ``rules``: texts by rules."""
    cost_usd: float | None
    """Of the call. ``None`` if unknown."""


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
    """What came of a decision, as its collector reports it."""

    __pydantic_config__ = FORBID
    decision_id: Name
    episode_id: Name
    step: Count
    reward: StepReward
    terminated: StrictBool
    """Whether the episode ended for good: nothing more could be earned."""
    truncated: StrictBool
    """Whether it was cut, by a limit of steps or of time."""
    final: PolicyQuestion | None = None
    """The prompt at which the episode was cut; its value stands for what was not seen any more, and is 0 of
    one that is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceReceipt:
    """Result of reporting an outcome."""

    decision_id: str
    status: ReceiptStatus
    """``stored``: to be learned from; ``archived``: of an older version; ``off_policy``: another
    policy chose, so nothing learns from it; ``duplicate``: it was stored before."""
    policy_version: int
    """That chose."""
