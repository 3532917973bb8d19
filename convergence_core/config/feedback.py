"""``feedback``: roles of a chat, and how a local model learns from ratings."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from convergence_core.config.base import FunctionPath, Section, Text
from convergence_core.config.evaluation import LlmConfig

RoleName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
"""Name of a role: small letters, digits, dashes and underscores."""


class RewardConfig(Section):
    """Weights of the parts that an answer's training reward is a blend of, each in [0, 1]."""

    rating: float = Field(default=1.0, gt=0)
    """The rating, or what several raters agree on."""
    similarity: float = Field(default=0.0, ge=0)
    """Words that prompt and answer share."""
    style: float = Field(default=0.0, ge=0)
    """Words that the answer shares with those its user rated well before."""
    length: float = Field(default=0.0, ge=0)
    """1 up to `length_words` words, then less."""
    length_words: int = Field(default=150, ge=1)
    """Words that are not too many."""
    mode: Literal["additive", "multiplicative"] = "additive"
    """`additive`: the weighted mean; `multiplicative`: the weighted geometric mean."""


class LiveTestConfig(Section):
    """How a new adapter that passed every check is tried on live traffic."""

    enabled: bool = True
    """Whether it is. Else it answers all at once."""
    share: float = Field(default=0.5, gt=0, lt=1)
    """Probability that a conversation is answered by the new adapter; what answered before has the others."""
    max_ratings: int = Field(default=200, ge=1, le=1_000_000)
    """Ratings after which an undecided test ends; the new adapter answers all then."""


class TrainingConfig(Section):
    """How adapters (LoRA) of a local model are trained from ratings."""

    base_model_path: Text | None = None
    """Model whose adapters are trained: `smollm2-135m-instruct`, a `.gguf` file, or a folder of Hugging
    Face's form, relative to the configuration. Absent: the model of `api.request.options`, where
    `api.kind` is `local`."""
    objective: Literal["auto", "qrpo", "kto", "dpo"] = "auto"
    """What is minimized. `qrpo`: a regression onto the ranks of 1-5 ratings; `kto`: thumbs; `dpo`: which
    of two answers is better; `auto`: the one that the most feedback fits."""
    learning_rate: float = Field(default=3e-4, gt=0, le=0.1)
    """Of the first step; it falls linearly to 0."""
    beta: float = Field(default=0.05, gt=0, le=10)
    """Price of leaving the model that was trained from: the larger, the nearer the adapter stays to it."""
    batch_size: int = Field(default=4, ge=1, le=512)
    """Answers (pairs with `dpo`) whose gradient is computed at once. `qrpo` centres within them, so it
    needs 2."""
    steps: int = Field(default=60, ge=1, le=100_000)
    """Steps of one round."""
    max_seq_length: int = Field(default=512, ge=16, le=1_000_000)
    """Longest prompt and answer together, in tokens; longer answers are cut, longer prompts left out."""
    lora_rank: int = Field(default=8, ge=1, le=512)
    """Rank of an adapter's matrices."""
    min_ratings: int = Field(default=20, ge=2, le=1_000_000)
    """New ratings of a role that a round waits for."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Share of a role's prompts that are never trained on: what the gate measures on."""
    games: bool = False
    """Whether moves of winners and solvers in grounded games of this system train, too, weighted by P(keep) of
    their game where it is above one half; at most as many as rows of ratings. Whether it helps was not
    measured: the adapter's checks decide, as for any."""
    reward: RewardConfig = Field(default_factory=RewardConfig)
    """What an answer's training reward is made of. An answer that a safety rule flags has the lowest one,
    whatever its rating."""
    rater: FunctionPath | None = None
    """Function that rates a candidate's answers to held-out prompts from 1 to 5, for the gate:
    `module:function`. Absent: the logged ratings are weighted by how likely their answers became."""
    live_test: LiveTestConfig = Field(default_factory=LiveTestConfig)
    """How a new adapter is tried, blinded, on live traffic."""
    interval_s: float = Field(default=60.0, ge=1, le=86_400)
    """Seconds from one look for new ratings to the next."""


class SafetyModelConfig(LlmConfig):
    """What flags harmful answers, beside the built-in rules. A plain text is the path of a folder."""

    form: Literal["moderation", "chat", "folder"] = "moderation"
    """How it is asked: `moderation` by `POST /moderations`, `chat` as a judge that passes or fails an answer;
    `folder`: `model` is a text classifier of Hugging Face's form on this machine (extra `local`)."""


class SafetyConfig(Section):
    """What counts as a harmful answer. The built-in rules always do, and are a floor."""

    model: SafetyModelConfig | None = None
    """Model that flags answers of a new adapter and of what answers now, under the limits of `budget`. Absent:
    the rules alone."""


class FeedbackConfig(Section):
    """Who answers in a chat, and how answers are learned from."""

    roles: dict[RoleName, Text] = Field(default_factory=dict)
    """Your own roles, each with its persona: the opening of the system message. Beside them there
    are `assistant`, `code` and `creative`, which may be written anew."""
    safety: SafetyConfig = Field(default_factory=SafetyConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
