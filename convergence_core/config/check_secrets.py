"""No secret is written in a configuration; each is named by its environment variable."""

from collections.abc import Iterator

from convergence_core.config.check_llm import llms_of
from convergence_core.config.models import Configuration
from convergence_core.config.problems import env_fix
from convergence_core.config.report import Report
from convergence_core.config.secrecy import (
    ENV_NAME,
    ENV_REFERENCE,
    HIDDEN,
    has_credentials,
    has_known_secret,
    is_env_name,
    is_only_references,
    is_secret_key,
)
from convergence_core.config.source import Path, texts_of


def check_secrets(configuration: Configuration, report: Report) -> None:
    """Refuse secrets written out, without ever showing them."""
    for place, name in _env_names(configuration):
        if not is_env_name(name):
            rule = "must be the name of an environment variable, not a secret"
            report.add(place, rule, env_fix(), value=HIDDEN)
    _check_headers(configuration, report)
    seen = {problem.key for problem in report.problems}
    for path, text in texts_of(configuration.model_dump(mode="json"), ()):
        if path[:3] == ("evaluation", "test_cases", "inline"):
            continue
        has_url = path[-1] != "endpoint" and has_credentials(text)  # endpoints have own rules
        if not has_url and not has_known_secret(text):
            continue
        rule = "must hold no URL with a user name or password" if has_url else _RULE
        before = len(report.problems)
        report.add(path, rule, _FIX, value=HIDDEN)
        if len(report.problems) > before and report.problems[-1].key in seen:
            report.problems.pop()


_RULE = "must not hold a secret"
_FIX = (
    "Put the secret into an environment variable and name it by `api.auth.token_env`, or write "
    "`${ENV_NAME}` in a header."
)


def _env_names(configuration: Configuration) -> Iterator[tuple[Path, str]]:
    """Yield each name of an environment variable, and where it stands."""
    auth, journal = configuration.api.auth, configuration.storage.journal
    found: list[tuple[Path, str | None]] = [
        (("api", "auth", "token_env"), auth.token_env),
        (("api", "auth", "password_env"), auth.password_env),
        (("storage", "journal"), journal[2:-1] if journal else None),
    ]
    found += [((*path, "api_key_env"), llm.api_key_env) for path, llm in llms_of(configuration)]
    return ((path, name) for path, name in found if name is not None)


def _check_headers(configuration: Configuration, report: Report) -> None:
    auth = configuration.api.auth
    for name, value in configuration.api.request.headers.items():
        path: Path = ("api", "request", "headers", name)
        for reference in ENV_REFERENCE.findall(value):
            if ENV_NAME.fullmatch(reference) is None or not is_env_name(reference):
                rule = "must hold names of environment variables between `${` and `}`"
                report.add(path, rule, "Write e.g. `${MY_TOKEN}`.", value=HIDDEN)
        if not _carries_secret(name, auth.header_name) and not has_known_secret(value):
            continue
        if not is_only_references(value):
            rule = "must not be a secret written out"
            report.add(path, rule, _HEADER_FIX, value=HIDDEN)


_HEADER_FIX = (
    "Use `api.auth` with `token_env`, or read the environment: `Bearer ${MY_TOKEN}` for a token, "
    "`${MY_KEY}` for a key."
)


def _carries_secret(name: str, auth_header: str) -> bool:
    return is_secret_key(name) or name.lower() == auth_header.lower()
