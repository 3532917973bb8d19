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
    """Seed of a sampled answer; ``None`` means a new one each time."""
    logprobs: bool = False
    """Whether the answer includes the log-probabilities of its tokens."""
    adapter: Path | None = None
    """Folder of the adapter; ``None`` means the base model."""
    stream: bool = False
    """Whether to stream the text in pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """One given answer whose tokens' log-probabilities are requested."""

    messages: tuple[dict[str, str], ...]
    response: str
    adapter: Path | None = None
    """As in ``ChatRequest``."""


ModelRequest: TypeAlias = ChatRequest | ScoreRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """Outcome of a chat, or log-probabilities of a given answer."""

    text: str = ""
    finish_reason: str = ""
    """``stop``, ``length`` or ``timeout``; ``context`` if the prompt is too long; ``template`` if
    the model's template rejects the chat; ``adapter`` if the adapter cannot be loaded; ``error``
    for other failures. A scored answer has ``scored``, or one of the last five.
    """
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: float = 0.0
    """Milliseconds since the start of the batch."""
    first_token_ms: float | None = None
    """Milliseconds from the start of the batch to the first streamed piece; ``None`` without one.
    """
    error: str = ""
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token at temperature 1, nats; ``None`` if not requested."""
