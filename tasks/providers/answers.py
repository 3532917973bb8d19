"""Answers of chat models: text, tool calls, thinking, or a fault."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from convergence_core.budget.usage import usage_of
from convergence_core.errors import Billed, CandidateFault, EvaluationFault, InfrastructureFault
from convergence_core.ports import Completion
from convergence_core.records import Json, Usage, fields_of
from convergence_core.thought_tags import SplitText, split_thinking
from tasks.json_values import as_text, first_of, mapping, mappings, refuse_constant

REFUSAL = "refusal"
EMPTY = "empty_reply"
ABSENT = "no_answer"
"""Error type of a 200 without any answer: a server error, so the call is retried."""
_ENDS = frozenset({"stop", "end_turn", ""})
"""Finish reasons that servers also write with empty answers."""
REASONING = "reasoning_content"
"""Message field of the thinking in DeepSeek, vLLM and SGLang."""
_REASONING_FIELDS = (REASONING, "reasoning", "thinking")
"""Message fields of the thinking; the others are those of OpenRouter, Groq and newer vLLM, and of
Ollama.
"""


class RawAnswer(NamedTuple):
    """JSON of a whole answer, joined if it was streamed, with its timing."""

    raw: dict[str, Json]
    first_token_ms: float | None
    """Milliseconds from sending to the first token; ``None`` if the answer was not streamed."""
    latency_ms: float
    fault: EvaluationFault | None = None
    """Error that the answer reports instead of finishing; ``None`` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletion(Completion):
    """Parsed answer; a billed but unusable one holds its fault."""

    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token in nats; ``None`` if the provider returned none."""
    tool_calls: tuple[Mapping[str, Json], ...] = ()
    """Tool calls with ``name`` and ``arguments``, which are parsed if they are JSON."""
    fault: EvaluationFault | None = None
    """Reason why there is no answer: refused, filtered, empty or absent."""

    def failure(
        self, *, cost_usd: float | None, price_version: str | None = None
    ) -> EvaluationFault | None:
        """Return ``fault`` with the answer's cost; ``None`` if there is an answer.

        An absent answer without reported tokens may cost as much as its request can.
        """
        if self.fault is not None and (
            isinstance(self.fault, CandidateFault) or self.usage.total is not None
        ):
            self.fault.billed = Billed(
                cost_usd=cost_usd,
                price_version=price_version,
                **fields_of(self, "usage", "model"),
            )
        return self.fault

    @property
    def value(self) -> Json:
        """Target result: the text, or a mapping with the tool calls."""
        if not self.tool_calls:
            return self.text
        calls: list[Json] = [dict(call) for call in self.tool_calls]
        return {"content": self.text, "tool_calls": calls} if self.text else {"tool_calls": calls}


def refusal_of(message: Mapping[str, Json]) -> str:
    """Return the refusal of a message or delta, from its field or its content parts."""
    parts = [part.get("refusal") for part in mappings(message.get("content"))]
    return "".join(part for part in (message.get("refusal"), *parts) if isinstance(part, str))


def read_chat(answer: RawAnswer, *, is_split: bool = True) -> ChatCompletion:
    """Parse a chat-completions answer; only the first choice is used.

    Here and below, ``is_split`` separates thinking at the beginning of the text from the answer.
    """
    choice = first_of(answer.raw.get("choices"))
    message = mapping(choice.get("message"))
    reason, why = choice.get("finish_reason"), None
    if refusal := refusal_of(message):
        why = f"the model refused: {refusal}", REFUSAL
    elif reason == "content_filter":
        why = "the provider's filter stopped the answer", REFUSAL
    functions = [function_of(call) for call in tool_calls_of(message)]
    text, thinking = content_text(message.get("content")), reasoning_text(message)
    if reason == "stop" and not text.strip() and not functions:
        # Servers that never find the end of the thinking put the whole answer there.
        text, thinking = thinking, ""
    return _completion(
        answer,
        text,
        thinking=thinking,
        is_split=is_split,
        finish_reason=reason,
        logprobs=_logprobs(choice),
        tool_calls=[
            {
                "name": function.get("name"),
                "arguments": parsed_arguments(function.get("arguments")),
            }
            for function in functions
            if function
        ],
        why=why,
        is_absent=not choice,
    )


def content_text(content: Json) -> str:
    """Return a message's text: of a list of parts, those with text (Mistral's thinking models)."""
    if isinstance(content, list):
        return "".join(as_text(part.get("text") or "") for part in mappings(content))
    return content if isinstance(content, str) else ""


def reasoning_text(message: Mapping[str, Json]) -> str:
    """Return the thinking that a message or delta holds in a separate field."""
    for name in _REASONING_FIELDS:
        if isinstance(text := message.get(name), str) and text:
            return text
    parts = [p.get("thinking") for p in mappings(message.get("content"))]  # Mistral
    details = mappings(message.get("reasoning_details"))  # OpenRouter
    shown = [as_text(detail.get("text") or detail.get("summary") or "") for detail in details]
    return "".join([*map(content_text, parts), *shown])


def tool_calls_of(message: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return the tool calls of a message or delta, including the deprecated ``function_call``."""
    calls, function = mappings(message.get("tool_calls")), mapping(message.get("function_call"))
    if calls or not function:
        return calls
    return [{"id": "function_call", "type": "function", "function": function}]


def function_of(call: Mapping[str, Json]) -> dict[str, Json]:
    """Return a call's name and arguments; a custom tool's arguments are its free text."""
    custom = mapping(call.get("custom"))
    if custom:
        return {"name": custom.get("name"), "arguments": custom.get("input")}
    return mapping(call.get("function"))


def called_tools(raw: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return the tool calls of an answer of either protocol, in the form of OpenAI's messages."""
    used = [b for b in mappings(raw.get("content")) if b.get("type") == "tool_use"]
    return tool_calls_of(mapping(first_of(raw.get("choices")).get("message"))) or [
        {
            "id": block.get("id"),
            "type": "function",
            "function": {
                "name": block.get("name"), "arguments": json.dumps(block.get("input") or {})
            },
        }
        for block in used
    ]  # fmt: skip


def read_anthropic(answer: RawAnswer, *, is_split: bool = True) -> ChatCompletion:
    """Parse an answer of Anthropic's messages."""
    text, thinking, calls = "", "", []
    for block in mappings(answer.raw.get("content")):
        if block.get("type") == "text":
            text += as_text(block.get("text") or "")
        elif block.get("type") == "thinking":
            thinking += as_text(block.get("thinking") or "")
        elif block.get("type") == "tool_use":
            calls.append({"name": block.get("name"), "arguments": block.get("input", {})})
    reason = answer.raw.get("stop_reason")
    why = ("the model refused", REFUSAL) if reason == "refusal" else None
    return _completion(
        answer,
        text,
        thinking=thinking,
        is_split=is_split,
        finish_reason=reason,
        tool_calls=calls,
        why=why,
    )


def _completion(
    answer: RawAnswer,
    text: str,
    *,
    thinking: str,
    is_split: bool,
    finish_reason: Json,
    tool_calls: list[dict[str, Json]],
    why: tuple[str, str] | None,
    is_absent: bool = False,
    logprobs: tuple[float, ...] | None = None,
) -> ChatCompletion:
    """Return a completion; ``why`` is the message and error type if there is no answer.

    ``is_absent`` means that the answer has no choice at all, whatever else it reports.
    """
    reason = finish_reason if isinstance(finish_reason, str) else None
    usage, model = usage_of(answer.raw), answer.raw.get("model")
    if usage.completion_tokens == 0 and (text.strip() or tool_calls):
        # Servers that do not count tokens write zeros.
        usage = replace(usage, completion_tokens=None, prompt_tokens=usage.prompt_tokens or None)
    split = split_thinking(text) if is_split else SplitText(None, text)
    if split.answer is not text:
        text, logprobs = split.answer, None  # they include the thinking's tokens
    fault: EvaluationFault | None = (
        None if why is None else CandidateFault(why[0], error_type=why[1])
    )
    if fault is None and not text.strip() and not tool_calls:
        is_thought_alone = split.thinking is not None or bool(thinking)
        fault = _blank_fault(reason, usage, is_absent=is_absent, is_thought_alone=is_thought_alone)
    return ChatCompletion(
        # White space next to tool calls is not text.
        text=text if text.strip() or fault is not None else "",
        **fields_of(answer, "raw", "latency_ms", "first_token_ms"),
        model=model if isinstance(model, str) else None,
        usage=usage,
        finish_reason=reason,
        thinking="\n\n".join(filter(None, (thinking.strip(), split.thinking))) or None,
        logprobs=logprobs,
        tool_calls=tuple(tool_calls),
        fault=fault,
    )


def _blank_fault(
    reason: str | None, usage: Usage, *, is_absent: bool, is_thought_alone: bool
) -> EvaluationFault:
    """Return the fault of an answer without text and calls.

    The model is at fault if it produced anything, else the server.
    """
    has_ended = reason is not None and (bool(usage.total) or reason not in _ENDS)
    if is_absent or not (has_ended or usage.completion_tokens or is_thought_alone):
        lack = "no choice" if is_absent else "no text and no billed tokens"
        return InfrastructureFault(
            f"the server's answer holds {lack}", error_type=ABSENT, may_be_billed=True
        )
    reason_text = f" (finish reason: {reason})" if reason else ""
    lack = "is thinking alone" if is_thought_alone else "is empty"
    return CandidateFault(f"the model's answer {lack}{reason_text}", error_type=EMPTY)


def _logprobs(choice: Mapping[str, Json]) -> tuple[float, ...] | None:
    """Return the log-probabilities of a choice; ``None`` if any token's is missing."""
    tokens = mappings(mapping(choice.get("logprobs")).get("content"))
    logprobs = [token.get("logprob") for token in tokens]
    numbers = [
        float(logprob) for logprob in logprobs if isinstance(logprob, int | float) and logprob <= 0
    ]
    return tuple(numbers) if numbers and len(numbers) == len(logprobs) else None


def parsed_arguments(arguments: Json) -> Json:
    """Return the arguments of a tool call as JSON, or the model's string if it is not JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: Json = json.loads(arguments, parse_constant=refuse_constant) if arguments else {}
    except (ValueError, RecursionError):
        return arguments
    return parsed
