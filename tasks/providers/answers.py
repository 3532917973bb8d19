"""What a chat model's answer says: its text or its tool calls, or whose fault it is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from convergence_core.budget.usage import usage_of
from convergence_core.errors import CandidateFault
from convergence_core.ports import Completion
from convergence_core.records import Json, Reply
from tasks.json_values import as_text

REFUSAL = "refusal"
EMPTY = "empty_reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletion(Completion):
    """An answer as it is read here; one that was billed and is of no use holds its fault."""

    tool_calls: tuple[Mapping[str, Json], ...] = ()
    """Each with ``name`` and ``arguments``, parsed where they are JSON."""
    fault: CandidateFault | None = None
    """Why there is no answer in it: refused, filtered, or empty."""

    @property
    def value(self) -> Json:
        """The answer as a target's result: its text, or a mapping that holds its tool calls."""
        if not self.tool_calls:
            return self.text
        calls: list[Json] = [dict(call) for call in self.tool_calls]
        return {"content": self.text, "tool_calls": calls} if self.text else {"tool_calls": calls}

    def reply(self, *, provider: str) -> Reply:
        """Return this answer as a target's reply, without a price."""
        return Reply(
            value=None if self.fault is not None else self.value,
            latency_ms=self.latency_ms,
            usage=self.usage,
            model=self.model,
            provider=provider,
            first_token_ms=self.first_token_ms,
            dropped=self.dropped,
        )


def read_chat(
    raw: Mapping[str, Json], *, latency_ms: float, first_token_ms: float | None = None
) -> ChatCompletion:
    """Read an answer of the chat protocol; its first choice counts."""
    choices = raw.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    choice = first if isinstance(first, dict) else {}
    reason = choice.get("finish_reason")
    finish_reason = reason if isinstance(reason, str) else None
    inner = choice.get("message")
    message = inner if isinstance(inner, dict) else {}
    text, tool_calls = _content_text(message.get("content")), _tool_calls(message)
    refusal = message.get("refusal")
    fault: CandidateFault | None = None
    if not isinstance(first, dict):
        fault = CandidateFault("the model's answer holds no choice", error_type=EMPTY)
    elif isinstance(refusal, str) and refusal:
        fault = CandidateFault(f"the model refused: {refusal}", error_type=REFUSAL)
    elif finish_reason == "content_filter":
        fault = CandidateFault("the provider's filter stopped the answer", error_type=REFUSAL)
    elif not text.strip() and not tool_calls:
        fault = empty_fault(finish_reason)
    return _completion(
        raw,
        text,
        model=raw.get("model"),
        latency_ms=latency_ms,
        first_token_ms=first_token_ms,
        finish_reason=finish_reason,
        tool_calls=tool_calls,
        fault=fault,
    )


def _completion(
    raw: Mapping[str, Json],
    text: str,
    *,
    model: Json,
    latency_ms: float,
    first_token_ms: float | None,
    finish_reason: str | None,
    tool_calls: tuple[Mapping[str, Json], ...],
    fault: CandidateFault | None,
) -> ChatCompletion:
    """Return a completion; white space beside tool calls is no text."""
    return ChatCompletion(
        text=text if text.strip() or fault is not None else "",
        latency_ms=latency_ms,
        model=model if isinstance(model, str) else None,
        usage=usage_of(raw),
        first_token_ms=first_token_ms,
        finish_reason=finish_reason,
        raw=raw,
        tool_calls=tool_calls,
        fault=fault,
    )


def empty_fault(finish_reason: str | None) -> CandidateFault:
    """Return the fault of an answer without text."""
    why = f" (finish reason: {finish_reason})" if finish_reason else ""
    return CandidateFault(f"the model's answer is empty{why}", error_type=EMPTY)


def _content_text(content: Json) -> str:
    if isinstance(content, list):  # parts, as some servers send
        return "".join(as_text(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _tool_calls(message: Mapping[str, Json]) -> tuple[Mapping[str, Json], ...]:
    found = message.get("tool_calls")
    functions = [
        call.get("function")
        for call in (found if isinstance(found, list) else [])
        if isinstance(call, dict)
    ]
    return tuple(
        {"name": function.get("name"), "arguments": _parsed(function.get("arguments"))}
        for function in functions
        if isinstance(function, dict)
    )


def _parsed(arguments: Json) -> Json:
    """Return arguments as JSON; what is none stays the text that the model wrote."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: Json = json.loads(arguments, parse_constant=_no_constant) if arguments else {}
    except (ValueError, RecursionError):
        return arguments
    return parsed


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is no JSON")


# -- Gemini's own protocol

_STOPPED_BY_FILTER = frozenset(
    """
    SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT
    IMAGE_RECITATION
    """.split()  # noqa: SIM905 - as a literal it would be ten lines
)


def read_gemini(
    raw: Mapping[str, Json], *, latency_ms: float, first_token_ms: float | None = None
) -> ChatCompletion:
    """Read an answer of ``generateContent``; its first candidate counts, thoughts left out."""
    candidates = raw.get("candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    candidate = first if isinstance(first, dict) else {}
    reason = candidate.get("finishReason")
    finish_reason = reason if isinstance(reason, str) else None
    text, calls = "", []
    for part in gemini_parts(candidate):
        call = part.get("functionCall")
        if isinstance(call, dict):
            calls.append({"name": call.get("name"), "arguments": call.get("args", {})})
        elif part.get("thought") is not True and isinstance(part.get("text"), str):
            text += as_text(part["text"])
    feedback = raw.get("promptFeedback")
    blocked = feedback.get("blockReason") if isinstance(feedback, dict) else None
    fault: CandidateFault | None = None
    if blocked:
        fault = CandidateFault(f"the provider blocked the prompt: {blocked}", error_type=REFUSAL)
    elif finish_reason in _STOPPED_BY_FILTER:
        fault = CandidateFault(
            f"the provider's filter stopped the answer: {finish_reason}", error_type=REFUSAL
        )
    elif not text.strip() and not calls:
        fault = empty_fault(finish_reason)
    return _completion(
        raw,
        text,
        model=raw.get("modelVersion"),
        latency_ms=latency_ms,
        first_token_ms=first_token_ms,
        finish_reason=finish_reason,
        tool_calls=tuple(calls),
        fault=fault,
    )


def gemini_parts(candidate: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return the parts of a candidate's content."""
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
