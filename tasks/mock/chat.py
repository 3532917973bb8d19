"""``/v1/chat/completions``: whole and streamed."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.mock.engine import Chosen, Engine
from tasks.mock.protocol import (
    MOST_CHOICES,
    MOST_LOGPROBS,
    ApiError,
    Payload,
    TokenUsage,
    flag,
    mapping,
    messages,
    refuse_prompt_logprobs,
    sampling,
    tells_usage,
    text,
    whole,
)
from tasks.mock.requests import Form, ModelRequest, Tool
from tasks.mock.tiny_model import Floats
from tasks.mock.tiny_world import VOCABULARY
from tasks.mock.word_pieces import pieces

MOST_TOKENS = 1_000_000


def chat(brain: Engine, body: Mapping[str, Any], digest: str) -> Payload:
    """Answer a chat.

    Raises:
        ApiError: the request is wrong, or strict and with an unknown word.
        UntrainedError: the tiny model must be trained first.
    """
    if brain.has("no_prompt_logprobs"):
        refuse_prompt_logprobs(body)
    ask = read_ask(body)
    of_prompt = _prompt_logprobs(body)
    n = whole(body, "n", 1, MOST_CHOICES) or 1
    top = _top_logprobs(body)
    tiny = (
        ask.tool is None
        and ask.form == "text"
        and (top is not None or of_prompt is not None or brain.speaks_tiny(ask.text))
    )
    if top is not None and not tiny:
        raise ApiError("`logprobs` cannot be had of tool calls and JSON.", param="logprobs")
    chosen = brain.choose(ask, n, tiny=tiny)
    choices = [
        _Choice(brain, ask, chosen_one, index, None if brain.has("ignore") else top)
        for index, chosen_one in enumerate(chosen)
    ]
    tokens = brain.tokens(ask, chosen, tiny=tiny)
    head = {"id": f"chatcmpl-{digest[:24]}", "created": 0, "model": ask.model}
    if flag(body, "stream"):
        tells = tells_usage(body)
        return Payload(
            events=list(_events(head, choices, tokens, tells_usage=tells)),
            model=ask.model,
            tokens=tokens,
            tells_usage=tells,
        )
    told = None
    if of_prompt is not None and not brain.has("ignore"):
        told = prompt_rows(brain, ask, of_prompt)
    return Payload(
        body={
            **head,
            "object": "chat.completion",
            **({} if told is None else {"prompt_logprobs": told}),
            "choices": [choice.whole() for choice in choices],
            "usage": tokens.usage(),
            "service_tier": "default",
            "system_fingerprint": "mock",
        },
        model=ask.model,
        tokens=tokens,
    )


def read_ask(body: Mapping[str, Any]) -> ModelRequest:
    """Return what a chat's body asks for.

    Raises:
        ApiError: the request is wrong.
    """
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise ApiError(
            "`max_tokens` and `max_completion_tokens` cannot both be given. Leave one out.",
            param="max_tokens",
        )
    limit = whole(body, "max_completion_tokens", 1, MOST_TOKENS)
    limit = limit or whole(body, "max_tokens", 1, MOST_TOKENS)
    said = messages(body)
    form, schema = _form(body)
    if form == "json" and "json" not in " ".join(m.text for m in said).casefold():
        raise ApiError(
            "`messages` must contain the word 'json' to use `response_format` of type "
            "'json_object'.",
            param="messages",
        )
    effort = body.get("reasoning_effort")
    return ModelRequest(
        model=text(body, "model"),
        messages=said,
        limit=limit,
        effort=effort if isinstance(effort, str) else "",
        **sampling(body),
        form=form,
        schema=schema,
        tool=_forced_tool(body),
    )


def _form(body: Mapping[str, Any]) -> tuple[Form, Mapping[str, Any]]:
    wanted = mapping(body, "response_format")
    match wanted.get("type", "text"):
        case "text":
            return "text", {}
        case "json_object":
            return "json", {}
        case "json_schema":
            schema = mapping(wanted, "json_schema").get("schema")
            if isinstance(schema, Mapping):
                return "schema", schema
            raise ApiError(
                "`response_format.json_schema.schema` must be a JSON Schema.",
                param="response_format",
            )
        case other:
            raise ApiError(
                "`response_format.type` must be text, json_object or json_schema, but got "
                f"{other!r}.",
                param="response_format",
            )


def _forced_tool(body: Mapping[str, Any]) -> Tool | None:
    """Return the tool that must be called; ``None``: the answer is free to be a text."""
    listed = body.get("tools") or []
    choice = body.get("tool_choice")
    if choice in (None, "auto", "none"):
        return None
    name = mapping(choice, "function").get("name") if isinstance(choice, Mapping) else None
    for entry in listed if isinstance(listed, list) else []:
        function = mapping(entry, "function") if isinstance(entry, Mapping) else {}
        if name is None or function.get("name") == name:
            return Tool(
                name=text(function, "name"),
                schema=mapping(function, "parameters") or {"type": "object"},
                by_name=name is not None,
            )
    raise ApiError(
        f"`tool_choice` must name one of `tools`, but got {name!r}.", param="tool_choice"
    )


def _top_logprobs(body: Mapping[str, Any]) -> int | None:
    """Return how many log-probabilities each word comes with; ``None``: none are asked for."""
    top = whole(body, "top_logprobs", 0, MOST_LOGPROBS)
    if flag(body, "logprobs"):
        return top or 0
    if top is not None:
        raise ApiError("`top_logprobs` needs `logprobs: true`.", param="top_logprobs")
    return None


def _prompt_logprobs(body: Mapping[str, Any]) -> int | None:
    """Return how many words each of the prompt's comes with beside its own; ``None``: none are asked for.

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


def prompt_rows(brain: Engine, ask: ModelRequest, n: int) -> list[dict[str, Any] | None]:
    """Return the log-probability of each word of a conversation as vLLM tells it, the first of them null.

    The template of the tiny model joins the messages and adds nothing.

    Raises:
        ApiError: a word is unknown.
    """
    ids = brain.ids(ask.text)
    before = brain.expected(ids, ask.temperature)[:-1]
    if brain.has("off_by_one"):
        before = [*before[:1], *before[:-1]]
    return [None, *(_ranked(i, row, n) for i, row in zip(ids[1:], before, strict=True))]


def _ranked(i: int, row: Floats, n: int) -> dict[str, Any]:
    """Return a word and the likeliest ones by their ids."""
    ranked = sorted(range(len(row)), key=lambda k: (-row[k], k))
    return {
        str(k): {
            "logprob": math.log(row[k]),
            "rank": ranked.index(k) + 1,
            "decoded_token": VOCABULARY[k],
        }
        for k in dict.fromkeys((i, *ranked[:n]))
    }


def top_words(row: Floats, n: int) -> list[tuple[str, float]]:
    """Return the ``n`` likeliest words and their log-probabilities, likeliest first."""
    ranked = sorted(range(len(row)), key=lambda i: (-row[i], i))[:n]
    return [(VOCABULARY[i], math.log(row[i])) for i in ranked]


class _Choice:
    """One choice in OpenAI's shape."""

    def __init__(
        self, brain: Engine, ask: ModelRequest, chosen: Chosen, index: int, top: int | None
    ) -> None:
        self._tool = ask.tool
        self._text = chosen.written.text
        self._index = index
        self.logprobs: list[dict[str, Any]] | None = None
        sample = chosen.sample
        if sample is None:
            self.pieces = pieces(self._text) if self._text.strip() else []
            rest = self._text[sum(map(len, self.pieces)) :]
            if rest and self.pieces:
                self.pieces[-1] += rest
        else:
            words = [VOCABULARY[i] for i in sample.ids]
            self.pieces = [word if i == 0 else f" {word}" for i, word in enumerate(words)]
            if top is not None:
                rows = [brain.reported(row, ask.temperature) for row in sample.rows]
                if rows:  # what follows the prompt is reported as echo reports it
                    rows[0] = brain.expected(brain.ids(ask.text), ask.temperature)[-1]
                pairs = zip(sample.ids, rows, strict=True)
                self.logprobs = [_entry(i, row, top) for i, row in pairs]
        if not chosen.written.complete:
            self.finish = "length"
        elif self._tool is not None and not self._tool.by_name:
            self.finish = "tool_calls"
        else:
            self.finish = "stop"

    def whole(self) -> dict[str, Any]:
        """Return the choice of an answer that is sent at once."""
        message: dict[str, Any] = {"role": "assistant", "content": self._text, "refusal": None}
        if self._tool is not None:
            message |= {"content": None, "tool_calls": [self._call(self._text)]}
        logprobs = None if self.logprobs is None else {"content": self.logprobs, "refusal": None}
        return {
            "index": self._index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": self.finish,
        }

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield the choice as the parts of a stream."""
        first: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}
        if self._tool is not None:
            first |= {"content": None, "tool_calls": [{"index": 0, **self._call("")}]}
        yield self._part(first)
        for i, piece in enumerate(self.pieces):
            if self._tool is not None:
                yield self._part({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            else:
                yield self._part({"content": piece}, i)
        yield {**self._part({}), "finish_reason": self.finish}

    def _part(self, delta: Mapping[str, Any], i: int | None = None) -> dict[str, Any]:
        logprobs = None
        if i is not None and self.logprobs is not None:
            logprobs = {"content": [self.logprobs[i]], "refusal": None}
        return {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

    def _call(self, arguments: str) -> dict[str, Any]:
        name = "" if self._tool is None else self._tool.name
        return {
            "id": f"call_{self._index}_{name}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }


def _entry(i: int, row: Floats, top: int) -> dict[str, Any]:
    likely = [_token(word, logprob) for word, logprob in top_words(row, top)]
    return {**_token(VOCABULARY[i], math.log(row[i])), "top_logprobs": likely}


def _token(word: str, logprob: float) -> dict[str, Any]:
    return {"token": word, "logprob": logprob, "bytes": list(word.encode())}


def _events(
    head: Mapping[str, Any], choices: list[_Choice], tokens: TokenUsage, *, tells_usage: bool
) -> Iterator[dict[str, Any]]:
    frame = {**head, "object": "chat.completion.chunk", "system_fingerprint": "mock"}
    nothing_yet = {"usage": None} if tells_usage else {}
    for choice in choices:
        for part in choice.parts():
            yield {**frame, "choices": [part], **nothing_yet}
    if tells_usage:
        yield {**frame, "choices": [], "usage": tokens.usage()}
