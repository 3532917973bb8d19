"""Prices of tokens: a dated table, overridden by the configuration's prices.

cost = (uncached x input + cached x cached_input + written x cache_write + answer x output) / 10^6
+ request, in US dollars. An unknown price or number of tokens makes the cost *unknown*, never 0.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import urlsplit

from convergence_core.config.evaluation import LLM_PROVIDERS
from convergence_core.config.models import PriceConfig
from convergence_core.records import Usage

CONFIGURED = "config"
"""Version of a price from the configuration."""
LOCAL = "local"
"""Provider of models on this machine, whose tokens are free."""
PER_REQUEST = ("http", "function", "plugin", "browserbase")
"""Kinds of target with prices under the kind's name."""

_MTOK = 1_000_000
_DATED = re.compile(r"([-@](20\d\d-?[01]\d-?[0-3]\d)|-latest)$")
"""Suffix of a snapshot, which has its model's price unless the table lists it."""
_CLOSED = ("openai", "anthropic", "gemini")
"""Providers of proprietary models, whose names identify them at a known gateway. The host sets the
price of open models."""
_HOSTS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure",
    "openai.azure.us": "azure",
    "cognitiveservices.azure.com": "azure",
    "api.cognitive.microsoft.com": "azure",
    "services.ai.azure.com": "azure",
    "api.groq.com": "groq",
    "googleapis.com": "gemini",
    "api.anthropic.com": "anthropic",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral",
    "openrouter.ai": "openrouter",
}
COMPATIBLE = "-compatible"
"""Suffix of a kind at a host other than its provider's, whose prices no table has."""
_SELLERS = {"google": "gemini", "vertex_ai": "gemini"}
"""Model prefix used by gateways → provider in the table."""


class Price(PriceConfig):
    """Prices of one model in US dollars per million tokens; ``None`` means unknown.

    ``None`` for ``cached_input`` or ``cache_write`` means the price of ``input``; for ``request``,
    free.
    """

    context_tokens: int | None = None
    """Maximum tokens of prompt and answer together."""
    long_prompt_tokens: int | None = None
    """Prompt length above which all tokens cost more; ``None`` for a uniform price."""
    long_input_factor: float = 1.0
    long_output_factor: float = 1.0

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of a usage in US dollars, or ``None`` if unknown."""
        read = self._cost_of_prompt(usage)
        return self._charged(usage.prompt_tokens, read, usage.completion_tokens)

    def worst_case(
        self, prompt_tokens: int | None, max_output_tokens: int | None, n_prompts: int = 1
    ) -> float | None:
        """Return the maximum cost of a call within these bounds; ``None`` if unknown.

        Assumes the most expensive billing: the whole prompt is written to the cache.
        """
        if max_output_tokens is None:
            max_output_tokens = self.max_output_tokens
        if prompt_tokens is not None and self.context_tokens is not None:
            # The provider rejects longer prompts.
            prompt_tokens = min(prompt_tokens, self.context_tokens * n_prompts)
        read = _times(prompt_tokens, self.dearest_input_usd)
        return self._charged(prompt_tokens, read, max_output_tokens)

    @property
    def dearest_input_usd(self) -> float | None:
        """Maximum price of a prompt token."""
        if self.input is None:
            return None
        return max(self.input, self.cache_write or 0.0, self.cached_input or 0.0)

    def _cost_of_prompt(self, usage: Usage) -> float | None:
        prompt = usage.prompt_tokens
        if prompt is None or self.input is None:
            return _times(prompt, self.input)
        cached = min(usage.cached_tokens or 0, prompt)
        written = min(usage.cache_write_tokens or 0, prompt - cached)
        cached_usd = self.input if self.cached_input is None else self.cached_input
        write_usd = self.input if self.cache_write is None else self.cache_write
        uncached = prompt - cached - written
        return (uncached * self.input + cached * cached_usd + written * write_usd) / _MTOK

    def _charged(
        self, prompt_tokens: int | None, read: float | None, n_written: int | None
    ) -> float | None:
        """Return the cost of a call with this cost of its prompt, in US dollars."""
        written = _times(n_written, self.output)
        if read is None or written is None:
            return None
        limit = self.long_prompt_tokens
        if limit is not None and prompt_tokens is not None and prompt_tokens > limit:
            read, written = read * self.long_input_factor, written * self.long_output_factor
        return read + written + (self.request or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Prices by provider and model.

    Example:
        >>> table = PriceTable(version="2026-01-01", entries={"openai": {"small": Price(input=1.0)}})
        >>> table.find("openai", "small").input
        1.0
    """

    version: str
    """Date of the table."""
    entries: Mapping[str, Mapping[str, Price]] = field(default_factory=dict)
    """Provider → model → price."""
    overrides: Mapping[str, Price] = field(default_factory=dict)
    """Model → price from the configuration, which takes precedence for every provider."""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Self:
        """Build a table from the shipped file; a string value is another provider's name."""
        providers: Any = mapping["providers"]
        entries = {
            provider: dict(_models(models))
            for provider, models in providers.items()
            if not isinstance(models, str)
        }
        aliases = {
            provider: entries[models]
            for provider, models in providers.items()
            if isinstance(models, str)
        }
        return cls(version=str(mapping["version"]), entries={**entries, **aliases})

    def with_overrides(
        self, prices: Mapping[str, PriceConfig | Mapping[str, object]]
    ) -> "PriceTable":
        """Return a table with these prices taking precedence, for any provider.

        Fields missing in an override keep the table's value (at an unknown host, only token
        limits). A new ``input`` also resets the cache prices to it. ``http``, ``function``,
        ``plugin`` and ``browserbase`` price kinds of target.
        """
        overrides = {name: Price.model_validate(dict(price)) for name, price in prices.items()}
        return replace(self, overrides={**self.overrides, **overrides})

    def find(self, provider: str, model: str | None) -> Price | None:
        """Return the price of a model, or ``None`` if it is unknown.

        Looks up the exact name, then the name without its date or ``-latest``, then without the
        provider prefix. Models that share only a name prefix do not match.
        """
        override = self._override(provider, model)
        shipped = None if model is None else self._shipped(provider, model)
        if override is None:
            return shipped
        return _merged(override, shipped or self.facts(provider, model), provider)

    def facts(self, provider: str, model: str | None) -> Price:
        """Return only a model's ``context_tokens`` and ``max_output_tokens``, at any host."""
        known = None
        if model is not None:
            kind = provider.removesuffix(COMPATIBLE)
            known = self._shipped(kind, model) or self._shipped("openrouter", model)
        fields = {"context_tokens", "max_output_tokens"}
        return Price() if known is None else Price(**known.model_dump(include=fields))

    def version_of(self, provider: str, model: str | None) -> str | None:
        """Return the source of a price: the table's date, ``config``, or ``None`` if unknown."""
        if self._override(provider, model) is not None:
            return CONFIGURED
        return None if self.find(provider, model) is None else self.version

    def cost(self, provider: str, model: str | None, usage: Usage) -> float | None:
        """Return the cost of a call in US dollars; ``None`` if its price or tokens are unknown."""
        price = self.find(provider, model)
        return None if price is None else price.cost(usage)

    def settled(
        self,
        provider: str,
        model: str | None,
        usage: Usage,
        *,
        reported_usd: float | None = None,
        is_apart: bool = False,
    ) -> tuple[float | None, str | None]:
        """Return the cost of a call in US dollars, and the version of the price.

        The provider's reported cost takes precedence over the shipped table, and has no version. A
        price in the configuration takes precedence over both.

        Args:
            provider: See ``find``.
            model: See ``find``.
            usage: Usage of the answer.
            reported_usd: Cost reported by the provider, or ``None``.
            is_apart: Whether the call has charges outside the table; see ``is_priced_apart``.
        """
        version = self.version_of(provider, model)
        if reported_usd is not None and version != CONFIGURED:
            return reported_usd, None
        if is_apart and version != CONFIGURED:
            return None, None
        cost_usd = self.cost(provider, model, usage)
        return cost_usd, None if cost_usd is None else version

    def worst_case(
        self,
        provider: str,
        model: str | None,
        prompt_tokens: int | None,
        max_output_tokens: int | None,
        n_prompts: int = 1,
        *,
        is_apart: bool = False,
    ) -> float | None:
        """Return the maximum cost of a call within these bounds, in US dollars.

        Args:
            provider: See ``find``.
            model: See ``find``.
            prompt_tokens: Bound of the prompt; ``None`` means unknown, for example with pictures.
            max_output_tokens: Bound of all answers together; ``None`` means the model's maximum.
            n_prompts: Number of texts in a batch, each of which may fill the model's context.
            is_apart: Whether charges may exceed the table; see ``may_exceed_tables``.

        Returns:
            Cost, or ``None`` if the price or a relevant bound is unknown.
        """
        price = self.find(provider, model)
        if price is None or (is_apart and self.version_of(provider, model) != CONFIGURED):
            return None
        return price.worst_case(prompt_tokens, max_output_tokens, n_prompts)

    def _override(self, provider: str, model: str | None) -> Price | None:
        if model is None:
            return self.overrides.get(provider) if provider in PER_REQUEST else None
        kind = provider.removesuffix(COMPATIBLE)
        for name in (f"{kind}/{model}", *self._names(model)):
            if name in self.overrides:
                return self.overrides[name]
        return self.overrides.get(provider) if provider in PER_REQUEST else None

    def _shipped(self, provider: str, model: str) -> Price | None:
        if provider == LOCAL:
            return Price(input=0.0, output=0.0)
        prefix, _, rest = model.partition("/")
        prefix = _SELLERS.get(prefix, prefix)
        providers = [provider]
        # OpenRouter's prefix names a model's maker, but the host of an open one sets its price.
        if rest and prefix in self.entries and (prefix in _CLOSED or provider != "openrouter"):
            providers.append(prefix)
        if provider == "openrouter":
            providers += _CLOSED
        for name in self._names(model):
            for known in providers:
                if name in self.entries.get(known, ()):
                    return self.entries[known][name]
        return None

    def _names(self, model: str) -> Iterator[str]:
        """Yield the possible names of a model, the most specific first."""
        yield model
        if (undated := _DATED.sub("", model)) != model:
            yield undated
        prefix, _, rest = model.partition("/")
        known = prefix in self.entries or prefix in _SELLERS
        if rest and (known or prefix == "models"):  # Gemini: models/…
            yield rest
            if (undated := _DATED.sub("", rest)) != rest:
                yield undated


def provider_of(kind: str, endpoint: str | None) -> str:
    """Return the provider in the table for an endpoint's models.

    A chat's kind is a protocol of many servers, whose host identifies them. But ``azure`` is Azure
    OpenAI at any host, and clouds serve Claude over Anthropic's protocol. An unknown host is
    ``KIND-compatible``. Its model names are ambiguous, so a table prices only those with a
    provider prefix, as gateways write (``openai/gpt-4o-mini``).
    """
    if endpoint is None or kind == "azure" or kind not in LLM_PROVIDERS:
        return kind
    host = urlsplit(endpoint).hostname or ""
    for known, provider in _HOSTS.items():
        if host == known or host.endswith("." + known):
            return kind if kind == "anthropic" and provider in ("azure", "gemini") else provider
    return f"{kind}{COMPATIBLE}"


def _times(tokens: int | None, usd: float | None) -> float | None:
    """Return the cost of tokens at a price per million; 0 if either is 0."""
    if usd == 0 or tokens == 0:
        return 0.0
    return None if tokens is None or usd is None else tokens * usd / _MTOK


def _merged(override: Price, base: Price, provider: str) -> Price:
    if override.input is not None:
        base = base.model_copy(update={"cached_input": None, "cache_write": None})
    merged = base.model_copy(update=override.model_dump(exclude_defaults=True))
    # If only requests have a price, tokens are free.
    says_requests = merged.request is not None or provider in PER_REQUEST
    if merged.input is None and merged.output is None and says_requests:
        return merged.model_copy(update={"input": 0.0, "output": 0.0})
    return merged


def _models(models: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Price]]:
    """Yield each name of each model with its price."""
    for model, facts in models.items():
        price = Price.model_validate({key: facts[key] for key in facts if key != "names"})
        for name in (model, *facts.get("names", ())):
            yield name, price
