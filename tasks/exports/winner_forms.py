"""A recommended configuration in the forms of other tools."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from convergence_core.errors import ConfigurationError
from convergence_core.records import Case, Json, Params
from tasks.json_values import as_text


class WinnerForm(StrEnum):
    """What reads it."""

    ENV = "env"
    CONFIGMAP = "configmap"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    LITELLM = "litellm"
    PROMPTFOO = "promptfoo"


CHAT_FORMS = frozenset(WinnerForm) - {WinnerForm.ENV, WinnerForm.CONFIGMAP}
"""Forms of a request, which chat kinds alone have."""
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+-]+")
_LITELLM_PREFIX = {"openai": "openai", "azure": "azure", "groq": "groq", "gemini": "gemini"}
_OWN_ENDPOINT = {"openai": "https://api.openai.com/v1"}
_SYSTEM = ("system", "developer")
_NATIVE = "anthropic"
"""Provider whose requests are in Anthropic's form already."""
_OF_ANTHROPIC = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop_sequences",
    "stream": "stream",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
}
"""Fields of OpenAI's chat → the same of Anthropic's messages."""
_OUTSIDE_SETTINGS = ("model", "messages", "stream", "stream_options")
_KEY = "--format"


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """What is written."""

    system: str
    note: str
    """One line that says which run recommends it, and how sure that is."""
    params: Params
    request: Mapping[str, Any] | None = None
    """As ``ChatTarget.request`` gives it, with ``{{field}}`` where a case's fields go; ``None``: it is
    no chat model."""
    key_env: str | None = None
    """Environment variable of the key."""


def placeholder_case(cases: Sequence[Case]) -> Case:
    """Return a case whose fields are their names in double braces, as templates of other tools write them."""
    shape: Json = cases[0].input if cases else ""
    case_input: Json = "{{input}}"
    if isinstance(shape, dict):
        case_input = {name: f"{{{{{name}}}}}" for name in shape}
    elif isinstance(shape, list):
        case_input = [{"role": "user", "content": "{{input}}"}]
    return Case(case_id="placeholder", input=case_input)


def winner_text(winner: Winner, form: WinnerForm) -> str:
    """Return the file's text.

    Raises:
        ConfigurationError: the system has no such form; the message says why.
    """
    if form is WinnerForm.ENV:
        return f"# {winner.note}\n" + "".join(
            f"{name}={_quoted(value)}\n" for name, value in _variables(winner.params).items()
        )
    if form is WinnerForm.CONFIGMAP:
        return _yaml(winner, _config_map(winner))
    body = _body(winner, form)
    match form:
        case WinnerForm.OPENAI:
            return _json(body)
        case WinnerForm.ANTHROPIC:
            return _json(body if _is_native(winner) else _anthropic(body))
        case WinnerForm.LITELLM:
            return _yaml(winner, {"model_list": [_litellm(winner, body)]})
        case WinnerForm.PROMPTFOO:
            return _yaml(winner, _promptfoo(winner, body))


def _is_native(winner: Winner) -> bool:
    """Whether the target's requests are in Anthropic's form already."""
    return winner.request is not None and winner.request["provider"] == _NATIVE


def _body(winner: Winner, form: WinnerForm) -> dict[str, Any]:
    """Return the request in the form of OpenAI's chat.

    Raises:
        ConfigurationError: there is none.
    """
    if winner.request is None:
        fix = "Use `--format env` or `--format configmap`, which write its parameters."
        raise ConfigurationError.of(_KEY, "needs a chat kind as target", fix, value=form)
    body = dict(winner.request["body"])
    if _is_native(winner):
        if form is WinnerForm.ANTHROPIC:
            return body
        fix = "Use `--format anthropic`, or `--format env`."
        raise ConfigurationError.of(
            _KEY,
            "needs a target that speaks OpenAI's chat, not Anthropic's messages",
            fix,
            value=form,
        )
    if "messages" not in body:
        fix = "Write `protocol: openai`, or use `--format env`."
        rule = "needs a target that speaks OpenAI's chat, not Gemini's own form"
        raise ConfigurationError.of(_KEY, rule, fix, value=form)
    if winner.request["provider"] not in _LITELLM_PREFIX and form is not WinnerForm.OPENAI:
        fix = "Use `--format openai`: `convergence serve --chat` answers such requests with that model."
        rule = "needs a hosted model, but the target runs on this machine"
        raise ConfigurationError.of(_KEY, rule, fix, value=form)
    body.setdefault("model", winner.request["model"])
    return body


# -- variables


def _variables(params: Params) -> dict[str, str]:
    """Return parameters by names that shells take.

    Raises:
        ConfigurationError: two of them have the same.
    """
    found: dict[str, str] = {}
    for name, value in params.items():
        variable = re.sub(r"\W", "_", name, flags=re.ASCII).upper()
        variable = f"_{variable}" if variable[:1].isdigit() else variable
        if variable in found:
            rule = f"needs names that differ in more than case and signs, but two are {variable}"
            fix = "Rename one of the parameters, or use `--format openai`."
            raise ConfigurationError.of("search_space.parameters", rule, fix, value=name)
        found[variable] = as_text(value)
    return found


def _quoted(text: str) -> str:
    """Return a value of a ``.env`` file: in single quotes nothing is expanded."""
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _config_map(winner: Winner) -> dict[str, Any]:
    name = re.sub(r"[^a-z0-9.-]+", "-", winner.system.lower()).strip("-.")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name or "convergence"},
        "data": _variables(winner.params),
    }


# -- requests


def _anthropic(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of Anthropic's messages.

    Raises:
        ConfigurationError: a setting has no place there, or one is missing that must be there.
    """
    made: dict[str, Any] = {"model": body["model"]}
    for name, value in body.items():
        if name in ("model", "messages", "stream_options"):
            continue
        if name not in _OF_ANTHROPIC:
            fix = "Leave it out of the configuration, or use `--format openai`."
            rule = f"has no place for the field `{name}`"
            raise ConfigurationError.of(_KEY, rule, fix, value="anthropic")
        made[_OF_ANTHROPIC[name]] = [value] if name == "stop" and isinstance(value, str) else value
    if "max_tokens" not in made:
        rule, fix = "needs a limit of the answer", "Add `max_tokens` to `api.request.options`."
        raise ConfigurationError.of(_KEY, rule, fix, value="anthropic")
    if made.get("temperature", 0) > 1:
        rule = "takes temperatures up to 1"
        raise ConfigurationError.of(_KEY, rule, "Use `--format openai`.", value="anthropic")
    system = [as_text(one["content"]) for one in body["messages"] if one["role"] in _SYSTEM]
    if system:
        made["system"] = "\n\n".join(system)
    made["messages"] = [dict(one) for one in body["messages"] if one["role"] not in _SYSTEM]
    return made


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _OUTSIDE_SETTINGS}


def _litellm(winner: Winner, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of LiteLLM's router; its messages are the caller's."""
    assert winner.request is not None  # noqa: S101 - there is a body
    provider, base_url = winner.request["provider"], winner.request["base_url"]
    params: dict[str, Any] = {"model": f"{_LITELLM_PREFIX[provider]}/{body['model']}"}
    if base_url != _OWN_ENDPOINT.get(provider):
        params["api_base"] = base_url
    if winner.key_env is not None:
        params["api_key"] = f"os.environ/{winner.key_env}"
    return {"model_name": winner.system, "litellm_params": params | _settings(body)}


def _promptfoo(winner: Winner, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return prompt and provider of a promptfoo configuration."""
    assert winner.request is not None  # noqa: S101 - there is a body
    is_azure = winner.request["provider"] == "azure"
    config: dict[str, Any] = {"apiBaseUrl": winner.request["base_url"]}
    if winner.key_env is not None:
        config["apiKeyEnvar"] = winner.key_env
    kind = "azure" if is_azure else "openai"
    return {
        "description": f"{winner.system}, as recommended",
        "prompts": [json.dumps(body["messages"], ensure_ascii=False)],
        "providers": [
            {
                "id": f"{kind}:chat:{body['model']}",
                "label": winner.system,
                "config": config | _settings(body),
            }
        ],
    }


# -- texts


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _yaml(winner: Winner, value: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=100)
    return f"# {winner.note}\n{text}"
