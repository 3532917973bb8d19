"""``/v1/chat/completions``: whole and streamed."""

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.mock.prompt_text import pieces
from tasks.mock.protocol import (
    MOST_CHOICES,
    MOST_TOKENS,
    ApiError,
    Attempt,
    Form,
    ModelRequest,
    Payload,
    Tool,
    Written,
    flag,
    includes_usage,
    mapping,
    messages,
    refuse_logprobs,
    sampling,
    text,
    whole,
)
from tasks.mock.responder import Engine, with_tool

_Json = dict[str, Any]


def chat(engine: Engine, attempt: Attempt) -> Payload:
    """Answer a chat.

    Raises:
        ApiError: the request is wrong, or wants log-probabilities.
    """
    body = attempt.body
    refuse_logprobs(body)
    request = _request(body)
    n = whole(body, "n", 1, MOST_CHOICES) or 1
    request = with_tool(request, engine.first(request, n, attempt.number))
    chosen = engine.choose(request, n, attempt=attempt.number)
    choices = [_Choice(request, written, index) for index, written in enumerate(chosen)]
    tokens = engine.tokens(request, chosen)
    head = {"id": f"chatcmpl-{attempt.digest[:24]}", "created": 0, "model": request.model}
    if flag(body, "stream"):
        has_usage = includes_usage(body)
        frame = {**head, "object": "chat.completion.chunk", "system_fingerprint": "mock"}
        more = {"usage": None} if has_usage else {}
        parts = [part for choice in choices for part in choice.parts()]
        events: list[_Json] = [{**frame, "choices": [part], **more} for part in parts]
        if has_usage:
            events.append({**frame, "choices": [], "usage": tokens.usage()})
        return Payload(events=events, model=request.model, tokens=tokens, has_usage=has_usage)
    return Payload(
        body={
            **head,
            "object": "chat.completion",
            "choices": [choice.whole() for choice in choices],
            "usage": tokens.usage(),
            "service_tier": "default",
            "system_fingerprint": "mock",
        },
        model=request.model,
        tokens=tokens,
    )


# -- reading


def _request(body: Mapping[str, Any]) -> ModelRequest:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise ApiError(
            "`max_tokens` and `max_completion_tokens` cannot both be given. Leave one out.",
            param="max_tokens",
        )
    limit = whole(body, "max_completion_tokens", 1, MOST_TOKENS)
    limit = limit or whole(body, "max_tokens", 1, MOST_TOKENS)
    listed = messages(body)
    form, schema = _form(body)
    if form == "json" and "json" not in " ".join(m.text for m in listed).casefold():
        raise ApiError(
            "`messages` must contain the word 'json' to use `response_format` of type "
            "'json_object'.",
            param="messages",
        )
    effort = body.get("reasoning_effort")
    return ModelRequest(
        model=text(body, "model"),
        messages=listed,
        limit=limit,
        effort=effort if isinstance(effort, str) else "",
        **sampling(body),
        form=form,
        schema=schema,
        tool=_forced_tool(body),
        offered=_offered_tools(body),
    )


def _form(body: Mapping[str, Any]) -> tuple[Form, Mapping[str, Any]]:
    wanted = mapping(body, "response_format")
    kind = wanted.get("type", "text")
    if kind == "text":
        return "text", {}
    if kind == "json_object":
        return "json", {}
    rule = f"`response_format.type` must be text, json_object or json_schema, but got {kind!r}."
    if kind == "json_schema":
        schema = mapping(wanted, "json_schema").get("schema")
        if isinstance(schema, Mapping):
            return "schema", schema
        rule = "`response_format.json_schema.schema` must be a JSON Schema."
    raise ApiError(rule, param="response_format")


def _forced_tool(body: Mapping[str, Any]) -> Tool | None:
    """Return the tool that must be called; ``None`` if the answer is free to be a text."""
    choice = body.get("tool_choice")
    if choice in (None, "auto", "none"):
        return None
    name = mapping(choice, "function").get("name") if isinstance(choice, Mapping) else None
    for function in _functions(body):
        if name is None or function.get("name") == name:
            return _tool(function, by_name=name is not None)
    raise ApiError(
        f"`tool_choice` must name one of `tools`, but got {name!r}.", param="tool_choice"
    )


def _offered_tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Return the tools that may be called, and need not."""
    if body.get("tool_choice") not in (None, "auto"):
        return ()
    return tuple(_tool(function, by_name=False) for function in _functions(body))


def _functions(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = body.get("tools")
    functions = (
        [function for function in listed if isinstance(function, Mapping)]
        if isinstance(listed, list)
        else []
    )
    return [
        mapping(function, "function")
        for function in functions
        if function.get("function") is not None
    ]


def _tool(function: Mapping[str, Any], *, by_name: bool) -> Tool:
    return Tool(
        name=text(function, "name"),
        description=str(function.get("description") or ""),
        schema=mapping(function, "parameters") or {"type": "object"},
        by_name=by_name,
    )


class _Choice:
    """One choice in OpenAI's shape."""

    def __init__(self, request: ModelRequest, written: Written, index: int) -> None:
        self._tool = request.tool
        self._n_called = sum(len(message.calls) for message in request.messages)
        self._text = written.text
        self._index = index
        self._pieces = pieces(self._text) if self._text.strip() else []
        if self._pieces:
            self._pieces[-1] += self._text[sum(map(len, self._pieces)) :]
        self._finish = "length"
        if written.complete:
            is_call = self._tool is not None and not self._tool.by_name
            self._finish = "tool_calls" if is_call else "stop"

    def whole(self) -> _Json:
        """Return the choice of an answer that is sent at once."""
        message: _Json = {"role": "assistant", "content": self._text, "refusal": None}
        if self._tool is not None:
            message |= {"content": None, "tool_calls": [self._call(self._text)]}
        return {
            "index": self._index,
            "message": message,
            "logprobs": None,
            "finish_reason": self._finish,
        }

    def parts(self) -> Iterator[_Json]:
        """Yield the choice as the parts of a stream."""
        first: _Json = {"role": "assistant", "content": "", "refusal": None}
        if self._tool is not None:
            first |= {"content": None, "tool_calls": [{"index": 0, **self._call("")}]}
        yield self._part(first)
        for piece in self._pieces:
            delta: _Json = {"content": piece}
            if self._tool is not None:
                delta = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            yield self._part(delta)
        yield {**self._part({}), "finish_reason": self._finish}

    def _part(self, delta: _Json) -> _Json:
        return {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _call(self, arguments: str) -> _Json:
        name = "" if self._tool is None else self._tool.name
        return {
            "id": f"call_{self._n_called + self._index}_{name}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
