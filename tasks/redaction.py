"""Secrets: read from the environment when they are used, kept out of every text that is stored.

A configuration holds names of environment variables only. ``Secrets`` reads a value at the moment
a request is made; ``Redactor`` replaces values, and what looks like a key of somebody, in all
texts that go to the journal, the tables, the logs or a metric.
"""

import base64
import json
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping

from convergence_core.config import Configuration
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.records import Json

MASK = "[redacted]"
MIN_SECRET_LENGTH = 4
"""Shorter values are not replaced: they would be found in every text."""

ENV_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""``${NAME}`` in a header."""

# Each pattern names the marks that a text must hold to be worth searching: most texts hold none.
_PATTERNS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("sk-", "pk-", "rk-", "sk_", "rk_", "gsk_", "xai-", "r8_", "hf_", "pplx-"),
     re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_\-]{16,}|\b(?:gsk_|xai-|r8_|hf_|pplx-)[A-Za-z0-9_\-]{16,}")),
    (("AKIA", "ASIA"), re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    (("AIza", "ya29."), re.compile(r"\bAIza[A-Za-z0-9_\-]{35}|\bya29\.[A-Za-z0-9_\-]{20,}")),
    (("gh", "github_pat_", "glpat-", "xox"),
     re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}"
                r"|\bglpat-[A-Za-z0-9_\-]{16,}|\bxox[abeprs]-[A-Za-z0-9\-]{10,}")),
    (("eyJ",), re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*")),
    (("PRIVATE KEY",),
     re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)),
    (("earer ", "asic "), re.compile(r"(?i)\b(?:bearer|basic)\s+(?=[A-Za-z0-9+/_.~\-]{0,64}[0-9=])[A-Za-z0-9+/_.~\-]{12,}=*")),
    (("key", "Key", "KEY", "token", "Token", "TOKEN", "secret", "Secret", "SECRET", "passw", "Passw", "PASSW"),
     re.compile(r"(?i)((?:api[_-]?key|access[_-]?key|secret|token|password|passwd)[\"']?\s{0,4}[:=]\s{0,4}"
            r"[\"']?)(?=[^\s\"'&,;]{0,64}[0-9])[^\s\"'&,;]{12,}")),
    (("://",), re.compile(r"(?<=://)[^/\s:@\"']*:[^/\s@\"']+(?=@)")),
)  # fmt: skip


class Secrets:
    """Values of environment variables, read anew at each use."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def get(self, name: str, *, key: str) -> str:
        """Return the value of an environment variable.

        Args:
            name: the variable.
            key: configuration key that names it, for the error.

        Raises:
            ConfigurationError: the variable is not set, or empty.
        """
        value = self._environ.get(name, "").strip()
        if not value:
            raise ConfigurationError([_unset(name, key)])
        return value

    def find(self, name: str) -> str | None:
        """Return the value of an environment variable, ``None`` when it is not set."""
        return self._environ.get(name, "").strip() or None

    def expand(self, text: str, *, key: str) -> str:
        """Replace each ``${NAME}`` by the variable's value.

        Raises:
            ConfigurationError: a variable is not set.
        """
        return ENV_REFERENCE.sub(lambda match: self.get(match[1], key=key), text)


def _unset(name: str, key: str) -> Problem:
    return Problem(
        key=key,
        rule=f"needs the environment variable {name}, which is not set",
        value="",
        fix=f"Set it before you start, e.g. `export {name}=…`.",
    )


class Redactor:
    """Replaces secrets in texts. Callable: ``redact(text)``."""

    def __init__(
        self,
        names: Iterable[str] = (),
        *,
        secrets: Secrets | None = None,
        values: Iterable[str] = (),
    ) -> None:
        secrets = secrets or Secrets()
        found = [value for name in names if (value := secrets.find(name)) is not None]
        forms = {form for value in [*found, *values] for form in _forms(value)}
        # The longest first, so that a secret that contains another is replaced as a whole.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._exact = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    @classmethod
    def from_configuration(
        cls, configuration: Configuration, secrets: Secrets | None = None
    ) -> "Redactor":
        """Return the redactor of all variables that a configuration names."""
        secrets = secrets or Secrets()
        auth = configuration.api.auth
        password = secrets.find(auth.password_env) if auth.password_env else None
        pair = f"{auth.username or ''}:{password}".encode() if password else b""
        return cls(
            secret_names(configuration),
            secrets=secrets,
            values=[base64.b64encode(pair).decode()] if pair else [],
        )

    def __call__(self, text: str) -> str:
        """Return the text with every secret replaced."""
        if self._exact is not None:
            text = self._exact.sub(MASK, text)
        for marks, pattern in _PATTERNS:
            for mark in marks:
                if mark in text:
                    text = pattern.sub(_masked, text)
                    break
        return text


def redact_json(value: Json, redact: Callable[[str], str]) -> Json:
    """Return a JSON value with all its texts and keys redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_json(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact(key): redact_json(item, redact) for key, item in value.items()}
    return value


def secret_names(configuration: Configuration) -> tuple[str, ...]:
    """Return the environment variables that a configuration names, each once."""
    auth = configuration.api.auth
    found = [name for name in (auth.token_env, auth.password_env) if name]
    for text in configuration.api.request.headers.values():
        found += ENV_REFERENCE.findall(text)
    return tuple(dict.fromkeys(found))


def _masked(match: re.Match[str]) -> str:
    """Keep the name in front of a value (``api_key=``), replace the rest."""
    return (match[1] if match.re.groups else "") + MASK


def _forms(value: str) -> set[str]:
    """Return the ways a value may be written in a text, e.g. escaped in JSON or a URL."""
    if len(value) < MIN_SECRET_LENGTH:
        return set()
    forms = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        urllib.parse.quote(value, safe=""),
        urllib.parse.quote_plus(value),
        base64.b64encode(value.encode()).decode(),
        repr(value)[1:-1],
    }
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}
