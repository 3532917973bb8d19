"""``api``: the function, HTTP endpoint or chat model that is optimized."""

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
    "plugin_chat",
    "browserbase",
]
CHAT_KINDS: frozenset[ApiKind] = frozenset(
    {"openai", "azure", "groq", "gemini", "anthropic", "local", "plugin_chat"}
)
"""Kinds of target that are chat models."""
HOSTED_KINDS: frozenset[ApiKind] = frozenset(
    {"groq", "gemini", "anthropic", "local", "agno", "plugin_chat", "browserbase"}
)
"""Kinds of target of which no endpoint need be written: they have their own, or none at all."""
URLLESS_KINDS: frozenset[ApiKind] = frozenset({"function", "local", "plugin", "plugin_chat"})
"""Kinds of target that read neither `endpoint` nor `models`."""
_CHAT_WIRE = ("openai", "azure", "groq", "gemini", "anthropic")
_WIRE = Readers(("http", *_CHAT_WIRE))
_CONNECTING = Readers((*_WIRE.kinds, "browserbase"))
_URLS = Readers((*_CONNECTING.kinds, "agno"))
_KEYED = Readers((*_URLS.kinds, "plugin", "plugin_chat"))
_CHATS = Readers((*_CHAT_WIRE, "local", "plugin_chat"))
_PLUGINS, _AZURE = Readers(("plugin", "plugin_chat")), Readers(("azure",))

KEY_HEADERS = {
    "azure": "api-key",
    "gemini": "x-goog-api-key",
    "anthropic": "x-api-key",
    "browserbase": "x-bb-api-key",
}
"""Headers in which providers of their own form take keys."""


class ModelEndpoint(Section):
    """One entry of ``api.models``."""

    endpoint: Text
    """URL that is called while the parameter `model` has this entry's name."""


class AuthConfig(Section):
    """How requests prove who sends them. Secrets are named by environment variable only."""

    type: Annotated[Literal["none", "bearer", "api_key", "basic"], _KEYED] = "none"
    """`bearer`: `Authorization: Bearer …`; `api_key`: the header `header_name`; `basic`: user name
    and password. Default: with `token_env` and a chat kind, how that kind takes its keys: `api_key`
    for `azure`, `anthropic`, `browserbase` and for `gemini` with `protocol: native`, else `bearer`."""
    token_env: Annotated[EnvName | None, _KEYED] = None
    """Environment variable that holds the token or key; needed by `bearer` and `api_key`."""
    header_name: Annotated[str, _CONNECTING] = Field(
        default="x-api-key", pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
    )
    """Header that carries the key of `api_key`. Default for `azure`: `api-key`, for `anthropic`: `x-api-key`, for `gemini`:
    `x-goog-api-key`, for `browserbase`: `x-bb-api-key`."""
    username: Annotated[Text | None, _WIRE] = None
    """User name of `basic`."""
    password_env: Annotated[EnvName | None, _WIRE] = None
    """Environment variable that holds the password of `basic`."""


class MessageTemplate(Section):
    """One chat message; `{name}` and `{input.field}` in its content are filled in."""

    role: Literal["system", "developer", "user", "assistant"]
    """Who speaks."""
    content: str
    """Text with placeholders: `{name}` for a parameter, `{input}` or `{input.field}` for the
    test case."""


class RequestConfig(Section):
    """What is sent."""

    method: Annotated[Literal["GET", "POST", "PUT", "PATCH", "DELETE"], Readers(("http",))] = (
        "POST"
    )
    """HTTP method (kind `http`)."""
    headers: Annotated[dict[str, str], _WIRE] = Field(default_factory=dict)
    """Further headers (not kinds `function` and `browserbase`). A value may read the environment:
    `${ENV_NAME}`. Secrets written out are refused."""
    timeout_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """Longest duration of one call, from sending to the last byte, in seconds."""
    connect_seconds: Annotated[float, _CONNECTING] = Field(default=10.0, gt=0, le=3600)
    """Longest wait for a connection, in seconds (not kind `function`)."""
    first_byte_seconds: Annotated[float | None, _WIRE] = Field(default=None, gt=0, le=86_400)
    """Longest wait for the first byte of the answer, in seconds (not kinds `function` and `browserbase`). Absent: as
    long as the call may last."""
    max_response_bytes: Annotated[int, _URLS] = Field(
        default=10_000_000, ge=1_000, le=1_000_000_000
    )
    """Most bytes of an answer, after decompression (not kind `function`). A larger one is not read
    to its end; its evaluation is missing, and the same is not asked again. With kind `browserbase`: of
    all that the pages of a session load; a session that loads more ends, at reward 0."""
    stream: Annotated[bool, Readers(_CHAT_WIRE)] = False
    """Whether the answer is streamed, which measures the time to its first token (chat kinds)."""
    unsupported: Annotated[Literal["refuse", "drop"], Readers((*_CHAT_WIRE, "local"))] = "refuse"
    """What happens with a setting that the model or its provider has no field for (chat kinds):
    `refuse` it before any call, or `drop` it and record the reason."""
    separate_thinking: Annotated[bool, _CHATS] = True
    """Whether thinking that an answer begins with (`<think>…</think>` and its like) is kept apart: stored and
    shown, never scored or delivered (chat kinds). `false`: it stays part of the answer."""
    body: Annotated[JsonValue, Readers(("http", "browserbase"))] = None
    """JSON template of the body (kind `http`), or of the session that is asked for (kind `browserbase`). `{name}` stands for a parameter, `{input}` or
    `{input.field}` for the test case; a string that is exactly one placeholder keeps the value's
    JSON type. Absent: the case's input overlaid by the parameters (kind `http`)."""
    query: Annotated[dict[str, str], _WIRE] = Field(default_factory=dict)
    """Query parameters with the same placeholders (not kind `function`)."""
    messages: Annotated[list[MessageTemplate] | None, _CHATS] = Field(default=None, min_length=1)
    """Chat messages (chat kinds). Absent: a system message from the parameter `system` or the only
    text parameter, if there is one, then the case's input as the user's message."""
    options: Annotated[dict[str, JsonValue], _CHATS] = Field(default_factory=dict)
    """Further fields of every chat request (chat kinds), e.g. `response_format`, with the same
    placeholders."""


class ResponseConfig(Section):
    """Where the parts of an answer are (kind `http`); paths are dotted, `[0]` takes an element.

    A function may return a mapping of `result`, `success`, `error`, `cost_usd`, `tokens_in` and
    `tokens_out`; chat endpoints have a form of their own.
    """

    success_field: Text = "success"
    """A value of `false` here is a failed answer; a missing field is no failure."""
    result_field: Text | None = None
    """The result; an answer without it is a failure. Absent: `result`, where the answer has it, else the
    answer as a whole."""
    cost_field: Text | None = None
    """US dollars that this call cost, as the endpoint says it. Absent: the cost is unknown."""
    tokens_in_field: Text | None = None
    """Number of prompt tokens. Absent: unknown."""
    tokens_out_field: Text | None = None
    """Number of completion tokens. Absent: unknown."""


class AgnoConfig(Section):
    """What an agent may do in one run (kind `agno`)."""

    max_model_calls: int = Field(default=20, ge=1, le=1000)
    """Most calls of its models in one run; an agent that wants more is at fault, and worth 0."""
    allow_writes: bool = False
    """Whether tools that write (send, delete, create, reply …) are carried out. If not, the agent is told what
    would have been done."""
    writing_tools: list[Text] = Field(default_factory=list)
    """Names of further tools that write, `*` for any letters."""
    secrets: list[EnvName] = Field(default_factory=list)
    """Environment variables that the factory reads by `context.secret(NAME)`; their values are kept out of
    everything that is stored."""


class ApiConfig(Section):
    """What is optimized."""

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")
    """Name of the optimized system: 1 to 64 letters, digits, dots, dashes and underscores. Runs
    of one name belong together."""
    description: str = ""
    """For people; appears in the report."""
    kind: ApiKind
    """How it is called; `openai`, `azure`, `groq`, `gemini`, `anthropic`, `local` and `plugin_chat` are the chat kinds, `openai`
    also for any server that speaks OpenAI's protocol. `local` is a model that runs on this machine
    (extra `local`): `request.options.model`, or the parameter `model`, is `smollm2-135m-instruct`, a
    `.gguf` file, or a folder in Hugging Face's form, and `timeout_seconds` counts from where its batch
    begins. `agno` is an agent, a team or a workflow of Agno (extra `agno`), which `function` makes.
    `plugin` is what an installed package offers under the name `plugin`,
    `plugin_chat` a chat model that one offers. `browserbase` is a script in a browser session of
    Browserbase (extra `browserbase`). Default: `function` when
    `function` is written, `plugin` when `plugin` is,
    `openai` for a plain endpoint that ends in `/v1` or `/chat/completions`, else `http`."""
    endpoint: Annotated[Text | None, _URLS] = None
    """URL (not kinds `function`, `local`, `plugin` and `plugin_chat`); either this or `models`. Default for `groq`, `gemini`,
    `anthropic` and `browserbase`: the provider's own; for `agno`: that of the provider which the model's name begins with
    (`openai/`, which need not be written, `groq/`, `gemini/`, `anthropic/`)."""
    models: Annotated[dict[str, ModelEndpoint], _WIRE] = Field(default_factory=dict)
    """Several endpoints; the categorical parameter `model` chooses among their names."""
    protocol: Annotated[Literal["openai", "native"], Readers(("gemini",))] = "openai"
    """How `kind: gemini` is spoken to: as OpenAI's chat, below `/openai`, or in its own form."""
    api_version: Annotated[str | None, _AZURE] = Field(
        default=None,
        pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(-preview)?$",
    )
    """Version of the interface (kind `azure`), e.g. `2025-01-01-preview`. Absent: 2024-10-21."""
    deployment: Annotated[str | None, _AZURE] = Field(
        default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$"
    )
    """Name of the deployment (kind `azure`). Absent: the model's name."""
    function: Annotated[FunctionPath | None, Readers(("function", "agno", "browserbase"))] = None
    """Python function (kind `function`), script of a browser (kind `browserbase`), or what makes an agent (kind
    `agno`): `module:name` or `path/to/file.py:name`, the path relative to the configuration file."""
    workers: Annotated[Literal["threads", "processes"], Readers(("function",))] = "threads"
    """Where the function runs (kind `function`): `processes` for functions that keep a processor
    busy, `threads` for those that wait."""
    plugin: Annotated[PluginName | None, _PLUGINS] = None
    """Name of an entry point of the group `convergence.targets` (kind `plugin`) or `convergence.providers`
    (kind `plugin_chat`)."""
    plugin_options: Annotated[dict[str, JsonValue], _PLUGINS] = Field(default_factory=dict)
    """Options that the plugin reads (kinds `plugin` and `plugin_chat`)."""
    auth: AuthConfig = Field(default_factory=AuthConfig)
    request: RequestConfig = Field(default_factory=RequestConfig)
    response: Annotated[ResponseConfig, Readers(("http",))] = Field(default_factory=ResponseConfig)
    agent: Annotated[AgnoConfig, Readers(("agno",))] = Field(default_factory=AgnoConfig)
