"""Requests to a model, in any protocol, and what is written in answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Form = Literal["text", "json", "schema"]

EFFORT_TO_TOKENS: Mapping[str, int] = {"low": 32, "medium": 128, "high": 512}
"""Tokens of reasoning by ``reasoning_effort``; other words, and none, stand for no reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation; parts that are no text are left out."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    """Names of the tools that it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the answer must or may call."""

    name: str
    description: str = ""
    schema: Mapping[str, Any]
    """JSON Schema of its arguments."""
    by_name: bool
    """Whether the request named it, rather than asking for any call."""
    arguments: Mapping[str, Any] | None = None
    """Those of the call; ``None``: they are filled by the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A question to a model."""

    model: str
    messages: tuple[Message, ...]
    temperature: float = 1.0
    limit: int | None = None
    """Most tokens of the answer, reasoning included; ``None``: no limit."""
    seed: int | None = None
    effort: str = ""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these."""
    form: Form = "text"
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the answer, where ``form`` is ``schema``."""
    tool: Tool | None = None
    """The one that must be called."""
    offered: tuple[Tool, ...] = ()
    """Those that may be called."""

    @property
    def system(self) -> str:
        """Texts of the system's and the developer's messages."""
        return "\n".join(m.text for m in self.messages if m.role in ("system", "developer"))

    @property
    def user(self) -> str:
        """Text of the last message that is not the system's."""
        others = [m.text for m in self.messages if m.role not in ("system", "developer")]
        return others[-1] if others else ""

    @property
    def text(self) -> str:
        """All texts, joined by blanks."""
        return " ".join(m.text for m in self.messages)

    @property
    def identity(self) -> tuple[object, ...]:
        """All that the answer depends on."""
        messages = tuple((m.role, m.text) for m in self.messages)
        return (self.model, messages, self.temperature, self.limit, self.seed, self.effort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One answer to a question."""

    text: str
    """The answer, or the arguments of the tool's call as JSON."""
    n_tokens: int
    """Tokens of the text alone."""
    n_reasoning: int = 0
    complete: bool = True
    """Whether the answer came to its end, rather than to the limit."""
