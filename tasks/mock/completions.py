"""``/v1/completions``: continuing prompts, and echo with log-probabilities."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.mock.chat import MOST_TOKENS, top_words
from tasks.mock.engine import Chosen, Engine
from tasks.mock.protocol import (
    MOST_CHOICES,
    MOST_LOGPROBS,
    ApiError,
    Payload,
    TokenUsage,
    flag,
    refuse_prompt_logprobs,
    sampling,
    tells_usage,
    text,
    whole,
)
from tasks.mock.requests import Message, ModelRequest
from tasks.mock.tiny_model import Floats, decode
from tasks.mock.tiny_world import VOCABULARY

DEFAULT_LIMIT = 16
"""Tokens of a completion when the request sets no limit, as in OpenAI's API."""


def completions(brain: Engine, body: Mapping[str, Any], digest: str) -> Payload:
    """Continue one or more prompts.

    Raises:
        ApiError: the request is wrong, or strict and with an unknown word.
        UntrainedError: the tiny model must be trained first.
    """
    refuse_prompt_logprobs(body)
    model = text(body, "model")
    n = whole(body, "n", 1, MOST_CHOICES) or 1
    top = whole(body, "logprobs", 0, MOST_LOGPROBS)
    echo = flag(body, "echo")
    if brain.has("ignore"):
        echo, top = False, None
    limit = whole(body, "max_tokens", 0, MOST_TOKENS)
    drawn = sampling(body)
    choices: list[dict[str, Any]] = []
    total = TokenUsage()
    for prompt in _prompts(body):
        ask = ModelRequest(
            model=model,
            messages=(Message(role="user", text=prompt),),
            limit=DEFAULT_LIMIT if limit is None else limit,
            **drawn,
        )
        exact = top is not None or echo
        if exact:
            brain.ids(prompt)
        tiny = exact or brain.speaks_tiny(prompt)
        chosen = brain.choose(ask, n, tiny=tiny)
        total = _sum(total, brain.tokens(ask, chosen, tiny=tiny))
        for one in chosen:
            choices.append(_choice(brain, ask, one, len(choices), echo=echo, top=top))
    head = {"id": f"cmpl-{digest[:24]}", "object": "text_completion", "created": 0, "model": model}
    if flag(body, "stream"):
        tells = tells_usage(body)
        events = [{**head, "choices": [choice]} for choice in choices]
        if tells:
            events.append({**head, "choices": [], "usage": total.usage()})
        return Payload(events=events, model=model, tokens=total, tells_usage=tells)
    return Payload(
        body={**head, "choices": choices, "usage": total.usage()}, model=model, tokens=total
    )


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
            return [one for entry in prompt for one in _prompts({"prompt": entry})]
    raise ApiError(
        "`prompt` must be a text, a list of texts, or token ids below 63.", param="prompt"
    )


def _choice(
    brain: Engine, ask: ModelRequest, chosen: Chosen, index: int, *, echo: bool, top: int | None
) -> dict[str, Any]:
    written = chosen.written.text
    told = f"{ask.text} {written}".strip() if echo else written
    return {
        "index": index,
        "text": told,
        "logprobs": None if top is None else _logprobs(brain, ask, chosen, echo=echo, top=top),
        "finish_reason": "stop" if chosen.written.complete else "length",
    }


def _logprobs(
    brain: Engine, ask: ModelRequest, chosen: Chosen, *, echo: bool, top: int
) -> dict[str, Any]:
    prompt = brain.ids(ask.text)
    after = brain.expected(prompt, ask.temperature)
    rows: list[Floats | None] = []
    ids: list[int] = []
    if echo:
        before = after[:-1]
        if brain.has("off_by_one"):
            before = [*before[:1], *before[:-1]]
        rows += [None, *before]
        ids += prompt
    if chosen.sample is not None and chosen.sample.ids:
        # What follows the prompt is reported as echo would report it.
        rows.append(after[-1])
        rows += [brain.reported(row, ask.temperature) for row in chosen.sample.rows[1:]]
        ids += chosen.sample.ids
    words = [VOCABULARY[i] for i in ids]
    pairs = list(zip(ids, rows, strict=True))
    return {
        "tokens": words,
        "token_logprobs": [None if row is None else math.log(row[i]) for i, row in pairs],
        "top_logprobs": [None if row is None else _top(i, row, top) for i, row in pairs],
        "text_offset": _offsets(words),
    }


def _top(i: int, row: Floats, n: int) -> dict[str, float]:
    """Return the likeliest words, and the word itself whether it is one of them or not."""
    return {**dict(top_words(row, n)), VOCABULARY[i]: math.log(row[i])}


def _offsets(words: Sequence[str]) -> list[int]:
    offsets, at = [], 0
    for word in words:
        offsets.append(at)
        at += len(word) + 1
    return offsets


def _sum(a: TokenUsage, b: TokenUsage) -> TokenUsage:
    return TokenUsage(
        prompt=a.prompt + b.prompt,
        cached=a.cached + b.cached,
        completion=a.completion + b.completion,
        reasoning=a.reasoning + b.reasoning,
    )
