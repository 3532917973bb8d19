"""``feedback``: chat roles, and training of a local model on ratings."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from convergence_core.config.base import FunctionPath, Section, Text

RoleName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
"""Role name: lowercase letters, digits, dashes and underscores."""


class LiveTestConfig(Section):
    """Live test of a new adapter that passed every check."""

    enabled: bool = True
    """Whether to test; otherwise the new adapter answers everything."""
    share: float = Field(default=0.5, gt=0, lt=1)
    """Share of conversations for the new adapter."""
    max_ratings: int = Field(default=200, ge=1, le=1_000_000)
    """Ratings after which an undecided test ends and the new adapter stays."""


class TrainingConfig(Section):
    """Training of a local model's adapters (LoRA) on ratings."""

    base_model_path: Text | None = None
    """Model to adapt: `smollm2-135m-instruct`, a `.gguf` file or a Hugging Face folder.
    Default: that of `api.request.options`."""
    objective: Literal["auto", "qrpo", "kto", "dpo"] = "auto"
    """`qrpo` for 1-5 ratings, `kto` for thumbs, `dpo` for comparisons; `auto` fits the most
    feedback."""
    learning_rate: float = Field(default=3e-4, gt=0, le=0.1)
    """Initial rate; it falls linearly to 0."""
    beta: float = Field(default=0.05, gt=0, le=10)
    """Penalty for leaving the base: larger keeps the adapter closer."""
    batch_size: int = Field(default=4, ge=1, le=512)
    """Answers (pairs with `dpo`) per gradient; `qrpo` needs 2."""
    steps: int = Field(default=60, ge=1, le=100_000)
    """Steps per round."""
    max_seq_length: int = Field(default=512, ge=16, le=1_000_000)
    """Maximum prompt plus answer, in tokens; answers are cut, longer prompts skipped."""
    min_ratings: int = Field(default=20, ge=2, le=1_000_000)
    """New ratings of a role that start a round."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Share of prompts reserved for the gate."""
    preferences: bool = False
    """Whether audited pairs of preferences train the role `assistant`
    too."""
    rater: FunctionPath | None = None
    """Function that rates held-out answers from 1 to 5 for the gate. Default: logged ratings,
    weighted by likelihood."""
    live_test: LiveTestConfig = Field(default_factory=LiveTestConfig)
    """Blinded test of a new adapter on live traffic."""


class FeedbackConfig(Section):
    """Chat roles, and training on ratings."""

    roles: dict[RoleName, Text] = Field(default_factory=dict)
    """Your roles and their personas (system prompts), besides `assistant`, `code` and
    `creative`."""
    training: TrainingConfig = Field(default_factory=TrainingConfig)
