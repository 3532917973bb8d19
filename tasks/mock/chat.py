"""``/v1/chat/completions``: whole and streamed."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.mock.engine import AnswerChoice, Engine
from tasks.mock.prompt_text import pieces
from tasks.mock.protocol import (
    MOST_CHOICES,
    MOST_LOGPROBS,
    MOST_TOKENS,
    ApiError,
    Attempt,
    Form,
    ModelRequest,
    Payload,
    Tool,
    flag,
    includes_usage,
    mapping,
    messages,
    refuse_prompt_logprobs,
    sampling,
    text,
    whole,
)
from tasks.mock.responder import with_tool
from tasks.mock.tiny_model import VOCABULARY, Floats

_Json = dict[str, Any]


def chat(engine: Engine, attempt: Attempt) -> Payload:
    """Answer a chat.

    Raises:
        ApiError: the request is wrong, or strict and with an unknown word.
        UntrainedError: the tiny model must be trained first.
    """
    body = attempt.body
    if engine.has("no_prompt_logprobs"):
        refuse_prompt_logprobs(body)
    request = _request(body)
    of_prompt = _prompt_logprobs(body)
    n = whole(body, "n", 1, MOST_CHOICES) or 1
    request = with_tool(request, engine.first(request, n, attempt.number))
    top = _top_logprobs(body)
    is_text = request.tool is None and request.form == "text"
    tiny = is_text and (
        top is not None or of_prompt is not None or engine.uses_tiny_model(request.text)
    )
    if top is not None and not tiny:
        raise ApiError("`logprobs` cannot be had of tool calls and JSON.", param="logprobs")
    chosen = engine.choose(request, n, tiny=tiny, attempt=attempt.number)
    if engine.has("ignore"):
        top = of_prompt = None
    choices = [_Choice(engine, request, choice, index, top) for index, choice in enumerate(chosen)]
    tokens = engine.tokens(request, chosen, tiny=tiny)
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
    rows = {}
    if of_prompt is not None:
        rows = {"prompt_logprobs": _prompt_rows(engine, request, of_prompt)}
    return Payload(
        body={
            **head,
            "object": "chat.completion",
            **rows,
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


def _top_logprobs(body: Mapping[str, Any]) -> int | None:
    """Return how many log-probabilities each word comes with; ``None`` if none are asked for."""
    top = whole(body, "top_logprobs", 0, MOST_LOGPROBS)
    if flag(body, "logprobs"):
        return top or 0
    if top is not None:
        raise ApiError("`top_logprobs` needs `logprobs: true`.", param="top_logprobs")
    return None


def _prompt_logprobs(body: Mapping[str, Any]) -> int | None:
    """Return how many words each of the prompt's comes with; ``None`` if none are asked for.

    The rules are vLLM's.

    Raises:
        ApiError: the request breaks one of them.
    """
    n = whole(body, "prompt_logprobs", 0, MOST_LOGPROBS)
    if flag(body, "continue_final_message") and body.get("add_generation_prompt") is not False:
        raise ApiError(
            "`continue_final_message` needs `add_generation_prompt: false`.",
            param="continue_final_message",
        )
    if n is not None and flag(body, "stream"):
        raise ApiError("`prompt_logprobs` cannot be streamed.", param="prompt_logprobs")
    return n


# -- log-probabilities


def likeliest(row: Floats) -> list[int]:
    """Return the ids of all words, most likely first."""
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


def _prompt_rows(engine: Engine, request: ModelRequest, n: int) -> list[_Json | None]:
    """Return the log-probability of each word of a conversation in vLLM's form, the first null.

    The template of the tiny model joins the messages and adds nothing.

    Raises:
        ApiError: a word is unknown.
    """
    ids = engine.ids(request.text)
    rows = engine.within(engine.after(ids, request.temperature))

    def entry(i: int, row: Floats) -> _Json:
        ranked = likeliest(row)
        return {
            str(k): {
                "logprob": math.log(row[k]),
                "rank": ranked.index(k) + 1,
                "decoded_token": VOCABULARY[k],
            }
            for k in dict.fromkeys((i, *ranked[:n]))
        }

    return [None, *(entry(i, row) for i, row in zip(ids[1:], rows, strict=True))]


def _entry(i: int, row: Floats, top: int) -> _Json:
    def token(i: int) -> _Json:
        word = VOCABULARY[i]
        return {"token": word, "logprob": math.log(row[i]), "bytes": list(word.encode())}

    return {**token(i), "top_logprobs": [token(k) for k in likeliest(row)[:top]]}


class _Choice:
    """One choice in OpenAI's shape."""

    def __init__(
        self,
        engine: Engine,
        request: ModelRequest,
        choice: AnswerChoice,
        index: int,
        top: int | None,
    ) -> None:
        self._tool = request.tool
        self._n_called = sum(len(message.calls) for message in request.messages)
        self._text = choice.written.text
        self._index = index
        self._logprobs: list[_Json] | None = None
        sample = choice.sample
        if sample is None:
            self._pieces = pieces(self._text) if self._text.strip() else []
            if self._pieces:
                self._pieces[-1] += self._text[sum(map(len, self._pieces)) :]
        else:
            words = [VOCABULARY[i] for i in sample.ids]
            self._pieces = [word if i == 0 else f" {word}" for i, word in enumerate(words)]
        if sample is not None and top is not None:
            rows = [engine.reported(row, request.temperature) for row in sample.rows]
            if rows:  # what follows the prompt is reported as echo reports it
                rows[0] = engine.after(engine.ids(request.text), request.temperature)[-1]
            pairs = zip(sample.ids, rows, strict=True)
            self._logprobs = [_entry(i, row, top) for i, row in pairs]
        self._finish = "length"
        if choice.written.complete:
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
            "logprobs": _logprobs(self._logprobs),
            "finish_reason": self._finish,
        }

    def parts(self) -> Iterator[_Json]:
        """Yield the choice as the parts of a stream."""
        first: _Json = {"role": "assistant", "content": "", "refusal": None}
        if self._tool is not None:
            first |= {"content": None, "tool_calls": [{"index": 0, **self._call("")}]}
        yield self._part(first)
        for i, piece in enumerate(self._pieces):
            delta: _Json = {"content": piece}
            if self._tool is not None:
                delta = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            yield self._part(delta, None if self._logprobs is None else [self._logprobs[i]])
        yield {**self._part({}), "finish_reason": self._finish}

    def _part(self, delta: _Json, logprobs: list[_Json] | None = None) -> _Json:
        return {
            "index": self._index,
            "delta": delta,
            "logprobs": _logprobs(logprobs),
            "finish_reason": None,
        }

    def _call(self, arguments: str) -> _Json:
        name = "" if self._tool is None else self._tool.name
        return {
            "id": f"call_{self._n_called + self._index}_{name}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }


def _logprobs(entries: list[_Json] | None) -> _Json | None:
    return None if entries is None else {"content": entries, "refusal": None}
