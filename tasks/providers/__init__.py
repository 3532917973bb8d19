"""Providers of chat models: OpenAI, Azure OpenAI, Groq, Gemini, and whatever is compatible.

``make_chat`` makes the one that a configuration's ``api`` names, ``make_llm`` the one of a judge.
"""

from collections.abc import Callable, Mapping
from typing import Unpack

from convergence_core.budget.prices import provider_of
from convergence_core.config import ApiConfig
from convergence_core.config.evaluation import LlmConfig
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.ports import LLM
from tasks.providers.answers import ChatCompletion
from tasks.providers.chat import ChatEndpoint, ChatSettings, Provider, check_refused
from tasks.providers.fields import REQUEST_FIELDS, Dialect, Mapped, openai_dialect
from tasks.providers.gemini import GeminiChat
from tasks.providers.openai_chat import AzureChat, OpenAIChat
from tasks.secrets.redaction import Secrets

__all__ = [
    "ENDPOINTS",
    "REQUEST_FIELDS",
    "AzureChat",
    "ChatCompletion",
    "ChatEndpoint",
    "ChatSettings",
    "GeminiChat",
    "Mapped",
    "OpenAIChat",
    "Provider",
    "check_refused",
    "dialect_of",
    "make_chat",
    "make_llm",
    "seller_of",
    "split_model",
]

ENDPOINTS: Mapping[str, str] = {
    "openai": "https://api.openai.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
}
"""Where a provider is asked when no endpoint is written."""

_MODEL_PREFIXES = ("openai", "azure", "groq", "gemini")


def make_chat(
    api: ApiConfig,
    endpoint: str | None = None,
    *,
    mock_url: str | None = None,
    **settings: Unpack[ChatSettings],
) -> Provider:
    """Return the provider that ``api`` names.

    Args:
        api: of a chat kind.
        endpoint: its URL, or one of ``api.models``; ``None``: the provider's own.
        mock_url: server that answers in the provider's place, in OpenAI's form.
        settings: see ``ChatSettings``.
    """
    url = endpoint or ENDPOINTS.get(api.kind, ENDPOINTS["openai"])
    settings = {"provider": api.kind, "unsupported": api.request.unsupported, **settings}
    dialect = dialect_of(api, url)
    if mock_url is not None:
        asked = "gemini" if dialect == "gemini_native" else dialect
        return OpenAIChat(url, dialect=asked, sends_to=_mock_base(mock_url), **settings)
    if dialect == "azure":
        return AzureChat(url, api_version=api.api_version, deployment=api.deployment, **settings)
    if dialect == "gemini_native":
        return GeminiChat(url, **settings)
    return OpenAIChat(_compatible(api.kind, url), dialect=dialect, **settings)


def dialect_of(api: ApiConfig, endpoint: str | None) -> Dialect:
    """Return which fields requests have at an endpoint."""
    if api.kind == "gemini":
        return "gemini_native" if api.protocol == "native" else "gemini"
    if api.kind == "azure":
        return "azure"
    if api.kind == "groq":
        return "groq"
    return openai_dialect(endpoint or ENDPOINTS["openai"])


def make_llm(
    config: LlmConfig,
    secrets: Secrets,
    *,
    key: str = "llm",
    mock_url: str | None = None,
) -> LLM:
    """Return the model that judges; ``split_model`` tells what it is called there.

    A setting that the model has no field for is left out: a temperature of 0 is the default
    here, which no one chose.

    Args:
        config: of the model.
        secrets: where its key is read, when it is used.
        key: configuration key of ``config``, for errors.
        mock_url: server that answers in the provider's place.

    Raises:
        ConfigurationError: no endpoint is known.
    """
    kind, _ = split_model(config.model)
    endpoint = config.endpoint or ENDPOINTS.get(kind)
    if endpoint is None:
        rule = f"is required by models of `{kind}`"
        fix = "Add `endpoint:` with the URL of your resource."
        raise ConfigurationError([Problem(key=f"{key}.endpoint", rule=rule, value="", fix=fix)])
    settings: ChatSettings = {
        "headers": _key_headers(kind, config.api_key_env, secrets, f"{key}.api_key_env"),
        "connection": ChatEndpoint(
            timeout_s=config.timeout_seconds,
            n_connections=config.parallel_workers,
            max_response_bytes=config.max_response_bytes,
        ),
        "secret": config.api_key_env,
        "unsupported": "drop",
        "provider": kind,
    }
    dialects: dict[str, Dialect] = {"azure": "azure", "groq": "groq", "gemini": "gemini"}
    dialect = dialects.get(kind) or openai_dialect(endpoint)
    if mock_url is not None:
        return OpenAIChat(endpoint, dialect=dialect, sends_to=_mock_base(mock_url), **settings)
    if kind == "azure":
        return AzureChat(endpoint, **settings)
    return OpenAIChat(_compatible(kind, endpoint), dialect=dialect, **settings)


def split_model(name: str) -> tuple[str, str]:
    """Return the provider that a judge's model names, and what the model is called there.

    A name without one of the known prefixes is that of an OpenAI-compatible server.
    """
    prefix, slash, rest = name.partition("/")
    if slash and rest and prefix in _MODEL_PREFIXES:
        return prefix, rest
    return "openai", name


def billing_provider(config: LlmConfig) -> tuple[str, str]:
    """Return under which provider and name a table of prices lists the model of a judge."""
    provider, model = split_model(config.model)
    return provider_of(provider, config.endpoint), model


def _key_headers(
    kind: str, variable: str | None, secrets: Secrets, key: str
) -> Callable[[], Mapping[str, str]]:
    def headers() -> Mapping[str, str]:
        if variable is None:
            return {}
        value = secrets.get(variable, key=key).get_secret_value()
        return {"api-key": value} if kind == "azure" else {"Authorization": f"Bearer {value}"}

    return headers


def _compatible(kind: str, url: str) -> str:
    """Return where a provider speaks OpenAI's protocol; for Gemini that is a folder of its own."""
    bare = url.rstrip("/")
    if kind != "gemini" or bare.endswith(("/openai", "/openai/chat/completions")):
        return bare
    return f"{bare}/openai"


def _mock_base(url: str) -> str:
    bare = url.rstrip("/")
    return bare if bare.endswith("/v1") else f"{bare}/v1"
