"""Chat models: OpenAI, Azure, Groq, Gemini, Anthropic, compatible and local ones.

``make_chat`` makes the provider of a configuration's ``api``, and ``make_llm`` that of a judge.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from convergence_core.budget.prices import provider_of
from convergence_core.config import ApiConfig, LlmConfig
from convergence_core.config.evaluation import LLM_PROVIDERS
from convergence_core.errors import ConfigurationError
from convergence_core.ports import LLM
from convergence_core.records import fields_of
from tasks.http.bodies import MAX_RESPONSE_BYTES
from tasks.http.clients import ClientSettings
from tasks.providers.anthropic import AnthropicChat
from tasks.providers.chat import ChatSettings, Provider
from tasks.providers.fields import Dialect, openai_dialect
from tasks.providers.openai_chat import AzureChat, OpenAIChat
from tasks.secrets.redaction import Secrets

ENDPOINTS: Mapping[str, str] = {
    "openai": "https://api.openai.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "anthropic": "https://api.anthropic.com/v1",
}
"""Default endpoint of each provider."""

_MODEL_PREFIXES = LLM_PROVIDERS
_KEY_HEADERS: Mapping[str, str] = {"azure": "api-key", "anthropic": "x-api-key"}
"""Header of the API key, for providers that do not use a bearer token."""
_DIALECTS: Mapping[str, Dialect] = {"azure": "azure", "groq": "groq", "gemini": "gemini"}
"""Dialects of the kinds whose dialect does not depend on the host."""


def make_chat(
    api: ApiConfig,
    endpoint: str | None = None,
    settings: ChatSettings | None = None,
    *,
    base_dir: Path | None = None,
    mock_url: str | None = None,
) -> Provider:
    """Return the provider that ``api`` names.

    Args:
        api: API section of a chat kind.
        endpoint: URL, or one of ``api.models``; ``None`` means the provider's default.
        settings: Chat settings; ``None`` derives them from ``api.request``.
        base_dir: Base of relative paths of local models; ``None`` means the working folder.
        mock_url: Server that answers instead of the provider, in OpenAI's form.
    """
    settings = settings or ChatSettings(
        provider=api.kind, **fields_of(api.request, "unsupported", "separate_thinking")
    )
    url = endpoint or ENDPOINTS.get(api.kind, ENDPOINTS["openai"])
    if mock_url is None and api.kind == "local":
        from tasks.providers.local_chat import LocalChat  # noqa: PLC0415 - starts processes

        return LocalChat(base_dir or Path(), settings)
    return _provider(
        api.kind, url, settings, mock_url, api_version=api.api_version, deployment=api.deployment
    )


def make_llm(
    config: LlmConfig,
    secrets: Secrets,
    *,
    key: str = "llm",
    mock_url: str | None = None,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
) -> LLM:
    """Return the judge's model; ``split_model`` returns its name at the provider.

    It drops settings that the model has no field for, because the default temperature of 0 is not
    the user's choice.

    Args:
        config: Model settings.
        secrets: Source of the API key, read at each request.
        key: Configuration key of ``config``, for errors.
        mock_url: Server that answers instead of the provider.
        max_response_bytes: Maximum decoded bytes of an answer.

    Raises:
        ConfigurationError: the provider has no default endpoint and ``config`` sets none.
    """
    kind, _ = split_model(config.model)
    endpoint, variable = config.endpoint or ENDPOINTS.get(kind), config.api_key_env
    if endpoint is None:
        rule = f"is required by models of `{kind}`"
        fix = "Add `endpoint:` with the URL of your resource."
        raise ConfigurationError.of(f"{key}.endpoint", rule, fix)

    def headers() -> Mapping[str, str]:
        if variable is None:
            return {}
        value = secrets.get(variable, key=f"{key}.api_key_env").get_secret_value()
        key_header = _KEY_HEADERS.get(kind)
        return (
            {key_header: value} if key_header is not None else {"Authorization": f"Bearer {value}"}
        )

    client = ClientSettings(
        timeout_s=config.timeout_seconds,
        n_connections=config.parallel_workers,
        max_response_bytes=max_response_bytes,
    )
    settings = ChatSettings(
        headers=headers, client=client, secret=variable, unsupported="drop", provider=kind
    )
    return _provider(kind, endpoint, settings, mock_url)


def split_model(name: str) -> tuple[str, str]:
    """Return the provider of a judge's model and the model's name there.

    A name without a known prefix belongs to an OpenAI-compatible server.
    """
    prefix, slash, rest = name.partition("/")
    if slash and rest and prefix in _MODEL_PREFIXES:
        return prefix, rest
    return "openai", name


def billing_provider(config: LlmConfig) -> tuple[str, str]:
    """Return the provider and the model name under which a price table lists a judge's model."""
    provider, model = split_model(config.model)
    return provider_of(provider, config.endpoint), model


def _provider(
    kind: str, url: str, settings: ChatSettings, mock_url: str | None, **azure: str | None
) -> Provider:
    """Return the provider of a kind, or its mock, which uses OpenAI's protocol."""
    if mock_url is None and kind == "anthropic":
        return AnthropicChat(url, settings)
    if mock_url is None and kind == "azure":
        return AzureChat(url, settings, **azure)
    dialect = _DIALECTS.get(kind) or openai_dialect(url)
    bare, mark, query = url.partition("?")
    bare = bare.rstrip("/")
    if mock_url is not None:
        if kind == "anthropic":  # some Anthropic settings have no field in OpenAI's form
            settings = replace(settings, unsupported="drop")
        sends_to = f"{mock_url.rstrip('/').removesuffix('/v1')}/v1"
        return OpenAIChat(url, settings, dialect=dialect, sends_to=sends_to)
    if kind == "gemini" and not bare.endswith(("/openai", "/openai/chat/completions")):
        bare = f"{bare}/openai"  # Gemini's compatible endpoint has its own path
    return OpenAIChat(f"{bare}{mark}{query}", settings, dialect=dialect)
