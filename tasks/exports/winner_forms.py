"""Recommended configuration in the formats of other tools."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from convergence_core.config.source import yaml_text
from convergence_core.errors import ConfigurationError
from convergence_core.records import Case, Json, Params
from tasks.json_values import as_text


class WinnerForm(StrEnum):
    """Format of a recommended configuration."""

    ENV = "env"
    PROMPTFOO = "promptfoo"


_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+-]+")
_FILLED = re.compile(r"\$\{[^}:]*(?::-[^}]*)?\}")
"""Variable syntax of python-dotenv."""
_OUTSIDE_SETTINGS = ("model", "messages", "stream", "stream_options")
_HOSTED = ("openai", "azure", "groq", "gemini")
"""Providers whose chat models promptfoo supports."""
_KEY = "--format"


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Recommended configuration of a system."""

    system: str
    note: str
    """One line with the run that recommends it and the certainty."""
    params: Params
    request: Mapping[str, Any] | None = None
    """Request from ``ChatTarget.request``, with ``{{field}}`` for a case's fields; ``None``
    without a chat model.
    """
    key_env: str | None = None
    """Environment variable of the key."""


def placeholder_case(cases: Sequence[Case]) -> Case:
    """Return a case whose fields are their names in double braces, as in templates."""
    shape: Json = cases[0].input if cases else ""
    case_input: Json = "{{input}}"
    if isinstance(shape, dict):
        case_input = {name: f"{{{{{name}}}}}" for name in shape}
    elif isinstance(shape, list):
        case_input = [{"role": "user", "content": "{{input}}"}]
    return Case(case_id="placeholder", input=case_input)


def winner_text(winner: Winner, form: WinnerForm) -> str:
    """Return the text of the file.

    Raises:
        ConfigurationError: the system cannot be written in this form; the message has the reason.
    """
    if form is WinnerForm.ENV:
        lines = [
            f"{name}={_quoted(name, value)}\n" for name, value in _variables(winner.params).items()
        ]
        return f"# {winner.note}\n" + "".join(lines)
    made = _promptfoo(winner, _body(winner))
    return f"# {winner.note}\n{yaml_text(made)}"


def _body(winner: Winner) -> dict[str, Any]:
    """Return the request in OpenAI's chat form.

    Raises:
        ConfigurationError: there is no such request.
    """
    request, rule = winner.request, None
    if request is None:
        rule = "needs a chat kind as target"
    elif "messages" not in request["body"] or request["provider"] == "anthropic":
        rule = "needs a target that speaks OpenAI's chat"
    elif request["provider"] not in _HOSTED:
        rule = "needs a hosted model, but the target runs on this machine"
    if request is None or rule is not None:
        fix = "Use `--format env`, which writes its parameters."
        raise ConfigurationError.of(_KEY, str(rule), fix, value=WinnerForm.PROMPTFOO)
    return {"model": request["model"], **request["body"]}


# -- variables


def _variables(params: Params) -> dict[str, str]:
    """Return the parameters by names that shells accept.

    Raises:
        ConfigurationError: two parameters have the same name there.
    """
    variables: dict[str, str] = {}
    for name, value in params.items():
        variable = re.sub(r"\W", "_", name, flags=re.ASCII).upper()
        variable = f"_{variable}" if variable[:1].isdigit() else variable
        if variable in variables:
            rule = f"needs names that differ in more than case and punctuation, but two are {variable}"
            fix = "Rename one of the parameters, or read `best_config.json`."
            raise ConfigurationError.of("search_space.parameters", rule, fix, value=name)
        variables[variable] = as_text(value)
    return variables


def _quoted(name: str, text: str) -> str:
    """Quote a value of a ``.env`` file so that shells and python-dotenv read it alike.

    Both read single quotes literally, except that python-dotenv has escapes there. In double
    quotes they share escapes only without ``$`` and backquotes. python-dotenv expands ``${NAME}``
    in any quotes.

    Raises:
        ConfigurationError: both read no form alike.
    """
    if _PLAIN.fullmatch(text):
        return text
    if "\r" not in text and not _FILLED.search(text):
        if "'" not in text and "\\" not in text:
            return f"'{text}'"
        if not re.search(r"[$`]", text):
            escaped = re.sub(r'([\\"])', r"\\\1", text)
            return f'"{escaped}"'
        if "'" not in text and not re.search(r"\\\\|\\$", text):
            return f"'{text}'"
    raise ConfigurationError.of(
        _KEY,
        "needs values that shells and python-dotenv read alike, so without carriage returns, without "
        "`${…}`, and without `$` or backquotes beside an apostrophe",
        "Read `best_config.json`, which holds all parameters.",
        value=name,
    )


# -- requests


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _OUTSIDE_SETTINGS}


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
