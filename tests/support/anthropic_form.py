"""Anthropic's native ``/v1/messages``, whole and streamed."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.routing import BaseRoute, Route

from tasks.mock.mock_server import MockEndpoint
from tasks.mock.prompt_text import pieces
from tasks.mock.protocol import (
    MOST_TOKENS,
    ApiError,
    Attempt,
    Message,
    ModelRequest,
    Payload,
    TokenUsage,
    Written,
    texts_of,
)
from tasks.mock.responder import Engine
from tasks.mock.service import MockService

_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_FIELDS: Final = frozenset(
    """
    model messages max_tokens system temperature top_p top_k stop_sequences stream metadata thinking output_config
    cache_control tools tool_choice
    """.split()  # noqa: SIM905 - as a literal it would be ten lines
)
_LEAST_BUDGET: Final = 1024
_BOUNDS: Final = re.compile(r"Bounds: (\{.*\})$")


def messages(engine: Engine, attempt: Attempt) -> Payload:
    """Answer a conversation.

    Raises:
        ApiError: If the request is invalid.
    """
    request = _request(attempt.body)
    is_streamed = bool(attempt.body.get("stream"))
    (choice,) = chosen = engine.choose(request, 1)
    tokens = engine.tokens(request, chosen)
    reason = "end_turn" if choice.complete else "max_tokens"
    body: dict[str, Any] = {
        "id": f"msg_{attempt.digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [{"type": "text", "text": choice.text}],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": _usage(tokens),
    }
    if not is_streamed:
        return Payload(body=body, model=request.model, tokens=tokens)
    return Payload(
        events=_events(body, choice), ends_with_done=False, model=request.model, tokens=tokens
    )


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return an error in Anthropic's format."""
    kind = _ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _request(body: Mapping[str, Any]) -> ModelRequest:
    unknown = sorted(body.keys() - _FIELDS)
    if unknown:
        raise ApiError(f"{unknown[0]}: Extra inputs are not permitted", param=unknown[0])
    limit = whole(body, "max_tokens", 1, MOST_TOKENS)
    if limit is None:
        raise ApiError("max_tokens: Field required", param="max_tokens")
    temperature = number(body, "temperature", 0.0, 1.0)
    stop = body.get("stop_sequences") or []
    form = mapping(mapping(body, "output_config"), "format")
    schema = _bounded(mapping(form, "schema"))
    system = body.get("system")
    system_messages = [] if system is None else [Message(role="system", text=texts_of(system))]
    return ModelRequest(
        model=str(body["model"]),
        messages=(*system_messages, *_messages(body)),
        temperature=1.0 if temperature is None else temperature,
        limit=limit,
        effort=_effort(body, limit),
        stop=tuple(str(entry) for entry in stop),
        form="schema" if schema else "text",
        schema=schema,
    )


def _bounded(schema: Any) -> Any:
    """Return a schema with the bounds from its descriptions, which a model reads and follows."""
    if isinstance(schema, list):
        return [_bounded(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    bounded = {name: _bounded(value) for name, value in schema.items()}
    description = bounded.get("description")
    bounds = _BOUNDS.search(description) if isinstance(description, str) else None
    if bounds is None:
        return bounded
    try:
        return {**bounded, **json.loads(bounds[1])}
    except ValueError:
        return bounded


def _messages(body: Mapping[str, Any]) -> list[Message]:
    listed = body.get("messages")
    if not isinstance(listed, list) or not listed:
        raise ApiError("messages: at least one message is required", param="messages")
    messages = []
    for i, message in enumerate(listed):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ("user", "assistant"):
            raise ApiError(
                f"messages.{i}.role: must be `user` or `assistant`, but got {role!r}",
                param="messages",
            )
        messages.append(Message(role=role, text=texts_of(message.get("content"))))
    return messages


def _effort(body: Mapping[str, Any], limit: int) -> str:
    """Return the reasoning effort for the budget, or an empty value without reasoning.

    Raises:
        ApiError: If the budget is invalid.
    """
    thinking = mapping(body, "thinking")
    if thinking.get("type") != "enabled":
        return ""
    budget = whole(thinking, "budget_tokens", _LEAST_BUDGET, MOST_TOKENS)
    if budget is None or budget >= limit:
        raise ApiError("`max_tokens` must be greater than `thinking.budget_tokens`")
    if body.get("temperature") not in (None, 1):
        raise ApiError("`temperature` may only be set to 1 when thinking is enabled")
    return "medium" if budget < 4096 else "high"


def _events(body: Mapping[str, Any], choice: Written) -> list[dict[str, Any]]:
    begun = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"]}}
    begun["usage"]["output_tokens"] = 1
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": piece},
            }
            for piece in pieces(choice.text)
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": delta,
            "usage": {"output_tokens": body["usage"]["output_tokens"]},
        },
        {"type": "message_stop"},
    ]


def _usage(tokens: TokenUsage) -> dict[str, int]:
    return {
        "input_tokens": tokens.prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": tokens.completion,
    }


def number(body: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    """Return an optional number of a body."""
    value = body.get(name)
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high
    ):
        raise ApiError(f"{name}: must lie between {low:g} and {high:g}", param=name)
    return value


def whole(body: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    """Return an optional integer of a body."""
    value = number(body, name, low, high)
    return None if value is None else int(value)


def mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an optional object of a body, empty by default."""
    value = body.get(name)
    return value if isinstance(value, Mapping) else {}


def anthropic_routes(service: MockService) -> list[BaseRoute]:
    """Return the routes of a ``MockServer`` with this protocol."""
    return [Route("/v1/messages", MockEndpoint(service, messages, error_body), methods=["POST"])]
