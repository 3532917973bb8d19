"""Chat providers' answers in their wire formats, and targets that request them."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.config import parse_mapping
from convergence_core.errors import EvaluationFault
from convergence_core.records import Case, Reply
from tasks.secrets.redaction import Secrets
from tasks.targets.chat import ChatTarget
from tests.support.configurations import chat_api, mapping
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer

CASE = Case(case_id="a", input={"q": "one"}, expected="1")
TEMPERATURE = {"temperature": {"type": "float", "min": 0, "max": 1}}
NO_PRICES = PriceTable(version="2026-01-01")


def target_of(
    api: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    prices: PriceTable = NO_PRICES,
    mock_url: str | None = None,
    **sections: Any,
) -> ChatTarget:
    """Return a configuration's chat target. The default space has a temperature."""
    sections.setdefault("search_space__parameters", TEMPERATURE)
    configuration = parse_mapping(mapping(api=api, **sections))
    return ChatTarget(
        configuration,
        secrets=Secrets(environ or {}),
        workers=configuration.optimization.execution.parallel_workers,
        prices=prices,
        mock_url=mock_url,
    )


def ask(
    api: Mapping[str, Any],
    *,
    params: Mapping[str, Any] | None = None,
    case: Case = CASE,
    **settings: Any,
) -> Reply:
    """Call a configuration's target once."""
    target = target_of(api, **settings)

    async def go() -> Reply:
        try:
            return await target.call({"temperature": 0.5} if params is None else params, case)
        finally:
            await target.aclose()

    return asyncio.run(go())


def azure_api(url: str, **more: Any) -> dict[str, Any]:
    return {**chat_api(url, **more), "kind": "azure"}


def groq_api(url: str, **more: Any) -> dict[str, Any]:
    return {**chat_api(url, **more), "kind": "groq"}


def gemini_api(url: str, **more: Any) -> dict[str, Any]:
    return {**chat_api(url, **more), "kind": "gemini"}


CHAT_APIS: dict[str, Any] = {
    "openai": chat_api,
    "azure": azure_api,
    "groq": groq_api,
    "gemini": gemini_api,
}
KEY = "canary-0123456789"
ENVIRON = {"CANARY": KEY}


def sent(
    api: Callable[[str], Mapping[str, Any]], *, answer: Answer | None = None, **settings: Any
) -> tuple[Request, Reply]:
    """Call once and return the single request that the server received, and the reply."""
    found = answer or chat_answer("hello")
    with LoopbackServer(lambda _: found) as server:
        reply = ask(api(server.url), environ=ENVIRON, **settings)
    (request,) = server.requests
    return request, reply


def fault_of(
    api: Callable[[str], Mapping[str, Any]], answer: Answer, **settings: Any
) -> EvaluationFault:
    """Call once and return the failure."""
    with LoopbackServer(lambda _: answer) as server, pytest.raises(EvaluationFault) as caught:
        ask(api(server.url), environ=ENVIRON, **settings)
    return caught.value


def tool_calls(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    """Return tool calls of the chat protocol from names and arguments, as text or JSON values."""
    return [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": given if isinstance(given, str) else json.dumps(given),
            },
        }
        for i, (name, given) in enumerate(calls)
    ]


# -- streams


def events(pieces: Sequence[Any], *, done: bool = True, end: str = "\n\n") -> Answer:
    """Return a stream of server-sent events."""
    data = [json.dumps(piece, ensure_ascii=False) for piece in pieces]
    data += ["[DONE]"] if done else []
    body = "".join(f"data: {item}{end}" for item in data)
    return Answer(body.encode(), headers={"content-type": "text/event-stream"})


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return a chunk of the chat protocol."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "served",
        "choices": [{"index": 0, "finish_reason": finish_reason, "delta": delta}],
    }


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
USAGE_CHUNK: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "served",
    "choices": [],
    "usage": USAGE,
}
HELLO_CHUNKS = [
    chunk(role="assistant", content=""),
    chunk(content="hel"),
    chunk(content="lo"),
    chunk("stop"),
    USAGE_CHUNK,
]


# -- Anthropic's messages


def anthropic_answer(
    text: str | None = "hello",
    *,
    model: str = "served",
    content: Any = None,
    stop_reason: str = "end_turn",
    usage: Any = None,
) -> Answer:
    """Return a whole answer of ``/v1/messages``."""
    blocks = content or [{"type": "text", "text": text or ""}]
    return Answer(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": blocks,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage or {"input_tokens": 7, "output_tokens": 3},
        }
    )


def anthropic_error(
    status: int, message: str = "no", kind: str = "invalid_request_error"
) -> Answer:
    """Return an error in Anthropic's format."""
    return Answer(
        {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"},
        status,
    )


def anthropic_api(url: str, **more: Any) -> dict[str, Any]:
    """Return ``api`` of kind ``anthropic`` with the required token limit."""
    made = {**chat_api(url, **more), "kind": "anthropic"}
    request = made.setdefault("request", {})
    request["options"] = {"max_tokens": 50, **request.get("options", {})}
    return made


HELLO_EVENTS: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "served",
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 7, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 3},
    },
    {"type": "message_stop"},
]


def echo(request: Request) -> Answer:
    """Stream the number of messages and the last message's text, in two pieces."""
    messages = request.body["messages"]
    said = f"{len(messages)}: {messages[-1]['content']}"
    usage = {**chunk(), "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    return events([chunk(content=said[:2]), chunk(content=said[2:]), chunk("stop"), usage])


def gemini_error(status: int, message: str = "no", reason: str | None = None) -> Answer:
    """Return an error in the format of Google's services."""
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]
    error = {"code": status, "message": message, "details": details if reason else []}
    return Answer({"error": error}, status)
