"""Forms of OpenAI's API: request bodies, answers, usage and errors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Form = Literal["text", "json", "schema"]

EFFORT_TO_TOKENS: Mapping[str, int] = {"low": 32, "medium": 128, "high": 512}
"""Reasoning tokens by ``reasoning_effort``; all other values mean no reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Message of a conversation, with its text parts only."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    """Names of the called tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Function that the answer must or may call."""

    name: str
    description: str = ""
    schema: Mapping[str, Any]
    by_name: bool
    """Whether the request named it, rather than requiring any call."""
    arguments: Mapping[str, Any] | None = None
    """Arguments of the call; ``None`` fills them by the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Request to a model."""

    model: str
    messages: tuple[Message, ...]
    temperature: float = 1.0
    limit: int | None = None
    """Maximum tokens of the answer, reasoning included; ``None`` means no limit."""
    seed: int | None = None
    effort: str = ""
    stop: tuple[str, ...] = ()
    """Strings before which the answer ends."""
    form: Form = "text"
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the answer if ``form`` is ``schema``."""
    tool: Tool | None = None
    """Tool that must be called."""
    offered: tuple[Tool, ...] = ()
    """Tools that may be called."""

    @property
    def system(self) -> str:
        """Texts of the system and developer messages."""
        return "\n".join(m.text for m in self.messages if m.role in ("system", "developer"))

    @property
    def user(self) -> str:
        """Text of the last message that is not a system message."""
        others = [m.text for m in self.messages if m.role not in ("system", "developer")]
        return others[-1] if others else ""

    @property
    def text(self) -> str:
        """All texts, joined by spaces."""
        return " ".join(m.text for m in self.messages)

    @property
    def identity(self) -> tuple[object, ...]:
        """Everything that the answer depends on."""
        messages = tuple((m.role, m.text) for m in self.messages)
        return (self.model, messages, self.temperature, self.limit, self.seed, self.effort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Answer to a request."""

    text: str
    """Answer, or the arguments of the tool call as JSON."""
    n_tokens: int
    """Tokens of the text only."""
    n_reasoning: int = 0
    complete: bool = True
    """Whether the answer ended before the limit."""


MOST_CHOICES = 128
MOST_TOKENS = 1_000_000


class ApiError(Exception):
    """Request that is answered with an error."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        kind = _ERROR_TYPES.get(status, "server_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


_ERROR_TYPES = {
    **dict.fromkeys((400, 401, 404), "invalid_request_error"),
    429: "rate_limit_error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Attempt at a request."""

    body: Mapping[str, Any]
    digest: str
    """Hash of the request; equal requests have equal hashes."""
    number: int
    """Number of this attempt at the request, from 1."""
    path_params: Mapping[str, str] = field(default_factory=dict)
    """Parts of the path that the route names."""
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Billed tokens of an answer."""

    prompt: int = 0
    completion: int = 0
    """Tokens of the whole answer, reasoning included."""
    reasoning: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the numbers under the names of ``convergence_core.records.Usage``."""
        return {
            "prompt_tokens": self.prompt,
            "cached_tokens": 0,
            "completion_tokens": self.completion,
            "reasoning_tokens": self.reasoning,
        }

    def usage(self) -> dict[str, Any]:
        """Return OpenAI's usage block of chats and completions."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": self.reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Answer that is ready to be sent."""

    body: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    """Server-sent events; if empty, the body is sent."""
    ends_with_done: bool = True
    """Whether the events end with OpenAI's ``[DONE]``."""
    model: str
    tokens: TokenUsage
    has_usage: bool = True
    """Whether the client can read the tokens in the answer."""


# -- bodies


class RequestBody(BaseModel):
    """Body of a request, which ignores unknown fields."""

    model_config = ConfigDict(strict=True)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """Return a validated body.

        Raises:
            ApiError: a field breaks its rule.
        """
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            problem = error.errors()[0]
            name, value = str(problem["loc"][0]), problem["input"]
            if problem["type"] == "missing":
                path = ".".join(map(str, problem["loc"]))
                raise ApiError(f"`{path}` must be given.", param=name) from None
            rule = _SHOULD.sub("must", problem["msg"])
            raise ApiError(f"`{name}` {rule}, but got {repr(value)[:60]}.", param=name) from None


_SHOULD = re.compile(r"^\w+ should")
Name: TypeAlias = Annotated[str, Field(min_length=1)]


def texts_of(content: Any) -> str:
    """Return the text of a message's content, ignoring other parts."""
    if isinstance(content, str):
        return content
    parts = (
        [part for part in content if isinstance(part, Mapping)]
        if isinstance(content, list)
        else []
    )
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
