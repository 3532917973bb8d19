"""Mock of ``/v1/chat/completions``, whole and streamed."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from tasks.json_values import mapping
from tasks.mock.prompt_text import pieces
from tasks.mock.protocol import (
    MOST_CHOICES,
    MOST_TOKENS,
    ApiError,
    Attempt,
    Form,
    Message,
    ModelRequest,
    Name,
    Payload,
    RequestBody,
    Tool,
    Written,
    texts_of,
)
from tasks.mock.responder import Engine, with_tool

_Json = dict[str, Any]


def chat(engine: Engine, attempt: Attempt) -> Payload:
    """Answer a chat.

    Raises:
        ApiError: the request is invalid, or asks for log-probabilities.
    """
    body = _read(attempt.body)
    request, n = _request(body), body.n or 1
    request = with_tool(request, engine.first(request, n, attempt.number))
    chosen = engine.choose(request, n, attempt=attempt.number)
    choices = [_Choice(request, written, index) for index, written in enumerate(chosen)]
    tokens = engine.tokens(request, chosen)
    head = {"id": f"chatcmpl-{attempt.digest[:24]}", "created": 0, "model": request.model}
    if body.stream:
        has_usage = body.stream_options is not None and body.stream_options.include_usage
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


class _Function(RequestBody):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def tool(self, *, by_name: bool) -> Tool:
        schema = self.parameters or {"type": "object"}
        return Tool(
            name=self.name, description=self.description or "", schema=schema, by_name=by_name
        )


class _ToolBody(RequestBody):
    function: _Function | None = None


class _MessageBody(RequestBody):
    role: str
    content: Any = None
    tool_calls: list[_ToolBody] | None = None


class _Schema(RequestBody):
    schema_: dict[str, Any] = Field(alias="schema")


class _Format(RequestBody):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: _Schema | None = None


class _StreamOptions(RequestBody):
    include_usage: bool = False


class _ChatBody(RequestBody):
    model: Name
    messages: list[_MessageBody] = Field(min_length=1)
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    max_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    reasoning_effort: Any = None
    response_format: _Format | None = None
    tools: list[_ToolBody] | None = None
    tool_choice: Any = None

    @property
    def functions(self) -> list[_Function]:
        return [tool.function for tool in self.tools or () if tool.function is not None]


def _read(body: Mapping[str, Any]) -> _ChatBody:
    for name in ("logprobs", "top_logprobs", "prompt_logprobs"):
        if (value := body.get(name)) is not None and value is not False:
            raise ApiError(f"`{name}` is not known to this mock.", param=name)
    read = _ChatBody.read(body)
    if read.max_tokens is not None and read.max_completion_tokens is not None:
        raise ApiError(
            "`max_tokens` and `max_completion_tokens` cannot both be given. Leave one out.",
            param="max_tokens",
        )
    return read


def _request(body: _ChatBody) -> ModelRequest:
    messages = tuple(
        Message(
            role=message.role,
            text=texts_of(message.content),
            calls=tuple(call.function.name for call in message.tool_calls or () if call.function),
        )
        for message in body.messages
    )
    form, schema = _form(body)
    if form == "json" and "json" not in " ".join(m.text for m in messages).casefold():
        raise ApiError(
            "`messages` must contain the word 'json' to use `response_format` of type "
            "'json_object'.",
            param="messages",
        )
    effort, stop = body.reasoning_effort, body.stop or []
    return ModelRequest(
        model=body.model,
        messages=messages,
        limit=body.max_completion_tokens or body.max_tokens,
        effort=effort if isinstance(effort, str) else "",
        temperature=1.0 if body.temperature is None else body.temperature,
        seed=body.seed,
        stop=tuple(filter(None, [stop] if isinstance(stop, str) else stop)),
        form=form,
        schema=schema,
        tool=_forced_tool(body),
        offered=tuple(function.tool(by_name=False) for function in body.functions)
        if body.tool_choice in (None, "auto")
        else (),
    )


def _form(body: _ChatBody) -> tuple[Form, Mapping[str, Any]]:
    wanted = body.response_format or _Format()
    if wanted.type != "json_schema":
        return ("json" if wanted.type == "json_object" else "text"), {}
    if wanted.json_schema is None:
        rule = "`response_format.json_schema` must be given."
        raise ApiError(rule, param="response_format")
    return "schema", wanted.json_schema.schema_


def _forced_tool(body: _ChatBody) -> Tool | None:
    """Return the required tool; ``None`` if the answer may be text."""
    choice = body.tool_choice
    if choice in (None, "auto", "none"):
        return None
    name = mapping(mapping(choice).get("function")).get("name")
    for function in body.functions:
        if name is None or function.name == name:
            return function.tool(by_name=name is not None)
    raise ApiError(
        f"`tool_choice` must name one of `tools`, but got {name!r}.", param="tool_choice"
    )


class _Choice:
    """Choice in OpenAI's form."""

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
        """Return the choice of an unstreamed answer."""
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
