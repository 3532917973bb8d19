"""A recommended configuration in the forms of other tools."""

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
    """What reads it."""

    ENV = "env"
    PROMPTFOO = "promptfoo"


_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+-]+")
_FILLED = re.compile(r"\$\{[^}:]*(?::-[^}]*)?\}")
"""What python-dotenv takes for a variable."""
_OUTSIDE_SETTINGS = ("model", "messages", "stream", "stream_options")
_HOSTED = ("openai", "azure", "groq", "gemini")
"""Providers whose chat models promptfoo can ask."""
_KEY = "--format"


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """What is written."""

    system: str
    note: str
    """One line that says which run recommends it, and how sure that is."""
    params: Params
    request: Mapping[str, Any] | None = None
    """As ``ChatTarget.request`` gives it, with ``{{field}}`` where a case's fields go; ``None`` if
    it is no chat model."""
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
        lines = [
            f"{name}={_quoted(name, value)}\n" for name, value in _variables(winner.params).items()
        ]
        return f"# {winner.note}\n" + "".join(lines)
    made = _promptfoo(winner, _body(winner))
    return f"# {winner.note}\n{yaml_text(made)}"


def _body(winner: Winner) -> dict[str, Any]:
    """Return the request in the form of OpenAI's chat.

    Raises:
        ConfigurationError: there is none.
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
    """Return parameters by names that shells take.

    Raises:
        ConfigurationError: two of them have the same.
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
    """Return a value of a ``.env`` file, as a shell and python-dotenv read it back.

    Both take what single quotes hold, but python-dotenv knows escapes there. In double quotes they
    know the same escapes only without ``$`` and backquotes. It fills in ``${NAME}`` in any quotes.

    Raises:
        ConfigurationError: no form is read alike by both.
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
