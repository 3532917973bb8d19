"""Headers that say who sends a request; secrets are read when the request is made."""

import base64
from collections.abc import Mapping

from convergence_core.config import ApiConfig, Configuration
from convergence_core.errors import ConfigurationError, Problem
from tasks.redaction import ENV_REFERENCE, Secrets


def auth_headers(api: ApiConfig, secrets: Secrets) -> dict[str, str]:
    """Return the headers of ``api.auth``.

    Raises:
        ConfigurationError: a variable it names is not set.
    """
    auth = api.auth
    if auth.type == "none":
        return {}
    if auth.type == "basic":
        password = ""
        if auth.password_env is not None:
            password = secrets.get(auth.password_env, key="api.auth.password_env")
        pair = f"{auth.username or ''}:{password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    token = secrets.get(auth.token_env or "", key="api.auth.token_env")
    if auth.type == "bearer":
        return {"Authorization": f"Bearer {token}"}
    return {auth.header_name: token}


def request_headers(api: ApiConfig, secrets: Secrets) -> dict[str, str]:
    """Return all headers of a request, secrets and ``${NAME}`` filled in.

    Raises:
        ConfigurationError: a variable is not set.
    """
    return {**expanded(api.request.headers, secrets), **auth_headers(api, secrets)}


def expanded(headers: Mapping[str, str], secrets: Secrets) -> dict[str, str]:
    """Return headers with ``${NAME}`` replaced by the environment's values.

    Raises:
        ConfigurationError: a variable is not set.
    """
    return {
        name: secrets.expand(text, key=f"api.request.headers.{name}")
        for name, text in headers.items()
    }


def secret_name(api: ApiConfig) -> str | None:
    """Return the variable to look at when access is refused."""
    if api.auth.type == "basic":
        return api.auth.password_env
    if api.auth.type != "none":
        return api.auth.token_env
    named = [name for text in api.request.headers.values() for name in ENV_REFERENCE.findall(text)]
    return named[0] if named else None


def check_environment(configuration: Configuration, secrets: Secrets | None = None) -> None:
    """Check that all variables a run will need are set, before anything is paid.

    Raises:
        ConfigurationError: names every variable that is not.
    """
    api, secrets = configuration.api, secrets or Secrets()
    problems: list[Problem] = []
    for name, text in api.request.headers.items():
        try:
            expanded({name: text}, secrets)
        except ConfigurationError as error:
            problems += error.problems
    try:
        auth_headers(api, secrets)
    except ConfigurationError as error:
        problems += error.problems
    for variable, key in _judge_keys(configuration).items():
        try:
            secrets.get(variable, key=key)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)


def _judge_keys(configuration: Configuration) -> dict[str, str]:
    """Return the variables that judges' keys are in, each with the key that names it."""
    found: dict[str, str] = {}
    for name, metric in configuration.evaluation.metrics.items():
        if metric.type != "llm_judge":
            continue
        key = "llm" if metric.llm is None else f"evaluation.metrics.{name}.llm"
        llm = metric.llm or configuration.llm
        if llm is not None and llm.api_key_env is not None:
            found.setdefault(llm.api_key_env, f"{key}.api_key_env")
    return found
