"""Tokens of a provider's answer, in a common form.

A ``Usage`` counts the *whole* prompt (including cache reads and writes) and the *whole* answer
(including reasoning). Providers report parts or wholes; their keys identify the shape:

* OpenAI chat, Azure OpenAI, Groq, Mistral: ``prompt_tokens``, ``completion_tokens`` are wholes,
  ``*_details`` their parts (OpenAI, API reference, "The chat completion object"; ``openai``
  client,
  ``types/completion_usage.py``). Groq's streams carry the same block under ``x_groq.usage``.
* Gemini behind its OpenAI-compatible endpoint, and xAI: ``completion_tokens`` excludes the
  reasoning,
  ``total_tokens`` includes it.
* OpenRouter: as OpenAI chat, with ``cost`` in US dollars next to the tokens.
* DeepSeek: as OpenAI chat, with ``prompt_cache_hit_tokens`` + ``prompt_cache_miss_tokens`` equal
  to
  ``prompt_tokens`` (DeepSeek, "Context caching").
* OpenAI Responses: ``input_tokens``, ``output_tokens`` are wholes
  (``types/responses/response_usage.py``).
* Anthropic: ``input_tokens`` excludes tokens read from or written to the cache (Anthropic, "Prompt
  caching": total = cache_read + cache_creation + input).

An invalid number of tokens (negative, a fraction, a boolean, a string, more than a billion) is
unknown, and so is every whole that includes it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from convergence_core.records import NO_USAGE, Json, Usage

_Block: TypeAlias = "Mapping[str, Json]"

MOST_TOKENS = 1_000_000_000
"""Maximum tokens that one answer can report."""
_NOTHING: _Block = {}
_ANTHROPIC_KEYS = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")


def usage_of(raw: Mapping[str, Json]) -> Usage:
    """Return the tokens of a provider's answer or usage block.

    Never raises: an answer without numbers is ``NO_USAGE``.
    """
    block = _block_of(raw)
    if "prompt_tokens" in block or "completion_tokens" in block:
        return _openai(block, "prompt_tokens", "completion_tokens")
    if "input_tokens" in block or "output_tokens" in block:
        if any(key in block for key in _ANTHROPIC_KEYS):
            return _anthropic(block)
        return _openai(block, "input_tokens", "output_tokens")
    return NO_USAGE


def reported_cost(raw: Mapping[str, Json]) -> float | None:
    """Return the cost in US dollars that OpenRouter reports for an answer, or ``None``.

    With your key for the underlying provider, ``cost`` is only OpenRouter's fee, and the
    provider's bill is reported separately (OpenRouter, "Usage accounting").
    """
    block = _block_of(raw)
    cost = _dollars(block.get("cost"))
    is_byok = block.get("is_byok")
    upstream = _mapping(block, "cost_details").get("upstream_inference_cost")
    if cost is None or is_byok is False or (is_byok is None and upstream is None):
        return cost
    billed = _dollars(upstream)
    return None if billed is None else cost + billed


_TIERS = ("priority", "flex", "scale", "batch")
_PAID_CALLS = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
)


def is_priced_apart(raw: _Block) -> bool:
    """Return whether a request or answer has charges besides tokens, or a service tier's prices.

    Provider-run tools count if an answer reports their use.
    """
    block, items = _block_of(raw), raw.get("output")
    return (
        "web_search_options" in raw
        or raw.get("service_tier") in _TIERS
        or block.get("service_tier") in _TIERS
        or any(_mapping(block, "server_tool_use").values())
        or any(
            isinstance(item, Mapping) and item.get("type") in _PAID_CALLS
            for item in (items if isinstance(items, list) else ())
        )
    )


def may_exceed_tables(request: _Block) -> bool:
    """Return whether a request may cost more than its tokens at the standard tier."""
    tier = request.get("service_tier")
    return "web_search_options" in request or tier in ("priority", "scale")


def _dollars(value: Json) -> float | None:
    """Return an amount, or ``None`` if it is invalid."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _block_of(raw: _Block) -> _Block:
    """Return the usage block of an answer, or ``raw`` itself if it is one."""
    if isinstance(block := raw.get("usage"), Mapping):
        return block
    # Groq's last chunk; the first and last events of Anthropic and OpenAI Responses streams.
    for key in ("x_groq", "message", "response"):
        outer = raw.get(key)
        if isinstance(outer, Mapping) and isinstance(block := outer.get("usage"), Mapping):
            return block
    return raw


def _openai(block: _Block, prompt_key: str, answer_key: str) -> Usage:
    """Return the tokens of a block with wholes, and parts under ``*_details``."""
    read = _mapping(block, f"{prompt_key}_details")
    written = _mapping(block, f"{answer_key}_details")
    cached = _first(
        _count(read, "cached_tokens"),
        _count(block, "prompt_cache_hit_tokens"),  # DeepSeek
        _count(block, "cache_read_input_tokens"),  # gateways that forward Anthropic's number
        _count(block, "cached_tokens"),  # Moonshot
    )
    cache_write = _first(
        _count(read, "cache_write_tokens"),  # GPT-5.6 and later bill writes
        _count(block, "cache_creation_input_tokens"),
    )
    prompt = _count(block, prompt_key)
    if prompt is not None and (cached or 0) + (cache_write or 0) > prompt:
        # Parts exceed the whole if a gateway forwards Anthropic's remainder.
        prompt += (cached or 0) + (cache_write or 0)
    usage = Usage(
        prompt_tokens=prompt,
        cached_tokens=cached,
        cache_write_tokens=cache_write,
        completion_tokens=_count(block, answer_key),
        reasoning_tokens=_count(written, "reasoning_tokens"),
    )
    total = _count(block, "total_tokens")
    return _with_hidden_reasoning(usage, total=total, has_answer=answer_key in block)


def _anthropic(block: _Block) -> Usage:
    by_age = _mapping(block, "cache_creation")
    cached = _part(block, "cache_read_input_tokens")
    cache_write = _part(block, "cache_creation_input_tokens")
    if block.get("cache_creation_input_tokens") is None and by_age:
        cache_write = sum_of(*(_part(by_age, key) for key in by_age))
    written = _mapping(block, "output_tokens_details")
    return Usage(
        prompt_tokens=sum_of(_count(block, "input_tokens"), cached, cache_write),
        cached_tokens=cached,
        cache_write_tokens=cache_write,
        completion_tokens=_count(block, "output_tokens"),  # thinking included
        reasoning_tokens=_count(written, "thinking_tokens"),
    )


def _with_hidden_reasoning(usage: Usage, *, total: int | None, has_answer: bool) -> Usage:
    """Count the part of a total beyond its known parts as reasoning, which is part of the answer.

    Gemini's compatible endpoint and xAI bill it as output but report it only in the total. An
    answer that is not reported (embeddings) is the rest of the total.
    """
    prompt = usage.prompt_tokens
    completion, reasoning = usage.completion_tokens, usage.reasoning_tokens
    if prompt is not None and total is not None and total >= prompt:
        if completion is None and not has_answer:
            completion = total - prompt
        elif completion is not None and total > prompt + completion:
            hidden = total - prompt - completion
            completion += hidden
            reasoning = max(hidden, reasoning or 0)
    elif completion is not None and reasoning is not None and reasoning > completion:
        completion += reasoning  # reasoning exceeds the answer, so it is not included
    return replace(usage, completion_tokens=completion, reasoning_tokens=reasoning)


def _mapping(block: _Block, key: str) -> _Block:
    value = block.get(key)
    return value if isinstance(value, Mapping) else _NOTHING


def _count(block: _Block, key: str) -> int | None:
    """Return a number of tokens, or ``None`` if it is invalid."""
    value = block.get(key)
    if isinstance(value, float) and value.is_integer():  # JSON writers without integers send 10.0
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
        return value
    return None


def _part(block: _Block, key: str) -> int | None:
    """Return a part: 0 if it is missing, ``None`` if it is invalid."""
    return 0 if block.get(key) is None else _count(block, key)


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)


def sum_of(*numbers: int | None) -> int | None:
    """Return the sum, or ``None`` if any number is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
