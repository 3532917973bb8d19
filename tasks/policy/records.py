"""Records of a served policy: its settings, questions, answers, reports, receipts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from convergence_core.policy import N_PROGRESS, PROMPT_ACTIONS, PPOConfig, PromptEpisode
from convergence_core.policy.network import Floats

Action = Literal[
    "try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition",
    "reflect", "stop",
]  # fmt: skip
ShortText = Annotated[str, Field(max_length=20_000)]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyQuestion:
    """What a policy is asked to choose for."""

    embedding: Sequence[float] | Floats
    """Of the prompt as it is now, (embedding_dim,)."""
    episode: PromptEpisode
    excluded: Collection[str] = ()
    """Actions that cannot be applied."""


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
    """The model's name, or ``rules``: texts that fixed rules put together."""
    cost_usd: float | None
    """Of the call. ``None`` if unknown."""


@dataclass(frozen=True, kw_only=True)
class MutatedAction(MutatedPrompt, ChosenAction):
    """An action, and the prompt after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFailure:
    """A case that a prompt got wrong."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    input: ShortText
    answer: ShortText
    expected: ShortText | None = None
    """``None`` if unknown."""
    reason: ShortText = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceReport:
    """What came of a decision, as its collector reports it."""

    decision_id: str
    episode_id: str
    step: int
    reward: float
    terminated: bool = False
    truncated: bool = False
    final: PolicyQuestion | None = None
    """The prompt at which the episode was cut. ``None`` with ``truncated``: its value counts as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceReceipt:
    """Result of reporting an outcome."""

    decision_id: str
    status: ReceiptStatus
    """``stored``: to be learned from; ``archived``: of an older version; ``off_policy``: another
    policy chose, so nothing learns from it; ``duplicate``: it was stored before."""
    policy_version: int
    """That chose."""
