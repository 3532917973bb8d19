"""``/v1/completions``: continued prompts, and echo with log-probabilities.

Each word adds ±1 to a place that the CRC-32 of the word names; texts that share words lie close,
and the same text has the same vector.
"""

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from tasks.mock.chat import likeliest
from tasks.mock.engine import AnswerChoice, Engine
from tasks.mock.prompt_text import count_pieces, words
from tasks.mock.protocol import (
    MOST_CHOICES,
    MOST_LOGPROBS,
    MOST_TOKENS,
    ApiError,
    Attempt,
    Message,
    ModelRequest,
    Payload,
    TokenUsage,
    flag,
    includes_usage,
    refuse_prompt_logprobs,
    sampling,
    text,
    whole,
)
from tasks.mock.tiny_model import VOCABULARY, Floats, decode

DEFAULT_LIMIT = 16
"""Tokens of a completion when the request sets no limit, as in OpenAI's API."""


def completions(engine: Engine, attempt: Attempt) -> Payload:
    """Continue one or more prompts.

    Raises:
        ApiError: the request is wrong, or strict and with an unknown word.
        UntrainedError: the tiny model must be trained first.
    """
    body = attempt.body
    refuse_prompt_logprobs(body)
    model = text(body, "model")
    n = whole(body, "n", 1, MOST_CHOICES) or 1
    top = whole(body, "logprobs", 0, MOST_LOGPROBS)
    echo = flag(body, "echo")
    if engine.has("ignore"):
        echo, top = False, None
    limit = whole(body, "max_tokens", 0, MOST_TOKENS)
    settings = {"limit": DEFAULT_LIMIT if limit is None else limit, **sampling(body)}
    choices: list[dict[str, Any]] = []
    tokens = TokenUsage()
    for prompt in _prompts(body):
        messages = (Message(role="user", text=prompt),)
        request = ModelRequest(model=model, messages=messages, **settings)
        exact = top is not None or echo
        if exact:
            engine.ids(prompt)
        tiny = exact or engine.uses_tiny_model(prompt)
        chosen = engine.choose(request, n, tiny=tiny)
        tokens += engine.tokens(request, chosen, tiny=tiny)
        for choice in chosen:
            written = choice.written
            logprobs = None
            if top is not None:
                logprobs = _logprobs(engine, request, choice, echo=echo, top=top)
            choices.append(
                {
                    "index": len(choices),
                    "text": f"{prompt} {written.text}".strip() if echo else written.text,
                    "logprobs": logprobs,
                    "finish_reason": "stop" if written.complete else "length",
                }
            )
    head: dict[str, Any] = {
        "id": f"cmpl-{attempt.digest[:24]}",
        "object": "text_completion",
        "created": 0,
        "model": model,
    }
    usage = tokens.usage()
    if not flag(body, "stream"):
        answer = {**head, "choices": choices, "usage": usage}
        return Payload(body=answer, model=model, tokens=tokens)
    has_usage = includes_usage(body)
    events = [{**head, "choices": [choice]} for choice in choices]
    if has_usage:
        events.append({**head, "choices": [], "usage": usage})
    return Payload(events=events, model=model, tokens=tokens, has_usage=has_usage)


def _prompts(body: Mapping[str, Any]) -> list[str]:
    """Return the prompts: a text, texts, or the tiny model's token ids.

    Raises:
        ApiError: they are something else.
    """
    prompt = body.get("prompt")
    if isinstance(prompt, str) and prompt:
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(entry, str) and entry for entry in prompt):
            return prompt
        if all(type(entry) is int and 0 <= entry < len(VOCABULARY) for entry in prompt):
            return [decode(prompt)]
        if all(isinstance(entry, list) for entry in prompt):
            return [text for entry in prompt for text in _prompts({"prompt": entry})]
    raise ApiError(
        "`prompt` must be a text, a list of texts, or token ids below 63.", param="prompt"
    )


def _logprobs(
    engine: Engine, request: ModelRequest, choice: AnswerChoice, *, echo: bool, top: int
) -> dict[str, Any]:
    prompt = engine.ids(request.text)
    after = engine.after(prompt, request.temperature)
    rows: list[Floats | None] = []
    ids: list[int] = []
    if echo:
        rows += [None, *engine.within(after)]
        ids += prompt
    if choice.sample is not None and choice.sample.ids:
        # What follows the prompt is reported as echo would report it.
        rows.append(after[-1])
        rows += [engine.reported(row, request.temperature) for row in choice.sample.rows[1:]]
        ids += choice.sample.ids
    words = [VOCABULARY[i] for i in ids]
    pairs = list(zip(ids, rows, strict=True))
    offsets = accumulate((len(word) + 1 for word in words), initial=0)
    return {
        "tokens": words,
        "token_logprobs": [None if row is None else math.log(row[i]) for i, row in pairs],
        "top_logprobs": [None if row is None else _top(i, row, top) for i, row in pairs],
        "text_offset": [*offsets][: len(words)],
    }


def _top(i: int, row: Floats, n: int) -> dict[str, float]:
    """Return the most likely words, and the word itself whether it is one of them or not."""
    return {VOCABULARY[k]: math.log(row[k]) for k in (*likeliest(row)[:n], i)}


DEFAULT_DIMENSIONS = 256
MOST_DIMENSIONS = 4096


def embed(content: str, dimensions: int) -> list[float]:
    """Return the vector of a text, (dimensions,), of length 1."""
    vector = [0.0] * dimensions
    for word in words(content) or [content]:
        code = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        vector[(code >> 1) % dimensions] += 1.0 if code & 1 else -1.0
    length = math.sqrt(sum(x * x for x in vector))
    if length == 0.0:  # words cancelled each other
        vector[zlib.crc32(content.encode("utf-8", "surrogatepass")) % dimensions] = length = 1.0
    return [x / length for x in vector]


def embeddings(engine: Engine, attempt: Attempt) -> Payload:  # noqa: ARG001 - one signature for all endpoints
    """Embed one or more texts.

    Raises:
        ApiError: the request is wrong.
    """
    body = attempt.body
    model = text(body, "model")
    given: Any = body.get("input")
    inputs: list[Any] = given if isinstance(given, list) else [given]
    if not inputs or not all(isinstance(text, str) and text for text in inputs):
        raise ApiError("`input` must be a text or a list of texts, none empty.", param="input")
    dimensions = whole(body, "dimensions", 1, MOST_DIMENSIONS) or DEFAULT_DIMENSIONS
    form = body.get("encoding_format", "float")
    if form not in ("float", "base64"):
        rule = f"`encoding_format` must be float or base64, but got {form!r}."
        raise ApiError(rule, param="encoding_format")
    tokens = TokenUsage(prompt=sum(count_pieces(text) for text in inputs))
    return Payload(
        body={
            "object": "list",
            "model": model,
            "data": [
                {
                    "object": "embedding",
                    "index": i,
                    "embedding": _encoded(embed(text, dimensions), form),
                }
                for i, text in enumerate(inputs)
            ],
            "usage": {"prompt_tokens": tokens.prompt, "total_tokens": tokens.prompt},
        },
        model=model,
        tokens=tokens,
    )


def _encoded(vector: Sequence[float], form: str) -> list[float] | str:
    if form == "float":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
