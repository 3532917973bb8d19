"""Requests to the process of a local model, and its answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One chat to answer."""

    messages: tuple[dict[str, str], ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    """Of a sampled answer; ``None``: another one each time."""
    logprobs: bool = False
    """Whether the answer tells how likely its tokens were."""
    adapter: Path | None = None
    """Folder of the adapter that answers; ``None`` if the base model does."""
    stream: bool = False
    """Whether pieces of the text are told as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """One given answer, whose tokens' log-probabilities are asked for."""

    messages: tuple[dict[str, str], ...]
    response: str
    adapter: Path | None = None
    """As in ``ChatRequest``."""


ModelRequest: TypeAlias = ChatRequest | ScoreRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """How a chat ended, or how likely a given answer is."""

    text: str = ""
    finish_reason: str = ""
    """``stop``, ``length``, ``timeout``; ``context``: the prompt is too long; ``template``: the model's
    template takes no such chat; ``adapter``: the adapter cannot be loaded; ``error``: it failed. Of a
    scored answer ``scored``, or one of the last five."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: float = 0.0
    """Since the batch began."""
    first_token_ms: float | None = None
    """Of the first piece of a streamed answer, likewise; ``None`` if none was told."""
    error: str = ""
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token by the model at temperature 1, nats; ``None`` if not asked
    for."""
