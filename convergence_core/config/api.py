"""``api``: the function, HTTP endpoint or chat model to optimize."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from convergence_core.config.base import EnvName, FunctionPath, PluginName, Readers, Section, Text

ApiKind: TypeAlias = Literal[
    "function",
    "http",
    "openai",
    "azure",
    "groq",
    "gemini",
    "anthropic",
    "local",
    "agno",
    "plugin",
    "browserbase",
]
CHAT_KINDS: frozenset[ApiKind] = frozenset(
    {"openai", "azure", "groq", "gemini", "anthropic", "local"}
)
"""Kinds of target that are chat models."""
BODILESS = ("GET", "DELETE")
"""Methods without a body unless the configuration sets one."""
HOSTED_KINDS: frozenset[ApiKind] = frozenset(
    {"groq", "gemini", "anthropic", "local", "agno", "browserbase"}
)
"""Kinds of target that need no endpoint: they have a default, or none at all."""
URLLESS_KINDS: frozenset[ApiKind] = frozenset({"function", "local", "plugin"})
"""Kinds of target that read neither `endpoint` nor `models`."""
_CHAT_WIRE = ("openai", "azure", "groq", "gemini", "anthropic")
_WIRE = Readers(("http", *_CHAT_WIRE))
_CONNECTING = Readers((*_WIRE.kinds, "browserbase"))
_URLS = Readers((*_CONNECTING.kinds, "agno"))
_KEYED = Readers((*_URLS.kinds, "plugin"))
_CHATS = Readers((*_CHAT_WIRE, "local"))
_PLUGINS, _AZURE = Readers(("plugin",)), Readers(("azure",))

KEY_HEADERS = {
    "azure": "api-key",
    "gemini": "x-goog-api-key",
    "anthropic": "x-api-key",
    "browserbase": "x-bb-api-key",
}
"""Key header of each kind with a provider-specific form."""


class ModelEndpoint(Section):
    """Entry of ``api.models``."""

    endpoint: Text
    """URL for this value of `model`."""


class AuthConfig(Section):
    """Authentication of requests; secrets come from environment variables only."""

    type: Annotated[Literal["none", "bearer", "api_key", "basic"], _KEYED] = "none"
    """`bearer`: `Authorization: Bearer …`; `api_key`: the header `header_name`; `basic`: user
    and password. With `token_env`, chat kinds use their provider's form."""
    token_env: Annotated[EnvName | None, _KEYED] = None
    """Environment variable with the token or key."""
    header_name: Annotated[str, _CONNECTING] = Field(
        default="x-api-key", pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
    )
    """Header of `api_key`. `azure`, `gemini` and `browserbase` have their own."""
    username: Annotated[Text | None, _WIRE] = None
    """User name of `basic`."""
    password_env: Annotated[EnvName | None, _WIRE] = None
    """Environment variable with the password of `basic`."""


class MessageTemplate(Section):
    """Chat message; `{name}` and `{input.field}` in its content are filled in."""

    role: Literal["system", "developer", "user", "assistant"]
    """Message role."""
    content: str
    """Text with placeholders."""


class RequestConfig(Section):
    """Requests to send."""

    method: Annotated[Literal["GET", "POST", "PUT", "PATCH", "DELETE"], Readers(("http",))] = (
        "POST"
    )
    """HTTP method of `http`."""
    headers: Annotated[dict[str, str], _WIRE] = Field(default_factory=dict)
    """Extra headers; `${ENV_NAME}` reads the environment. Literal secrets are rejected."""
    timeout_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """Time limit of a call, in seconds."""
    max_response_bytes: Annotated[int, _URLS] = Field(
        default=10_000_000, ge=1_000, le=1_000_000_000
    )
    """Size limit of an answer, after decompression; a larger one counts as missing.
    `browserbase`: limit of all pages in a session; more scores 0."""
    stream: Annotated[bool, Readers(_CHAT_WIRE)] = False
    """Whether to stream answers, which measures the time to the first token (chat kinds)."""
    unsupported: Annotated[Literal["refuse", "drop"], Readers((*_CHAT_WIRE, "local"))] = "refuse"
    """For settings that a model does not take: `refuse` the run, or `drop` the setting and
    record why (chat kinds)."""
    separate_thinking: Annotated[bool, _CHATS] = True
    """Whether to store leading `<think>…</think>` apart, neither scored nor delivered (chat
    kinds)."""
    body: Annotated[JsonValue, Readers(("http", "browserbase"))] = None
    """JSON body of `http`, or session of `browserbase`. `{name}` inserts a parameter,
    `{input}` or `{input.field}` the test case; a lone placeholder keeps its JSON type. Default:
    input fields and parameters together."""
    query: Annotated[dict[str, str], _WIRE] = Field(default_factory=dict)
    """Query parameters, with the same placeholders."""
    messages: Annotated[list[MessageTemplate] | None, _CHATS] = Field(default=None, min_length=1)
    """Chat messages. Default: a system message from `system` or the only text parameter, then the
    input as user message."""
    options: Annotated[dict[str, JsonValue], _CHATS] = Field(default_factory=dict)
    """Extra fields of chat requests, such as `response_format`, with placeholders."""


class ResponseConfig(Section):
    """Dotted paths to the parts of an answer (`http`). `success: false` is a failure."""

    result_field: Text | None = None
    """The result. Default: the field `result`, else the whole answer."""
    cost_field: Text | None = None
    """Cost of the call, in USD. Default: unknown."""


class AgnoConfig(Section):
    """Limits of an agent run (`agno`)."""

    max_model_calls: int = Field(default=20, ge=1, le=1000)
    """Maximum model calls per run; an agent that needs more scores 0."""
    allow_writes: bool = False
    """Whether tools that write (send, delete, create …) run; else the agent sees what would
    happen."""
    writing_tools: list[Text] = Field(default_factory=list)
    """Extra tools that write; `*` matches any letters."""
    secrets: list[EnvName] = Field(default_factory=list)
    """Environment variables that `context.secret(NAME)` may read; their values are never
    stored."""


class ApiConfig(Section):
    """System to optimize."""

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")
    """Name of the system: 1 to 64 letters, digits, dots, dashes and underscores. Runs of one
    name belong together."""
    description: str = ""
    """Purpose of the system; for reports, judges and writers."""
    kind: ApiKind
    """Kind of target. Chat kinds are `openai` (and compatible servers), `azure`, `groq`,
    `gemini`, `anthropic` and `local`. Default: `function` or `plugin` if that
    key is set, `openai` if the endpoint ends in `/v1` or `/chat/completions`, else `http`."""
    endpoint: Annotated[Text | None, _URLS] = None
    """URL; hosted kinds have a default. `agno` takes it from the model's name (`openai/` by
    default, `groq/`, `gemini/`, `anthropic/`)."""
    models: Annotated[dict[str, ModelEndpoint], _WIRE] = Field(default_factory=dict)
    """Several endpoints; the parameter `model` chooses among their names."""
    api_version: Annotated[str | None, _AZURE] = Field(
        default=None,
        pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(-preview)?$",
    )
    """API version of `azure`. Default: 2024-10-21."""
    deployment: Annotated[str | None, _AZURE] = Field(
        default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$"
    )
    """Deployment of `azure`. Default: the model's name."""
    function: Annotated[FunctionPath | None, Readers(("function", "agno", "browserbase"))] = None
    """Python function, browser script (`browserbase`) or factory (`agno`): `module:name` or
    `file.py:name`."""
    plugin: Annotated[PluginName | None, _PLUGINS] = None
    """Entry point of the group `convergence.targets`."""
    plugin_options: Annotated[dict[str, JsonValue], _PLUGINS] = Field(default_factory=dict)
    """Options of the plugin."""
    auth: AuthConfig = Field(default_factory=AuthConfig)
    request: RequestConfig = Field(default_factory=RequestConfig)
    response: Annotated[ResponseConfig, Readers(("http",))] = Field(default_factory=ResponseConfig)
    agent: Annotated[AgnoConfig, Readers(("agno",))] = Field(default_factory=AgnoConfig)
