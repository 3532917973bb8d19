"""Shapes of OpenAI's API: fields of request bodies, answers, usage and errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

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
    """Those of the call; ``None`` if they are filled by the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A question to a model."""

    model: str
    messages: tuple[Message, ...]
    temperature: float = 1.0
    limit: int | None = None
    """Most tokens of the answer, reasoning included; ``None`` means no limit."""
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


MOST_CHOICES = 128
MOST_TOKENS = 1_000_000
HOTTEST = 2.0


class ApiError(Exception):
    """A request that is answered with an error."""

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
    """One attempt at a request."""

    body: Mapping[str, Any]
    digest: str
    """Hash of the request; equal requests have equal ones."""
    number: int
    """How often the request has come, this time included."""
    path_params: Mapping[str, str] = field(default_factory=dict)
    """Parts of the path that the route names."""
    query: Mapping[str, str] = field(default_factory=dict)

    def with_field(self, name: str, value: str) -> Self:
        """Return the attempt with another field in its body."""
        return replace(self, body={**self.body, name: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens that an answer is billed for."""

    prompt: int = 0
    completion: int = 0
    """The whole answer, reasoning included."""
    reasoning: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the numbers by the names of ``convergence_core.records.Usage``."""
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
    """An answer that is ready to be sent."""

    body: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    """Server-sent events in place of the body; empty: the body is sent."""
    ends_with_done: bool = True
    """Whether the events end with OpenAI's ``[DONE]``."""
    model: str
    tokens: TokenUsage
    has_usage: bool = True
    """Whether the client can read the tokens in the answer."""


# -- fields of bodies


def number(body: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    """Return an optional number of a body.

    Raises:
        ApiError: it is no number, or out of range.
    """
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(name, "a number", value)
    if not low <= value <= high:
        raise ApiError(
            f"`{name}` must lie between {low:g} and {high:g}, but got {value:g}.", param=name
        )
    return float(value)


def whole(body: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    """Return an optional integer of a body.

    Raises:
        ApiError: it is no integer, or out of range.
    """
    value = number(body, name, low, high)
    if value is not None and value != int(value):
        raise ApiError(f"`{name}` must be an integer, but got {value:g}.", param=name)
    return None if value is None else int(value)


def flag(body: Mapping[str, Any], name: str) -> bool:
    """Return an optional truth of a body, false by default.

    Raises:
        ApiError: it is neither true nor false.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return value or False


def text(body: Mapping[str, Any], name: str) -> str:
    """Return a required text of a body.

    Raises:
        ApiError: it is missing, empty or no text.
    """
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise _wrong(name, "a text", value)
    return value


def mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an optional object of a body, empty by default.

    Raises:
        ApiError: it is no object.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise _wrong(name, "an object", value)
    return {} if value is None else value


def sampling(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a ``ModelRequest`` about sampling: temperature, seed and stop.

    Raises:
        ApiError: a setting is wrong.
    """
    temperature = number(body, "temperature", 0.0, HOTTEST)
    stop = body.get("stop")
    seed = whole(body, "seed", -(2**63), 2**63)
    listed = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise _wrong("stop", "texts", stop)
    return {
        "temperature": 1.0 if temperature is None else temperature,
        "seed": seed,
        "stop": tuple(entry for entry in listed if entry),
    }


def includes_usage(body: Mapping[str, Any]) -> bool:
    """Return whether a stream ends with the tokens used.

    Raises:
        ApiError: the option is no truth.
    """
    return flag(mapping(body, "stream_options"), "include_usage")


def messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the messages of a body.

    Raises:
        ApiError: there are none, or one has no role.
    """
    listed = body.get("messages")
    if not isinstance(listed, list) or not listed:
        raise ApiError("`messages` must be a list of messages, not empty.", param="messages")
    messages = []
    for i, message in enumerate(listed):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ApiError(f"`messages[{i}]` must be an object with a role.", param="messages")
        calls = message.get("tool_calls")
        functions = [
            mapping(call, "function") for call in calls or () if isinstance(call, Mapping)
        ]
        messages.append(
            Message(
                role=message["role"],
                text=texts_of(message.get("content")),
                calls=tuple(str(function.get("name")) for function in functions),
            )
        )
    return tuple(messages)


def texts_of(content: Any) -> str:
    """Return the text of a message's content; parts that are no text are left out."""
    if isinstance(content, str):
        return content
    parts = (
        [part for part in content if isinstance(part, Mapping)]
        if isinstance(content, list)
        else []
    )
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def refuse_logprobs(body: Mapping[str, Any]) -> None:
    """Refuse log-probabilities, which the mock does not have.

    Raises:
        ApiError: they are asked for.
    """
    for name in ("logprobs", "top_logprobs", "prompt_logprobs"):
        if (value := body.get(name)) is not None and value is not False:
            raise ApiError(f"`{name}` is not known to this mock.", param=name)


def _wrong(name: str, wanted: str, value: Any) -> ApiError:
    shown = "nothing" if value is None else repr(value)[:60]
    return ApiError(f"`{name}` must be {wanted}, but got {shown}.", param=name)
