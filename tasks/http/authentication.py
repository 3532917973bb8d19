"""Authentication headers, whose secrets are read at each request."""

import base64
from collections.abc import Callable
from functools import partial

from pydantic import SecretStr

from convergence_core.config import ApiConfig, Configuration
from convergence_core.config.evaluation_rules import check_judges
from convergence_core.errors import run_checks
from tasks.secrets.redaction import Secrets, journal_url


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
            secret = secrets.get(auth.password_env, key="api.auth.password_env")
            password = secret.get_secret_value()
        pair = f"{auth.username or ''}:{password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    token = secrets.get(auth.token_env or "", key="api.auth.token_env")
    if auth.type == "bearer":
        return {"Authorization": f"Bearer {token.get_secret_value()}"}
    return {auth.header_name: token.get_secret_value()}


def token_of(api: ApiConfig, secrets: Secrets) -> str | None:
    """Return the key in the variable ``api.auth.token_env``; ``None`` if none is configured.

    Raises:
        ConfigurationError: the variable is not set.
    """
    if api.auth.type == "none" or api.auth.token_env is None:
        return None
    return secrets.get(api.auth.token_env, key="api.auth.token_env").get_secret_value()


def request_headers(api: ApiConfig, secrets: Secrets) -> dict[str, str]:
    """Return all headers of a request, with secrets and ``${NAME}`` expanded.

    Raises:
        ConfigurationError: a variable is not set.
    """
    expanded = {
        name: _expanded(name, text, secrets).get_secret_value()
        for name, text in api.request.headers.items()
    }
    return {**expanded, **auth_headers(api, secrets)}


def _expanded(name: str, text: str, secrets: Secrets) -> SecretStr:
    return secrets.expand(text, key=f"api.request.headers.{name}")


def check_environment(configuration: Configuration, secrets: Secrets | None = None) -> None:
    """Check a run's variables and judge models before any paid call.

    Raises:
        ConfigurationError: names every unset variable, and every metric without a judge model.
    """
    api, secrets = configuration.api, secrets or Secrets()
    needed: list[Callable[[], object]] = [
        partial(_expanded, name, text, secrets) for name, text in api.request.headers.items()
    ]
    needed.append(partial(auth_headers, api, secrets))
    needed += [partial(secrets.get, name, key="api.agent.secrets") for name in api.agent.secrets]
    for variable, key in _judge_keys(configuration).items():
        needed.append(partial(secrets.get, variable, key=key))
    needed.append(partial(check_judges, configuration))
    needed.append(partial(journal_url, configuration, secrets))
    run_checks(needed)


def _judge_keys(configuration: Configuration) -> dict[str, str]:
    """Return the variables of judges' keys, each with the configuration key that names it."""
    keys: dict[str, str] = {}
    for name, metric in configuration.evaluation.judges.items():
        llm = metric.llm or configuration.llm  # the key of the target's own model is `api.auth`'s
        key = "llm" if metric.llm is None else f"evaluation.metrics.{name}.llm"
        if llm is not None and llm.api_key_env is not None:
            keys.setdefault(llm.api_key_env, f"{key}.api_key_env")
    return keys
