"""Anthropic's protocol, ``/v1/messages``, through httpx.

Sources: the reference of ``POST /v1/messages`` for names, and the pages on prompt caching,
extended thinking and structured outputs. A thinking budget is at least 1,024 tokens and less than
``max_tokens``; it excludes other temperatures, ``top_k`` and forced tools.
``output_config.format`` accepts a JSON Schema with closed objects and without bounds of numbers,
strings and lists. Entries of the one-hour cache cost twice the input, which the price table does
not hold.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from convergence_core.errors import CandidateFault
from convergence_core.records import Json
from tasks.json_values import as_text, mapping, mappings
from tasks.providers.answers import ChatCompletion, read_anthropic
from tasks.providers.chat import WHOLE, ChatSettings, Delivery, Provider
from tasks.providers.fields import Mapped, Unsupported, settled
from tasks.providers.streams import AnthropicJoiner

_SAME: Final = frozenset(
    {"temperature", "top_p", "top_k", "thinking", "output_config", "cache_control", "metadata"}
)
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_LEAST_BUDGET: Final = 1024
THINKING: Final = frozenset({"thinking", "redacted_thinking"})
"""Types of thinking blocks."""
THINKING_BLOCKS: Final = "thinking_blocks"
"""Field of a message in OpenAI's form that holds thinking blocks."""
_BY_OPTIONS: Final = "write `thinking` or `output_config` in `api.request.options`"
_KEYWORDS: Final = frozenset(
    """
    type properties required items enum const anyOf allOf $ref $defs definitions description title default format
    """.split()  # noqa: SIM905 - as a literal it would be ten lines
)
"""JSON Schema keywords that a structured output accepts."""
_NO_SCHEMA: Final = re.compile(r"claude-(?:instant|2|3|(?:opus|sonnet)-4(?:-0|-2025\d{4})?$)")
"""Models without structured outputs."""
_REASONS: Final = {
    "stream": "`api.request.stream` says whether answers are streamed",
    "reasoning_effort": _BY_OPTIONS,
    "n": "Anthropic returns one answer only",
}
_NO_FIELD: Final = "Anthropic's messages have no field for it"
_UNPRICED: Final = (
    "the one-hour cache has a price that no table holds; leave `ttl` out, or write 5m"
)


def anthropic_request(
    messages: Sequence[Mapping[str, Json]],
    settings: Mapping[str, Json],
    *,
    model: str,
    unsupported: Unsupported,
) -> Mapped:
    """Return the body of a request to ``/v1/messages``.

    Raises:
        CandidateFault: a message holds content without a block type in the protocol.
    """
    system, turns = anthropic_turns(messages)
    body: dict[str, Json] = {"model": model, "messages": turns}
    if system:
        body["system"] = system
    lacking: list[tuple[str, str]] = []
    for name, value in settings.items():
        if value is None or (name, value) in (("n", 1), ("stream", False)):
            continue
        if name == "response_format":
            reason = _place_format(body, value, model)
        else:
            reason = _place(body, name, value)
        if reason is not None:
            lacking.append((name, reason))
    lacking += _misfits(body)
    for name, _ in lacking:
        body.pop(name, None)
    mapped = settled(body, lacking, unsupported)
    wrong = _unsendable(body)
    return Mapped(body=body, dropped=mapped.dropped, refused=(*mapped.refused, *wrong))


def _place_format(body: dict[str, Json], value: Json, model: str) -> str | None:
    """Put an answer's schema into the body; return the reason if that is impossible."""
    schema = mapping(mapping(value).get("json_schema")).get("schema")
    if not isinstance(schema, dict):
        return "Anthropic accepts only the type `json_schema`, with a `schema`"
    if _NO_SCHEMA.match(model):
        return "the model takes no schema of its answer"
    config = mapping(body.get("output_config"))
    if "format" in config:
        return "`output_config.format` is set too, and is the same"
    form: Json = {"type": "json_schema", "schema": closed_schema(schema)}
    body["output_config"] = {**config, "format": form}
    return None


def closed_schema(schema: Json) -> Json:
    """Convert a JSON Schema for structured outputs: close objects, move bounds to descriptions."""
    if isinstance(schema, list):
        return [closed_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Json] = {}
    bounds: dict[str, Json] = {}
    for name, value in schema.items():
        if name in ("properties", "$defs", "definitions") and isinstance(value, dict):
            kept[name] = {key: closed_schema(part) for key, part in value.items()}
        elif name in ("items", "anyOf", "allOf"):
            kept[name] = closed_schema(value)
        elif name in _KEYWORDS:
            kept[name] = value
        elif (name, value) == ("additionalProperties", False):
            continue  # each object is closed below
        else:
            bounds[name] = value
    if bounds:
        bounds_text = f"Bounds: {json.dumps(bounds)}"
        kept["description"] = (
            f"{kept['description']} {bounds_text}" if kept.get("description") else bounds_text
        )
    if kept.get("type") == "object" or "properties" in kept:
        kept["additionalProperties"] = False
    return kept


def _place(body: dict[str, Json], name: str, value: Json) -> str | None:
    """Put a setting into the body; return the reason if that is impossible."""
    if name in ("max_tokens", "max_completion_tokens"):
        if "max_tokens" in body:
            return "`max_tokens` is set twice"
        body["max_tokens"] = value
    elif name in ("stop", "stop_sequences"):
        body["stop_sequences"] = value if isinstance(value, list) else [value]
    elif name == "output_config" and isinstance(value, dict) and "output_config" in body:
        config = mapping(body["output_config"])
        if config.keys() & value.keys():
            return "`response_format` is set too, and is the same"
        body[name] = {**value, **config}
    elif name in _SAME:
        body[name] = value
    elif name == "tools" and isinstance(value, list):
        body["tools"] = [_tool(tool) for tool in value]
    elif name == "tool_choice":
        return _place_choice(body, value)
    else:
        return _REASONS.get(name, _NO_FIELD)
    return None


def _tool(tool: Json) -> Json:
    """Convert a tool from OpenAI's form to Anthropic's; return other forms unchanged."""
    function = mapping(tool).get("function")
    if not isinstance(function, dict):
        return tool
    made: dict[str, Json] = {
        name: function[name] for name in ("name", "description") if name in function
    }
    return {**made, "input_schema": function.get("parameters") or {"type": "object"}}


def _place_choice(body: dict[str, Json], value: Json) -> str | None:
    function = mapping(value).get("function")
    if isinstance(function, dict):
        body["tool_choice"] = {"type": "tool", "name": function.get("name")}
    elif isinstance(value, str) and value in _CHOICES:
        body["tool_choice"] = {"type": _CHOICES[value]}
    elif isinstance(value, dict) and value.get("type") in ("auto", "none", "any", "tool"):
        body["tool_choice"] = value
    else:
        return "it must be `auto`, `none`, `required`, or name a function"
    return None


def _misfits(body: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return settings whose values conflict with the model or with other settings."""
    misfits: list[tuple[str, str]] = []
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and not 0 <= temperature <= 1:
        misfits.append(("temperature", f"it must lie between 0 and 1, but got {temperature:g}"))
    if mapping(body.get("thinking")).get("type") != "enabled":
        return misfits
    if temperature not in (None, 1) and not misfits:
        misfits.append(("temperature", "a model that thinks accepts only its default"))
    if body.get("top_k") is not None:
        misfits.append(("top_k", "a model that thinks has no such field"))
    if mapping(body.get("tool_choice")).get("type") in ("any", "tool"):
        misfits.append(("tool_choice", "a model that thinks is forced to no tool"))
    return misfits


def _unsendable(body: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return errors that are never dropped: bad limits, and settings without a price."""
    refused: list[tuple[str, str]] = []
    limit, thinking = body.get("max_tokens"), mapping(body.get("thinking"))
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        refused.append(
            ("max_tokens", "Anthropic needs a limit of the answer, a whole number from 1")
        )
    elif thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or not _LEAST_BUDGET <= budget < limit:
            rule = f"`budget_tokens` must be a whole number from {_LEAST_BUDGET:,}, and less than `max_tokens`"
            refused.append(("thinking", f"{rule} ({limit:,}), but got {budget}"))
    if _has_long_cache(dict(body)):
        refused.append(("cache_control", _UNPRICED))
    return refused


def _has_long_cache(value: Json) -> bool:
    if isinstance(value, list):
        return any(_has_long_cache(part) for part in value)
    if not isinstance(value, dict):
        return False
    if mapping(value.get("cache_control")).get("ttl") not in (None, "5m"):
        return True
    return any(_has_long_cache(part) for part in value.values())


# -- messages


def anthropic_turns(
    messages: Sequence[Mapping[str, Json]],
) -> tuple[list[Json], list[Json]]:
    """Return the system blocks and the turns, with consecutive turns of one role merged.

    Raises:
        CandidateFault: a message holds content without a block type in the protocol.
    """
    system: list[Json] = []
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role in ("system", "developer"):
            system += _blocks(content)
            continue
        blocks = [*mappings(message.get(THINKING_BLOCKS)), *_blocks(content)]
        if role == "tool":
            answered: dict[str, Json] = {
                "type": "tool_result",
                "tool_use_id": message.get("tool_call_id"),
                "content": blocks,
            }
            blocks = [answered]
        calls = message.get("tool_calls")
        blocks += [_call(call) for call in (calls if isinstance(calls, list) else [])]
        turn_role = "assistant" if role == "assistant" else "user"
        if turns and turns[-1][0] == turn_role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((turn_role, blocks))
    return system, [{"role": role, "content": blocks} for role, blocks in turns]


def _call(call: Json) -> Json:
    function = mapping(call).get("function")
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise _no_block("tool call")
    given = function.get("arguments")
    try:
        parsed = json.loads(given) if isinstance(given, str) and given else given or {}
    except ValueError:
        parsed = None
    arguments: Json = parsed if isinstance(parsed, dict) else {"input": given}
    return {
        "type": "tool_use",
        "id": call.get("id"),
        "name": function.get("name"),
        "input": arguments,
    }


def _blocks(content: Json) -> list[Json]:
    if content is None or content == "":
        return []
    if isinstance(content, list):
        return [_block(part) for part in content]
    return [{"type": "text", "text": as_text(content)}]


def _block(part: Json) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(part, dict):
        if kind in ("text", "image", "document"):
            return part
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        if kind == "image_url" and isinstance(url, str):
            match = re.match(r"data:([^;,]+);base64,", url)
            source: dict[str, Json] = {"type": "url", "url": url}
            if match:
                data = url[match.end() :]
                source = {"type": "base64", "media_type": match[1], "data": data}
            return {"type": "image", "source": source}
    raise _no_block(str(kind))


def _no_block(kind: str) -> CandidateFault:
    return CandidateFault(
        f"Anthropic's messages have no block for a message's content of type `{kind}`",
        error_type="unsupported_content",
    )


API_VERSION = "2023-06-01"
"""Header ``anthropic-version``, which fixes the names of fields and events."""
_PATH = "/messages"
_DEFAULTS = ChatSettings(provider="anthropic")


class AnthropicChat(Provider):
    """Endpoint of Anthropic's messages; see ``Provider``.

    Args:
        base_url: URL with or without ``/messages``.
        settings: see ``ChatSettings``.
    """

    def __init__(self, base_url: str, settings: ChatSettings = _DEFAULTS) -> None:
        super().__init__(base_url, settings, _PATH)

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """See ``Provider.mapped``."""
        unsupported = self._settings.unsupported
        return anthropic_request(messages, settings, model=model, unsupported=unsupported)

    def address(self, model: str) -> dict[str, Json]:  # noqa: ARG002 - as the protocol has it
        """Return the protocol's version."""
        return {"anthropic_version": API_VERSION}

    async def send(
        self, body: Mapping[str, Json], *, model: str, delivery: Delivery = WHOLE
    ) -> ChatCompletion:
        """See ``Provider.send``."""
        whole = {**body, "model": model, **({"stream": True} if delivery.stream else {})}
        pieces = self._pieces(delivery.on_text, model)
        joiner = AnthropicJoiner(pieces) if delivery.stream else None
        headers = {"anthropic-version": API_VERSION}
        url = f"{self.base_url}{_PATH}"
        answer = await self._post(url, whole, joiner, delivery, headers)
        return self._completion(answer, read_anthropic)
