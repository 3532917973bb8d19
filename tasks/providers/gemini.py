"""Gemini in its own protocol, ``models.generateContent``, through httpx.

The key travels in a header (``x-goog-api-key``), never in the URL, where logs would keep it.

Sources: the reference of ``models.generateContent`` (v1beta) for names, and Google's page on OpenAI
compatibility for what ``reasoning_effort`` means: a budget of thought for Gemini 2.5 and before, a
level for Gemini 3 and later. ``responseSchema`` is a subset of OpenAPI 3.0 that refuses unknown
keywords; a schema with references goes to ``responseJsonSchema``, which takes them.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from convergence_core.errors import CandidateFault
from convergence_core.records import Json
from convergence_core.thought_tags import TextCallback
from tasks.json_values import as_text
from tasks.providers.answers import ChatCompletion, read_gemini
from tasks.providers.chat import ChatSettings, Provider
from tasks.providers.fields import Mapped, Unsupported, is_accepted, rule_for, settled
from tasks.providers.streams import GeminiJoiner

_NAMES: dict[str, str] = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "seed": "seed",
    "n": "candidateCount",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
}
"""Settings that are fields of ``generationConfig`` under another name."""

_PROTOCOL_FIELDS = frozenset({"safetySettings", "cachedContent", "toolConfig", "labels"})
"""Fields of the protocol itself, which `request.options` may hold."""

_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576}
_LEVELS = ("minimal", "low", "medium", "high")
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_BY_LEVEL = re.compile(r"(?:models/)?gemini-(?:[3-9]|\d\d).*")

_SCHEMA_KEYS = frozenset(
    """
    type format title description nullable enum maxItems minItems properties required
    minProperties maxProperties minLength maxLength pattern example anyOf propertyOrdering default
    items minimum maximum
    """.split()  # noqa: SIM905 - as a literal it would be twenty lines
)


def gemini_request(
    messages: Sequence[Mapping[str, Json]],
    settings: Mapping[str, Json],
    *,
    model: str,
    unsupported: Unsupported,
) -> Mapped:
    """Return the body of a ``generateContent`` request.

    Raises:
        CandidateFault: a message holds what the protocol has no part for.
    """
    system, contents = gemini_contents(messages)
    draft = _Draft(model, {"contents": contents})
    if system:
        draft.body["systemInstruction"] = {"parts": system}
    lacking: list[tuple[str, str]] = []
    for name, value in settings.items():
        rule = rule_for(name, "gemini_native", model, settings)
        if value is None or (rule is not None and is_accepted(rule, value)):
            continue
        reason = rule.reason if rule is not None else draft.place(name, value)
        if reason is not None:
            lacking.append((name, reason))
    if draft.config:
        draft.body["generationConfig"] = draft.config
    return settled(draft.body, lacking, unsupported)


@dataclass(slots=True)
class _Draft:
    """A body under construction; each method puts one setting in, or returns why it cannot."""

    model: str
    body: dict[str, Json]
    config: dict[str, Json] = field(default_factory=dict)

    def place(self, name: str, value: Json) -> str | None:
        """Put a setting where it belongs; return why there is no place for it."""
        if name in _NAMES:
            if _NAMES[name] in self.config:
                return f"`{_NAMES[name]}` is set twice"
            self.config[_NAMES[name]] = value
            return None
        if name in _PROTOCOL_FIELDS:
            self.body[name] = value
            return None
        if name == "generationConfig" and isinstance(value, dict):
            self.config |= value
            return None
        if name in _PLACES:
            return _PLACES[name](self, value)
        return "Gemini's own protocol has no field for it"

    def stop(self, value: Json) -> None:
        self.config["stopSequences"] = value if isinstance(value, list) else [value]

    def response_format(self, value: Json) -> str | None:
        kind = value.get("type") if isinstance(value, dict) else None
        if kind == "text":
            return None
        if kind not in ("json_object", "json_schema") or not isinstance(value, dict):
            return "it must be of type `text`, `json_object` or `json_schema`"
        self.config["responseMimeType"] = "application/json"
        holder = value.get("json_schema")
        schema = holder.get("schema") if isinstance(holder, dict) else None
        if isinstance(schema, dict):
            self.config |= _schema_field(schema, "responseSchema", "responseJsonSchema")
        return None

    def reasoning_effort(self, value: Json) -> str | None:
        effort = str(value)
        if _BY_LEVEL.fullmatch(self.model.lower()):
            if effort not in _LEVELS:
                return f"the model's levels are {', '.join(_LEVELS)}, not `{effort}`"
            self.config["thinkingConfig"] = {"thinkingLevel": effort}
            return None
        if effort not in _BUDGETS:
            return f"it must be one of {', '.join(_BUDGETS)}, not `{effort}`"
        self.config["thinkingConfig"] = {"thinkingBudget": _BUDGETS[effort]}
        return None

    def tools(self, value: Json) -> str | None:
        if not isinstance(value, list):
            return "it must be a list"
        declared: list[Json] = []
        declarations: list[Json] = []
        for tool in value:
            function = tool.get("function") if isinstance(tool, dict) else None
            if not isinstance(function, dict):
                declarations.append(tool)  # a tool of the protocol's own, e.g. `googleSearch`
                continue
            kept: dict[str, Json] = {
                name: function[name] for name in ("name", "description") if name in function
            }
            parameters = function.get("parameters")
            if isinstance(parameters, dict) and parameters.get("properties"):
                kept |= _schema_field(parameters, "parameters", "parametersJsonSchema")
            declared.append(kept)
        if declared:
            declarations.append({"functionDeclarations": declared})
        self.body["tools"] = declarations
        return None

    def tool_choice(self, value: Json) -> str | None:
        function = value.get("function") if isinstance(value, dict) else None
        calling: dict[str, Json]
        if isinstance(function, dict):
            calling = {"mode": "ANY", "allowedFunctionNames": [function.get("name")]}
        elif isinstance(value, str) and value in _MODES:
            calling = {"mode": _MODES[value]}
        else:
            return "it must be `auto`, `none`, `required`, or name a function"
        self.body["toolConfig"] = {"functionCallingConfig": calling}
        return None


_PLACES: dict[str, Callable[[_Draft, Json], str | None]] = {
    "stop": _Draft.stop,
    "response_format": _Draft.response_format,
    "reasoning_effort": _Draft.reasoning_effort,
    "tools": _Draft.tools,
    "tool_choice": _Draft.tool_choice,
}


# -- schemas


def _schema_field(schema: dict[str, Json], plain: str, with_references: str) -> dict[str, Json]:
    """Return a schema under the name of the field that takes it."""
    return {with_references: schema} if _has_references(schema) else {plain: gemini_schema(schema)}


def gemini_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return a JSON schema in the subset that ``responseSchema`` takes.

    What it cannot say (``additionalProperties``, ``$schema``…) is left out: the answer's form is
    then wider, never narrower.
    """
    made: dict[str, Json] = {}
    for key, value in schema.items():
        if key == "const":
            made["enum"] = [value]
        elif key == "type" and isinstance(value, list):
            kinds = [kind for kind in value if kind != "null"]
            made["type"] = kinds[0] if kinds else "string"
            if len(kinds) < len(value):
                made["nullable"] = True
        elif key == "properties" and isinstance(value, dict):
            made[key] = {name: _inner(item) for name, item in value.items()}
        elif key in ("anyOf", "oneOf") and isinstance(value, list):
            made["anyOf"] = [_inner(item) for item in value]
        elif key == "items":
            made[key] = _inner(value)
        elif key in _SCHEMA_KEYS:
            made[key] = value
    return made


def _inner(value: Json) -> Json:
    return gemini_schema(value) if isinstance(value, dict) else value


def _has_references(value: Json) -> bool:
    if isinstance(value, dict):
        return "$ref" in value or any(_has_references(item) for item in value.values())
    return isinstance(value, list) and any(_has_references(item) for item in value)


# -- messages


def gemini_contents(
    messages: Sequence[Mapping[str, Json]],
) -> tuple[list[Json], list[Json]]:
    """Return the parts of the system's instruction, and the turns.

    Raises:
        CandidateFault: a message holds what the protocol has no part for.
    """
    system: list[Json] = []
    turns: list[Json] = []
    id_to_name: dict[str, Json] = {}
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role in ("system", "developer"):
            system += _parts(content)
        elif role == "tool":
            name = message.get("name") or id_to_name.get(str(message.get("tool_call_id")))
            turns.append({"role": "user", "parts": [_answered(name, content)]})
        else:
            parts = _parts(content)
            calls = message.get("tool_calls")
            for call in calls if isinstance(calls, list) else []:
                function = call.get("function") if isinstance(call, dict) else None
                if isinstance(call, dict) and isinstance(function, dict):
                    id_to_name[str(call.get("id"))] = function.get("name")
                    arguments = _object(function.get("arguments"), "input")
                    parts.append(
                        {"functionCall": {"name": function.get("name"), "args": arguments}}
                    )
            turns.append({"role": "model" if role == "assistant" else "user", "parts": parts})
    return system, turns


def _answered(name: Json, content: Json) -> Json:
    return {"functionResponse": {"name": name, "response": _object(content, "result")}}


def _object(value: Json, key: str) -> Json:
    """Return a mapping, or the mapping that a text holds, or one with the value under a key."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        value = parsed if isinstance(parsed, dict) else value
    return value if isinstance(value, dict) else {key: value}


def _parts(content: Json) -> list[Json]:
    if content is None or content == "":
        return []
    if isinstance(content, list):
        return [_part(part) for part in content]
    return [{"text": as_text(content)}]


def _part(part: Json) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(part, dict):
        if kind == "text":
            return {"text": part.get("text")}
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        if kind == "image_url" and isinstance(url, str):
            match = re.match(r"data:([^;,]+);base64,", url)
            if match:
                return {"inlineData": {"mimeType": match[1], "data": url[match.end() :]}}
            return {"fileData": {"fileUri": url}}
        audio = part.get("input_audio")
        if kind == "input_audio" and isinstance(audio, dict):
            mime = f"audio/{audio.get('format')}"
            return {"inlineData": {"mimeType": mime, "data": audio.get("data")}}
    raise CandidateFault(
        f"Gemini's own protocol has no part for a message's content of type `{kind}`",
        error_type="unsupported_content",
    )


_DEFAULTS = ChatSettings(provider="gemini")


class GeminiChat(Provider):
    """One endpoint of Gemini's own protocol; see ``Provider``."""

    def __init__(self, base_url: str, settings: ChatSettings = _DEFAULTS) -> None:
        super().__init__(base_url.rstrip("/").removesuffix("/openai"), settings)

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """See ``Provider.mapped``; the model is part of the URL."""
        unsupported = self._settings.unsupported
        return gemini_request(messages, settings, model=model, unsupported=unsupported)

    def address(self, model: str) -> dict[str, Json]:  # noqa: ARG002 - as the protocol has it
        """Return that it is the provider's own protocol."""
        return {"protocol": "native"}

    async def send(
        self,
        body: Mapping[str, Json],
        *,
        model: str,
        query: Mapping[str, Json] | None = None,
        stream: bool = False,
        on_text: TextCallback | None = None,
    ) -> ChatCompletion:
        """See ``Provider.send``."""
        name = quote(model.removeprefix("models/"), safe="")
        method = "streamGenerateContent" if stream else "generateContent"
        sent = dict(self._settings.headers())
        params: dict[str, Any] = {**(query or {}), **({"alt": "sse"} if stream else {})}
        async with self._exchange(sent) as stopwatch:
            request = self._open_client().stream(
                "POST",
                f"{self.base_url}/models/{name}:{method}",
                params=params or None,
                json=dict(body),
                headers=sent,
                extensions={"trace": stopwatch},
            )
            async with request as response:
                joiner = GeminiJoiner(self._pieces(on_text, model)) if stream else None
                answer = await self._read(response, joiner, stopwatch)
        self._check_chat(answer.raw)
        return read_gemini(
            answer.raw,
            latency_ms=answer.latency_ms,
            first_token_ms=answer.first_token_ms,
            is_split=self._settings.separate_thinking,
        )
