"""Which field of a request a setting becomes, for each provider and model; pure and table-driven.

Settings have OpenAI's names. A rule says that a setting has another name, or that there is none for
it; what no rule names is passed on as it is, for a server that we do not know may know the field.

Sources, as of 2026: the parameter docs of the ``openai`` client (``max_tokens`` "is not compatible
with o-series models", ``stop`` "not supported with latest reasoning models"); OpenAI's guide to
reasoning models (only the default temperature, top_p and penalties; no logprobs; GPT-5.1 and later
take them while ``reasoning_effort`` is ``none``, its default); "Unrecognized request argument" of
api.openai.com for ``top_k`` and others, and for ``reasoning_effort`` with GPT-4; Groq's page on
OpenAI compatibility (``logprobs``, ``logit_bias`` and ``top_logprobs`` are refused, ``n`` must be
1); "Unknown name" of Gemini's compatible endpoint for ``seed``, ``frequency_penalty`` and ``top_k``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from convergence_core.records import Json

Dialect: TypeAlias = Literal["openai", "azure", "compatible", "groq", "gemini", "gemini_native"]
"""``compatible`` is any server that speaks OpenAI's protocol and is not known by its host."""

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

# Bare names only: a gateway's `openai/gpt-5` is the gateway's, which maps fields by itself.
_REASONING = re.compile(r"(?:ft:)?(?:o\d(?:[-:].*)?|gpt-5(?:[-:](?!chat).*)?)")
_REASONING_AT_WILL = re.compile(r"(?:ft:)?gpt-5\.\d+(?:[-:](?!chat).*)?")
_NO_STOP = re.compile(r"(?:ft:)?(?:o3|o4-mini|gpt-5)(?:[-:](?!chat).*)?")
_NEW_LIMIT = re.compile(r"(?:ft:)?(?:o\d(?:[-:].*)?|gpt-[5-9](?:[-.:].*)?)")
_NO_REASONING = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4|chatgpt-4).*")

_BY_NAME: frozenset[Dialect] = frozenset({"openai", "azure", "compatible"})
_OPENAI: frozenset[Dialect] = frozenset({"openai", "azure"})
_GROQ: frozenset[Dialect] = frozenset({"groq"})
_GEMINI: frozenset[Dialect] = frozenset({"gemini"})
_ALL: frozenset[Dialect] = _BY_NAME | _GROQ | _GEMINI | {"gemini_native"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to one setting."""

    fields: frozenset[str]
    dialects: frozenset[Dialect]
    models: re.Pattern[str] | None = None
    """Names that it holds for, matched as a whole in lower case; ``None``: all."""
    while_reasoning: bool = False
    """It holds only while ``reasoning_effort`` is set to anything but ``none``."""
    renamed: str | None = None
    """The field it becomes; ``None``: there is no field for it."""
    accepted: tuple[Json, ...] = ()
    """Values that are passed on all the same: the model's defaults."""
    reason: str = ""

    def applies(self, dialect: Dialect, model: str, settings: Mapping[str, Json]) -> bool:
        """Return whether it holds for this provider and model beside these other settings."""
        if dialect not in self.dialects:
            return False
        if self.models is not None and self.models.fullmatch(model.lower()) is None:
            return False
        return not self.while_reasoning or settings.get("reasoning_effort") not in (None, "none")


def _sampling(names: str, accepted: tuple[Json, ...], *, reason: str) -> tuple[Rule, Rule]:
    fields = frozenset(names.split())
    return (
        Rule(
            fields=fields,
            dialects=_BY_NAME,
            models=_REASONING,
            accepted=accepted,
            reason=reason,
        ),
        Rule(
            fields=fields,
            dialects=_BY_NAME,
            models=_REASONING_AT_WILL,
            while_reasoning=True,
            accepted=accepted,
            reason=reason,
        ),
    )


_DEFAULT_ONLY = "the reasoning model takes its default only"
_NOT_REASONING = "the reasoning model has no such field"
_NOT_AT_OPENAI = "OpenAI's chat has no such field"

RULES: tuple[Rule, ...] = (
    Rule(
        fields=frozenset({"stream"}),
        dialects=_ALL,
        accepted=(False,),
        reason="`api.request.stream` says whether answers are streamed",
    ),
    Rule(
        fields=frozenset({"max_tokens"}),
        dialects=_BY_NAME,
        models=_NEW_LIMIT,
        renamed="max_completion_tokens",
    ),
    *_sampling("temperature top_p", (1,), reason=_DEFAULT_ONLY),
    *_sampling("presence_penalty frequency_penalty", (0,), reason=_DEFAULT_ONLY),
    *_sampling("logprobs", (False,), reason=_NOT_REASONING),
    *_sampling("top_logprobs", (), reason=_NOT_REASONING),
    *_sampling("logit_bias", ({},), reason=_NOT_REASONING),
    Rule(fields=frozenset({"stop"}), dialects=_BY_NAME, models=_NO_STOP, reason=_NOT_REASONING),
    Rule(
        fields=frozenset({"reasoning_effort"}),
        dialects=_OPENAI,
        models=_NO_REASONING,
        reason="the model does not reason",
    ),
    Rule(
        fields=frozenset({"top_k", "min_p", "repetition_penalty"}),
        dialects=_OPENAI,
        reason=_NOT_AT_OPENAI,
    ),
    Rule(
        fields=frozenset({"logprobs", "top_logprobs", "logit_bias"}),
        dialects=_GROQ,
        reason="Groq refuses it",
    ),
    Rule(fields=frozenset({"n"}), dialects=_GROQ, accepted=(1,), reason="Groq answers once only"),
    Rule(
        fields=frozenset({"seed", "frequency_penalty", "top_k"}),
        dialects=_GEMINI,
        reason="Gemini's OpenAI-compatible endpoint has no such field; `protocol: native` has",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A request's body as its provider takes it, and what became of the rest."""

    body: Mapping[str, Json]
    dropped: tuple[str, ...] = ()
    """Settings that were left out, each as ``name: reason``."""
    refused: tuple[tuple[str, str], ...] = ()
    """Settings that must not be left out silently, with the reason; nothing may be sent."""


def map_fields(
    settings: Mapping[str, Json], *, dialect: Dialect, model: str, unsupported: Unsupported
) -> Mapped:
    """Return the fields of a request in OpenAI's form.

    Args:
        settings: by our names, without model and messages.
        dialect: who is asked.
        model: its name.
        unsupported: what happens with a setting that has no field.
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
    """Return the first rule that holds for a setting, ``None`` where it is passed on."""
    for rule in _FIELD_TO_RULES.get(name, ()):
        if rule.applies(dialect, model, settings):
            return rule
    return None


_FIELD_TO_RULES: dict[str, tuple[Rule, ...]] = {
    name: tuple(rule for rule in RULES if name in rule.fields)
    for name in frozenset().union(*(rule.fields for rule in RULES))
}


def is_accepted(rule: Rule, value: Json) -> bool:
    """Return whether a value is passed on in spite of a rule."""
    return any(
        value == allowed and isinstance(value, bool) == isinstance(allowed, bool)
        for allowed in rule.accepted
    )


def settled(
    body: Mapping[str, Json], lacking: Iterable[tuple[str, str]], unsupported: Unsupported
) -> Mapped:
    """Return a body with what it lacks either refused or dropped."""
    found = tuple(lacking)
    if unsupported == "refuse":
        return Mapped(body=body, refused=found)
    return Mapped(body=body, dropped=tuple(f"{name}: {reason}" for name, reason in found))


def openai_dialect(base_url: str) -> Dialect:
    """Return how an endpoint of kind ``openai`` is spoken to: its host tells whose it is."""
    host = (urlsplit(base_url).hostname or "").lower()
    for name, dialect in _HOSTS.items():
        if host == name or host.endswith("." + name):
            return dialect
    return "compatible"


_HOSTS: dict[str, Dialect] = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure",
    "api.groq.com": "groq",
    "generativelanguage.googleapis.com": "gemini",
}


def output_limit(body: Mapping[str, Json]) -> int | None:
    """Return the most tokens that one answer to a mapped request may have, ``None``: no limit."""
    inner = body.get("generationConfig")
    here = inner if isinstance(inner, dict) else body
    limits = [
        here.get(name) for name in ("max_completion_tokens", "max_tokens", "maxOutputTokens")
    ]
    known = [n for n in limits if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    return max(known, default=None)


def n_answers(body: Mapping[str, Json]) -> int:
    """Return how many answers a mapped request asks for."""
    inner = body.get("generationConfig")
    n = inner.get("candidateCount") if isinstance(inner, dict) else body.get("n")
    return n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 1
