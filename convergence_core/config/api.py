"""``api``: the function, HTTP endpoint or chat model that is optimized."""

from typing import Literal, TypeAlias

from pydantic import Field, JsonValue

from convergence_core.config.base import EnvName, FunctionPath, Section, Text

ApiKind: TypeAlias = Literal["function", "http", "openai"]


class ModelEndpoint(Section):
    """One entry of ``api.models``."""

    endpoint: Text
    """URL that is called while the parameter `model` has this entry's name."""
    description: str = ""
    """For people."""


class AuthConfig(Section):
    """How requests prove who sends them. Secrets are named by environment variable only."""

    type: Literal["none", "bearer", "api_key", "basic"] = "none"
    """`bearer`: `Authorization: Bearer …`; `api_key`: the header `header_name`; `basic`: user name
    and password."""
    token_env: EnvName | None = None
    """Environment variable that holds the token or key; needed by `bearer` and `api_key`."""
    header_name: str = Field(default="x-api-key", pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
    """Header that carries the key of `api_key`. The original's `api_key_header` is read too."""
    username: Text | None = None
    """User name of `basic`."""
    password_env: EnvName | None = None
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

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    """HTTP method (kind `http`)."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Further headers (kinds `http` and `openai`). A value may read the environment:
    `${ENV_NAME}`. Secrets written out are refused."""
    timeout_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """Longest duration of one call, in seconds."""
    body: JsonValue = None
    """JSON template of the body (kind `http`). `{name}` stands for a parameter, `{input}` or
    `{input.field}` for the test case; a string that is exactly one placeholder keeps the value's
    JSON type. Absent: the case's input overlaid by the parameters."""
    query: dict[str, str] = Field(default_factory=dict)
    """Query parameters with the same placeholders (kinds `http` and `openai`)."""
    messages: list[MessageTemplate] | None = Field(default=None, min_length=1)
    """Chat messages (kind `openai`). Absent: a system message from the parameter `system` or the
    only text parameter, if there is one, then the case's input as the user's message."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of every chat request (kind `openai`), e.g. `response_format`, with the same
    placeholders."""


class ResponseConfig(Section):
    """Where the parts of an answer are (kind `http`); paths are dotted, `[0]` takes an element.

    A function may return a mapping of `result`, `success`, `error`, `cost_usd`, `tokens_in` and
    `tokens_out`; chat endpoints have a form of their own.
    """

    success_field: Text = "success"
    """A value of `false` here is a failed answer; a missing field is no failure."""
    result_field: Text = "result"
    """The result. Written out, it must be in the answer; left to its default, an answer without
    it is a result as a whole."""
    result_required: bool = False
    """Whether an answer without `result_field` is a failure. Default: true when `result_field` is
    written."""
    error_field: Text = "error"
    """A message of the endpoint that is kept with a failed answer."""
    cost_field: Text | None = None
    """US dollars that this call cost, as the endpoint says it. Absent: the cost is unknown."""
    tokens_in_field: Text | None = None
    """Number of prompt tokens. Absent: unknown."""
    tokens_out_field: Text | None = None
    """Number of completion tokens. Absent: unknown."""


class ApiConfig(Section):
    """What is optimized."""

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")
    """Name of the optimized system: 1 to 64 letters, digits, dots, dashes and underscores. Runs
    of one name belong together."""
    description: str = ""
    """For people; appears in the report."""
    kind: ApiKind
    """How it is called. Default: `function` when `function` is written, `openai` for a plain
    endpoint that ends in `/v1` or `/chat/completions`, else `http`."""
    endpoint: Text | None = None
    """URL (kinds `http` and `openai`); either this or `models`."""
    models: dict[str, ModelEndpoint] = Field(default_factory=dict)
    """Several endpoints; the categorical parameter `model` chooses among their names."""
    function: FunctionPath | None = None
    """Python function (kind `function`): `module:name` or `path/to/file.py:name`, the path
    relative to the configuration file."""
    workers: Literal["threads", "processes"] = "threads"
    """Where the function runs (kind `function`): `processes` for functions that keep a processor
    busy, `threads` for those that wait."""
    auth: AuthConfig = Field(default_factory=AuthConfig)
    request: RequestConfig = Field(default_factory=RequestConfig)
    response: ResponseConfig = Field(default_factory=ResponseConfig)
