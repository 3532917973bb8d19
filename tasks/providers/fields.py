"""Request fields of settings, by provider and model: a table of rules.

Settings have OpenAI's names. A rule renames a setting or states that it has no field. Settings
without a rule pass unchanged, because an unknown server may have the field.

Sources, as of 2026: the parameter docs of the ``openai`` client (``max_tokens`` "is not compatible
with o-series models", ``stop`` "not supported with latest reasoning models"); OpenAI's guide to
reasoning models (only the default temperature, top_p and penalties; no logprobs; GPT-5.1 and later
take them while ``reasoning_effort`` is ``none``, its default); "Unrecognized request argument" of
api.openai.com for ``top_k`` and others, and for ``reasoning_effort`` with GPT-4; Groq's page on
OpenAI compatibility (``logprobs``, ``logit_bias`` and ``top_logprobs`` are refused, ``n`` must be
1); "Unknown name" of Gemini's compatible endpoint for ``seed``, ``frequency_penalty`` and
``top_k``; ``ChatCompletionRequest`` of the ``mistralai`` client 3.7 (every other field is
``extra_forbidden``); DeepSeek's reference of chat completions and its page on thinking
(temperature and penalties "will not trigger an error but have no effect");
``ChatCompletionRequest`` in Ollama's ``openai/openai.go``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from convergence_core.records import Json

Dialect: TypeAlias = Literal[
    "openai", "azure", "compatible", "groq", "gemini",
    "mistral", "deepseek", "openrouter", "ollama",
]  # fmt: skip
"""``compatible`` is any server with OpenAI's protocol that its host does not identify."""

Unsupported: TypeAlias = Literal["refuse", "drop"]

REQUEST_FIELDS = frozenset(
    """
    frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata min_p model n
    parallel_tool_calls prediction presence_penalty prompt_cache_key reasoning_effort
    repetition_penalty response_format safety_identifier seed service_tier stop store temperature
    tool_choice tools top_k top_logprobs top_p user verbosity web_search_options
    """.split()  # noqa: SIM905 - as a literal it would be thirty lines
)
"""Settings that a parameter of the same name sends."""

# Bare names only: a gateway's `openai/gpt-5` is the gateway's, which maps fields itself.
_REASONING = re.compile(r"(?:ft:)?(?:o\d(?:[-:].*)?|gpt-5(?:[-:](?!chat).*)?)")
_REASONING_AT_WILL = re.compile(r"(?:ft:)?gpt-5\.\d+(?:[-:](?!chat).*)?")
_NO_STOP = re.compile(r"(?:ft:)?(?:o3|o4-mini|gpt-5)(?:[-:](?!chat).*)?")
_NEW_LIMIT = re.compile(r"(?:ft:)?(?:o\d(?:[-:].*)?|gpt-[5-9](?:[-.:].*)?)")
_NO_REASONING = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4|chatgpt-4).*")

_OPENAI = "openai azure"
_BY_NAME = f"{_OPENAI} compatible"
_PLAIN_LIMIT = "mistral deepseek ollama"
_ALL = f"{_BY_NAME} groq gemini {_PLAIN_LIMIT} openrouter"
_DEEPSEEK_THINKS = re.compile(r"deepseek-(?!chat).*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rule for a group of settings."""

    fields: frozenset[str]
    dialects: frozenset[str]
    models: re.Pattern[str] | None = None
    """Model names that the rule applies to, matched as a whole in lower case; ``None`` means all.
    """
    while_reasoning: bool = False
    """Whether the rule applies only while ``reasoning_effort`` is set to anything but ``none``."""
    unless_thinking_is_off: bool = False
    """Whether ``thinking: {type: disabled}``, or a ``type`` that a parameter chooses, suspends the
    rule.
    """
    renamed: str | None = None
    """New name of the field; ``None`` if there is no field."""
    accepted: tuple[Json, ...] = ()
    """Values that pass despite the rule: the model's defaults."""
    reason: str = ""

    def applies(self, dialect: Dialect, model: str, settings: Mapping[str, Json]) -> bool:
        """Return whether the rule applies to this provider, model and other settings."""
        if dialect not in self.dialects:
            return False
        if self.models is not None and self.models.fullmatch(model.lower()) is None:
            return False
        if self.unless_thinking_is_off and _may_be_off(settings.get("thinking")):
            return False
        return not self.while_reasoning or settings.get("reasoning_effort") not in (None, "none")


def _may_be_off(thinking: Json) -> bool:
    kind = thinking.get("type") if isinstance(thinking, dict) else thinking
    return isinstance(kind, str) and (kind == "disabled" or "{" in kind)


def _rule(fields: str, dialects: str, reason: str = "", **more: Any) -> Rule:
    names, providers = frozenset(fields.split()), frozenset(dialects.split())
    return Rule(fields=names, dialects=providers, reason=reason, **more)


def _sampling(fields: str, accepted: tuple[Json, ...], reason: str) -> tuple[Rule, Rule]:
    """Return the rules of fields that a model accepts only while it does not reason."""
    more: dict[str, Any] = {"accepted": accepted, "while_reasoning": True}
    return (
        _rule(fields, _BY_NAME, reason, models=_REASONING, accepted=accepted),
        _rule(fields, _BY_NAME, reason, models=_REASONING_AT_WILL, **more),
    )


_DEFAULT_ONLY = "the reasoning model accepts only its default"
_NOT_REASONING = "the reasoning model has no such field"
_BY_REQUEST = "`api.request.stream` says whether answers are streamed"
_NOT_AT_OPENAI = "OpenAI's chat has no such field"
_IGNORED = "it is silently ignored"
_WHILE_THINKING = (
    "it has no effect while the model thinks; write `thinking: {type: disabled}` in "
    "`api.request.options`"
)
_NOT_AT_GEMINI = "Gemini's OpenAI-compatible endpoint has no such field"

RULES: tuple[Rule, ...] = (
    _rule("stream", _ALL, _BY_REQUEST, accepted=(False,)),
    _rule("max_tokens", _BY_NAME, models=_NEW_LIMIT, renamed="max_completion_tokens"),
    *_sampling("temperature top_p", (1,), _DEFAULT_ONLY),
    *_sampling("presence_penalty frequency_penalty", (0,), _DEFAULT_ONLY),
    *_sampling("logprobs", (False,), _NOT_REASONING),
    *_sampling("top_logprobs", (), _NOT_REASONING),
    *_sampling("logit_bias", ({},), _NOT_REASONING),
    _rule("stop", _BY_NAME, _NOT_REASONING, models=_NO_STOP),
    _rule("reasoning_effort", _OPENAI, "the model does not reason", models=_NO_REASONING),
    _rule("top_k min_p repetition_penalty", _OPENAI, _NOT_AT_OPENAI),
    _rule("logprobs top_logprobs logit_bias", "groq", "Groq refuses it"),
    _rule("n", "groq", "Groq returns one answer only", accepted=(1,)),
    _rule("seed frequency_penalty top_k", "gemini", _NOT_AT_GEMINI),
    _rule("max_completion_tokens", _PLAIN_LIMIT, renamed="max_tokens"),
    _rule("seed", "mistral", renamed="random_seed"),
    _rule(
        "logit_bias min_p safety_identifier store user verbosity web_search_options",
        "mistral",
        "Mistral refuses it",
    ),
    _rule("n", "deepseek ollama", f"one answer is returned; {_IGNORED}", accepted=(1,)),
    _rule(
        "logit_bias min_p parallel_tool_calls prediction repetition_penalty seed service_tier "
        "top_k verbosity web_search_options",
        "deepseek",
        f"DeepSeek has no such field; {_IGNORED}",
    ),
    *(
        _rule(
            fields,
            "deepseek",
            _WHILE_THINKING,
            models=_DEEPSEEK_THINKS,
            accepted=(default,),
            unless_thinking_is_off=True,
        )
        for fields, default in (("temperature", 1), ("presence_penalty frequency_penalty", 0))
    ),
    _rule(
        "logit_bias min_p parallel_tool_calls prediction repetition_penalty service_tier top_k "
        "verbosity web_search_options",
        "ollama",
        f"Ollama's compatible endpoint has no such field; {_IGNORED}, but a Modelfile may set it",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """Body of a request in the provider's form, with dropped and refused settings."""

    body: Mapping[str, Json]
    dropped: tuple[str, ...] = ()
    """Dropped settings, each as ``name: reason``."""
    refused: tuple[tuple[str, str], ...] = ()
    """Settings that must not be dropped silently, with the reason; such a request may not be sent.
    """


def map_fields(
    settings: Mapping[str, Json], *, dialect: Dialect, model: str, unsupported: Unsupported
) -> Mapped:
    """Return the fields of a request in OpenAI's form.

    Args:
        settings: Settings by our names, without model and messages.
        dialect: Provider's dialect.
        model: Model name.
        unsupported: Handling of settings without a field.
    """
    body: dict[str, Json] = {}
    lacking: list[tuple[str, str]] = []
    for name, value in settings.items():
        rule = rule_for(name, dialect, model, settings)
        if rule is None or value is None or is_accepted(rule, value):
            body[name] = value
        elif rule.renamed is None:
            lacking.append((name, rule.reason))
        elif settings.get(rule.renamed) is not None:
            lacking.append((name, f"`{rule.renamed}` is set too, and is the same"))
        else:
            body[rule.renamed] = value
    return settled(body, lacking, unsupported)


def rule_for(name: str, dialect: Dialect, model: str, settings: Mapping[str, Json]) -> Rule | None:
    """Return the first rule that applies to a setting; ``None`` if it passes unchanged."""
    for rule in RULES:
        if name in rule.fields and rule.applies(dialect, model, settings):
            return rule
    return None


def is_accepted(rule: Rule, value: Json) -> bool:
    """Return whether a value passes despite a rule."""
    return any(
        value == allowed and isinstance(value, bool) == isinstance(allowed, bool)
        for allowed in rule.accepted
    )


def settled(
    body: Mapping[str, Json], lacking: Iterable[tuple[str, str]], unsupported: Unsupported
) -> Mapped:
    """Return a body with its unsupported settings either refused or dropped."""
    missing = tuple(lacking)
    if unsupported == "refuse":
        return Mapped(body=body, refused=missing)
    return Mapped(body=body, dropped=tuple(f"{name}: {reason}" for name, reason in missing))


def openai_dialect(base_url: str) -> Dialect:
    """Return the dialect of an endpoint of kind ``openai``, by its host or Ollama's port."""
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    if parts.netloc.endswith(f":{OLLAMA_PORT}"):
        return "ollama"
    dialects = (d for name, d in _HOSTS.items() if host == name or host.endswith("." + name))
    return next(dialects, "compatible")


_HOSTS: dict[str, Dialect] = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure",
    "api.groq.com": "groq",
    "generativelanguage.googleapis.com": "gemini",
    "api.mistral.ai": "mistral",
    "api.deepseek.com": "deepseek",
    "openrouter.ai": "openrouter",
}
OLLAMA_PORT = 11434
"""Ollama's default port; its host may be any."""


def output_limit(body: Mapping[str, Json]) -> int | None:
    """Return the maximum tokens of one answer to a mapped request; ``None`` means no limit."""
    names = ("max_completion_tokens", "max_tokens")
    return max((n for name in names if (n := _count(body, name))), default=None)


def n_answers(body: Mapping[str, Json]) -> int:
    """Return the number of answers that a mapped request asks for."""
    return _count(body, "n") or 1


def _count(body: Mapping[str, Json], name: str) -> int:
    """Return a positive integer of a mapped request; 0 if it has none."""
    n = body.get(name)
    return n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 0
