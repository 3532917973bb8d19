"""Chat models' answers: text, tool calls, thinking, or a fault."""

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
"""Error type of a 200 that holds no answer at all: the server's doing, so it is tried again."""
_ENDS = frozenset({"stop", "end_turn", ""})
"""Finish reasons that servers write beside nothing, too."""
REASONING = "reasoning_content"
"""Field of a message that holds its thinking, as DeepSeek, vLLM and SGLang name it."""
_REASONING_FIELDS = (REASONING, "reasoning", "thinking")
"""The same field of OpenRouter, Groq and newer vLLM, and of Ollama."""


class RawAnswer(NamedTuple):
    """The JSON of an answer, as if it had come in one piece, and when it came."""

    raw: dict[str, Json]
    first_token_ms: float | None
    """Since sending; ``None`` if it was not streamed."""
    latency_ms: float
    fault: EvaluationFault | None = None
    """Error that the answer reports in place of its end; ``None`` if it reports none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletion(Completion):
    """An answer as it is read here; one that was billed and is of no use holds its fault."""

    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token of the answer, nats; ``None`` if not told."""
    tool_calls: tuple[Mapping[str, Json], ...] = ()
    """Each with ``name`` and ``arguments``, parsed where they are JSON."""
    fault: EvaluationFault | None = None
    """Why there is no answer in it: refused, filtered, empty, or absent."""

    def failure(
        self, *, cost_usd: float | None, price_version: str | None = None
    ) -> EvaluationFault | None:
        """Return ``fault`` with what the answer cost; ``None`` if there is an answer.

        An absent answer without a report of its tokens may cost as much as its request can.
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
        """The answer as a target's result: its text, or a mapping that holds its tool calls."""
        if not self.tool_calls:
            return self.text
        calls: list[Json] = [dict(call) for call in self.tool_calls]
        return {"content": self.text, "tool_calls": calls} if self.text else {"tool_calls": calls}


def refusal_of(message: Mapping[str, Json]) -> str:
    """Return the refusal of a message or of a piece of one: its own field, or parts of the content."""
    parts = [part.get("refusal") for part in mappings(message.get("content"))]
    return "".join(part for part in (message.get("refusal"), *parts) if isinstance(part, str))


def read_chat(answer: RawAnswer, *, is_split: bool = True) -> ChatCompletion:
    """Read an answer of the chat protocol; its first choice counts.

    ``is_split``: whether thinking at the beginning of the text is kept apart, here and below.
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
        # Servers that look for the end of the thinking in vain put the whole answer there.
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
    """Return a message's text; of parts, as Mistral's thinking models send, those that are text."""
    if isinstance(content, list):
        return "".join(as_text(part.get("text") or "") for part in mappings(content))
    return content if isinstance(content, str) else ""


def reasoning_text(message: Mapping[str, Json]) -> str:
    """Return the thinking that a message, or a piece of one, has in a place of its own."""
    for name in _REASONING_FIELDS:
        if isinstance(text := message.get(name), str) and text:
            return text
    parts = [p.get("thinking") for p in mappings(message.get("content"))]  # Mistral
    details = mappings(message.get("reasoning_details"))  # OpenRouter
    shown = [as_text(detail.get("text") or detail.get("summary") or "") for detail in details]
    return "".join([*map(content_text, parts), *shown])


def tool_calls_of(message: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return the calls of tools of a message, or of a piece of one; that of the older form too."""
    calls, function = mappings(message.get("tool_calls")), mapping(message.get("function_call"))
    if calls or not function:
        return calls
    return [{"id": "function_call", "type": "function", "function": function}]


def function_of(call: Mapping[str, Json]) -> dict[str, Json]:
    """Return name and arguments of a call, or of a piece of one; of a custom tool, its free text."""
    custom = mapping(call.get("custom"))
    if custom:
        return {"name": custom.get("name"), "arguments": custom.get("input")}
    return mapping(call.get("function"))


def called_tools(raw: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return the calls of tools of an answer, of either protocol, in the form of OpenAI's messages."""
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
    """Read an answer of Anthropic's messages."""
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
    """Return a completion; ``why`` there is no answer in it is a message and an error type.

    ``is_absent``: there is no choice at all, whatever the answer reports beside it.
    """
    reason = finish_reason if isinstance(finish_reason, str) else None
    usage, model = usage_of(answer.raw), answer.raw.get("model")
    if usage.completion_tokens == 0 and (text.strip() or tool_calls):
        # Servers that count nothing write zeros.
        usage = replace(usage, completion_tokens=None, prompt_tokens=usage.prompt_tokens or None)
    split = split_thinking(text) if is_split else SplitText(None, text)
    if split.answer is not text:
        text, logprobs = split.answer, None  # they are of the thinking's tokens too
    fault: EvaluationFault | None = (
        None if why is None else CandidateFault(why[0], error_type=why[1])
    )
    if fault is None and not text.strip() and not tool_calls:
        is_thought_alone = split.thinking is not None or bool(thinking)
        fault = _blank_fault(reason, usage, is_absent=is_absent, is_thought_alone=is_thought_alone)
    return ChatCompletion(
        # White space beside tool calls is no text.
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
    """Return the fault of an answer without text and calls: the model's, if the model did anything."""
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
    """Return the log-probabilities of a choice; ``None`` if not told, or not of every token."""
    tokens = mappings(mapping(choice.get("logprobs")).get("content"))
    logprobs = [token.get("logprob") for token in tokens]
    numbers = [
        float(logprob) for logprob in logprobs if isinstance(logprob, int | float) and logprob <= 0
    ]
    return tuple(numbers) if numbers and len(numbers) == len(logprobs) else None


def parsed_arguments(arguments: Json) -> Json:
    """Return the arguments of a tool call as JSON; what is none stays the text that the model wrote."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: Json = json.loads(arguments, parse_constant=refuse_constant) if arguments else {}
    except (ValueError, RecursionError):
        return arguments
    return parsed
