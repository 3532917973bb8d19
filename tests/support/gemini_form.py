"""Gemini's native ``generateContent`` and ``streamGenerateContent``."""

from collections.abc import Mapping
from typing import Any

from starlette.routing import BaseRoute, Route

from tasks.mock.engine import Engine
from tasks.mock.mock_server import Endpoint
from tasks.mock.prompt_text import pieces
from tasks.mock.protocol import (
    HOTTEST,
    MOST_TOKENS,
    ApiError,
    Attempt,
    Form,
    Message,
    ModelRequest,
    Payload,
    TokenUsage,
    Written,
    mapping,
    number,
    texts_of,
    whole,
)
from tasks.mock.service import MockService

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
_MOST_CANDIDATES = 8


def generate(engine: Engine, attempt: Attempt) -> Payload:
    """Answer a conversation; the path names model and method.

    Raises:
        ApiError: the request is wrong.
    """
    model, _, method = attempt.path_params["call"].rpartition(":")
    if not model or method not in ("generateContent", "streamGenerateContent"):
        raise ApiError(f"Unknown method {method!r}.", status=404)
    settings = mapping(attempt.body, "generationConfig")
    request = _request(attempt.body, settings, model)
    n = whole(settings, "candidateCount", 1, _MOST_CANDIDATES) or 1
    chosen = engine.choose(request, n)
    tokens = engine.tokens(request, chosen)
    frame = {"usageMetadata": _usage(tokens), "modelVersion": model}
    if method == "generateContent":
        candidates = [_candidate(one, i, one.text) for i, one in enumerate(chosen)]
        return Payload(body={"candidates": candidates, **frame}, model=model, tokens=tokens)
    events = [
        {"candidates": [{"index": i, "content": _content(piece)}], "modelVersion": model}
        for i, one in enumerate(chosen)
        for piece in pieces(one.text)
    ]
    last = {"candidates": [_candidate(one, i, "") for i, one in enumerate(chosen)], **frame}
    return Payload(events=[*events, last], ends_with_done=False, model=model, tokens=tokens)


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return an error in Google's shape."""
    name = _STATUSES.get(status, "UNKNOWN")
    return {"error": {"code": status, "message": message, "status": name}}


def _request(body: Mapping[str, Any], settings: Mapping[str, Any], model: str) -> ModelRequest:
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise ApiError("`contents` must be a list of contents, not empty.", param="contents")
    listed = [("system", mapping(body, "systemInstruction"))]
    for content in contents:
        if not isinstance(content, Mapping):
            raise ApiError("`contents` must hold objects with `parts`.", param="contents")
        listed.append(("assistant" if content.get("role") == "model" else "user", content))
    messages = [Message(role=role, text=_text(content)) for role, content in listed]
    temperature = number(settings, "temperature", 0.0, HOTTEST)
    form, schema = _form(settings)
    thinking = mapping(settings, "thinkingConfig")
    return ModelRequest(
        model=model,
        messages=tuple(m for m in messages if m.text),
        temperature=1.0 if temperature is None else temperature,
        limit=whole(settings, "maxOutputTokens", 1, MOST_TOKENS),
        seed=whole(settings, "seed", -(2**63), 2**63),
        effort=_effort(thinking),
        stop=tuple(str(entry) for entry in settings.get("stopSequences") or ()),
        form=form,
        schema=schema,
    )


def _effort(thinking: Mapping[str, Any]) -> str:
    level = thinking.get("thinkingLevel")
    if isinstance(level, str):
        return level.casefold()
    budget = whole(thinking, "thinkingBudget", -1, MOST_TOKENS) or 0
    return "low" if 0 < budget < 128 else "high" if budget >= 512 else "medium" if budget else ""


def _form(settings: Mapping[str, Any]) -> tuple[Form, Mapping[str, Any]]:
    if settings.get("responseMimeType") != "application/json":
        return "text", {}
    schema = mapping(settings, "responseSchema") or mapping(settings, "responseJsonSchema")
    return ("schema", schema) if schema else ("json", {})


def _text(content: Mapping[str, Any]) -> str:
    parts = content.get("parts")
    return texts_of(parts if isinstance(parts, list) else [parts])


def _content(text: str) -> dict[str, Any]:
    return {"role": "model", "parts": [{"text": text}]}


def _candidate(choice: Written, index: int, text: str) -> dict[str, Any]:
    reason = "STOP" if choice.complete else "MAX_TOKENS"
    return {"index": index, "content": _content(text), "finishReason": reason}


def _usage(tokens: TokenUsage) -> dict[str, int]:
    # Google counts thoughts beside the candidates, OpenAI within the completion.
    return {
        "promptTokenCount": tokens.prompt,
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.completion - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "totalTokenCount": tokens.prompt + tokens.completion,
    }


def gemini_routes(service: MockService) -> list[BaseRoute]:
    """Return the routes of a ``MockServer`` that speaks it."""
    endpoint = Endpoint(service, generate, error_body)
    return [Route("/v1beta/models/{call:path}", endpoint, methods=["POST"])]
