"""Secrets: read from the environment at use, redacted from stored texts.

A configuration holds names of environment variables only. ``Secrets`` reads a value when it builds
a request. ``Redactor`` replaces known values, and strings that look like keys, in all texts for
the call log, the tables, the logs or a metric. ``tasks.secrets.process_redaction`` applies it to
everything else that this process writes.

Only ``shortened`` cuts texts, and it redacts first: a cut through a secret would leave a piece
that no longer equals it. ``tasks.secrets.fragments`` finds pieces that other code left.
"""

import base64
import html
import json
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import SecretStr

from convergence_core.errors import ConfigurationError
from convergence_core.records import Json
from tasks.secrets.fragments import (
    LEAST_BASE64,
    LEAST_HEX,
    LEAST_PERCENT,
    LEAST_RUN,
    Escapes,
    Fragments,
    folded,
    merged,
)

if TYPE_CHECKING:
    from convergence_core.config import ApiConfig, Configuration

MASK = "[redacted]"
MIN_SECRET_LENGTH = 4
"""Minimum length of a replaced value: shorter values occur in every text."""
PLACEHOLDERS = frozenset({
    "empty", "none", "null", "nil", "undefined", "unused", "not-needed", "not-used", "no-auth",
    "test", "testing", "local", "localhost", "dummy", "fake", "foo", "placeholder", "example",
    "ollama", "lm-studio", "lmstudio", "llama.cpp", "vllm", "token", "token-abc123", "key", "secret",
    "api-key", "api_key", "apikey", "your-api-key", "no-key", "nokey", "no-key-required", "sk-no-key-required",
    "anything", "true", "false",
})  # fmt: skip
"""Values that people use instead of a key for local servers, in lower case: they are no secrets
and occur in answers.
"""
LEAST_TORN = 12
"""Minimum length for replacing pieces of a value: pieces of shorter values are common words."""
_MAX_NESTED = 2
"""Maximum depth of escaping that the redactor recognizes, e.g. JSON within JSON."""
_OF_BASE64 = "+/="
_MIN_PART_LENGTH = 10
"""Minimum length of a recognized part of a Base64 string: shorter parts occur by chance."""

ENV_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""``${NAME}`` in a header."""

_WORD = "(?:[A-Z]?[a-z]{1,13}|[A-Z]{1,13})"
_WORDS = re.compile(f"{_WORD}(?:[-_. ]{_WORD})*")

# Each pattern lists the marks that a matching text must contain: most texts contain none.
_PATTERNS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("sk-", "pk-", "rk-", "sk_", "rk_", "gsk_", "xai-", "r8_", "hf_", "pplx-"),
     re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_\-]{16,}|\b(?:gsk_|xai-|r8_|hf_|pplx-)[A-Za-z0-9_\-]{16,}")),
    (("AKIA", "ASIA"), re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    (("AIza", "ya29."), re.compile(r"\bAIza[A-Za-z0-9_\-]{35}|\bya29\.[A-Za-z0-9_\-]{20,}")),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox"),
     re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}"
                r"|\bglpat-[A-Za-z0-9_\-]{16,}|\bxox[abeprs]-[A-Za-z0-9\-]{10,}")),
    (("eyJ",), re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*")),
    (("PRIVATE KEY",),
     re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)),
    (("earer ", "asic "), re.compile(r"(?i)\b((?:bearer|basic)\s+)(?=[A-Za-z0-9+/_.~\-]{0,64}[0-9=])[A-Za-z0-9+/_.~\-]{12,}=*")),
    (("key", "Key", "KEY", "token", "Token", "TOKEN", "secret", "Secret", "SECRET", "passw", "Passw", "PASSW"),
     re.compile(r"(?i)((?:api[_-]?key|access[_-]?key|secret|token|password|passwd)[\"']?\s{0,4}[:=]\s{0,4}"
            r"[\"']?)(?=[^\s\"'&,;]{0,64}[0-9])[^\s\"'&,;]{12,}")),
    (("://",), re.compile(r"(?<=://)[^/\s:@\"']*:[^/\s@\"']+(?=@)")),
)  # fmt: skip


class _Closed:
    """Base class of objects with secrets, which pickling would leak to a cache or crash report."""

    def __reduce_ex__(self, protocol: Any, /) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds secrets and is not pickled. Pass the names of the "
            "environment variables, and read them where they are used."
        )


class Secret(_Closed, SecretStr):
    """Value that no text form reveals; call ``get_secret_value`` only where a request is built."""

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self


class Secrets(_Closed):
    """Values of environment variables, read at each use."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def get(self, name: str, *, key: str) -> SecretStr:
        """Return the value of an environment variable as a secret.

        Args:
            name: Name of the variable.
            key: Configuration key that names it, for the error.

        Raises:
            ConfigurationError: the variable is not set or empty.

        Example:
            >>> Secrets({"API_KEY": "x1"}).get("API_KEY", key="api.auth.token_env").get_secret_value()
            'x1'
        """
        secret = self.find(name)
        if secret is None:
            rule = f"needs the environment variable {name}, which is not set"
            fix = f"Set it before you start, e.g. `export {name}=…`."
            raise ConfigurationError.of(key, rule, fix)
        return secret

    def find(self, name: str) -> SecretStr | None:
        """Return the value of an environment variable as a secret; ``None`` if it is not set."""
        value = self._environ.get(name, "").strip()
        return Secret(value) if value else None

    def expand(self, text: str, *, key: str) -> SecretStr:
        """Replace each ``${NAME}`` in a string by the variable's value and return it as a secret.

        Raises:
            ConfigurationError: a variable is not set.
        """
        return Secret(
            ENV_REFERENCE.sub(lambda match: self.get(match[1], key=key).get_secret_value(), text)
        )


class Redactor(_Closed):
    """Redactor of secrets in texts.

    Example:
        >>> redact = Redactor(values=["s3cr3t-token"])
        >>> redact("Authorization: Bearer s3cr3t-token")
        'Authorization: Bearer [redacted]'
    """

    def __init__(
        self,
        names: Iterable[str] = (),
        *,
        secrets: Secrets | None = None,
        values: Iterable[str] = (),
    ) -> None:
        secrets = secrets or Secrets()
        known = {name: v.get_secret_value() for name in names if (v := secrets.find(name))}
        self._values = frozenset(
            value for value in [*known.values(), *values] if value.lower() not in PLACEHOLDERS
        )
        self._named = {name: value for name, value in known.items() if value in self._values}

    @classmethod
    def from_configuration(
        cls, configuration: "Configuration", secrets: Secrets | None = None
    ) -> "Redactor":
        """Return a redactor of all variables that a configuration names."""
        secrets = secrets or Secrets()
        return cls(
            secret_names(configuration),
            secrets=secrets,
            values=[
                *_basic_pair(configuration, secrets),
                *_journal_passwords(configuration, secrets),
            ],
        )

    @classmethod
    def of_journal(cls, configuration: "Configuration") -> "Redactor":
        """Return a redactor of the secrets in the URL of a shared call log."""
        name = journal_name(configuration)
        passwords = _journal_passwords(configuration, Secrets())
        return cls([] if name is None else [name], values=passwords)

    def joined(self, other: "Redactor") -> "Redactor":
        """Return a redactor of the values of both; this one if it already knows all of them."""
        if other._values <= self._values:
            return self
        joined = Redactor(values=self._values | other._values)
        joined._named = self._named | other._named
        return joined

    @cached_property
    def of_no_words(self) -> "Redactor":
        """Redactor of the values that do not consist of words, which other texts may contain."""
        return Redactor(values=[value for value in self._values if not _WORDS.fullmatch(value)])

    def variables(self, text: str) -> list[str]:
        """Return the environment variables whose values, or pieces of them, occur in a text."""
        return [
            name
            for name, value in self._named.items()
            if Redactor(values=[value]).without_values(text) != text
        ]

    def __call__(self, text: str) -> str:
        """Return the text with every secret, and every piece of one, replaced."""
        text = self.without_values(text)
        for pattern in _searched(text):
            text = pattern.sub(_masked, text)
        return text

    def without_values(self, text: str) -> str:
        """Return the text without known secrets; strings that only look like secrets stay."""
        if not self._forms or len(text) < MIN_SECRET_LENGTH:
            return text
        lower = folded(text)
        spans = self._spans(lower)
        if (plain := self._escapes.undone(lower)) is not None:
            spans += [(plain.raw(begin), plain.raw(end)) for begin, end in self._spans(plain.text)]
        if not spans:
            return text
        # A value may be part of an unknown key, and the rest would no longer look like a key.
        keys = [span for pattern in _searched(text) for span in _key_spans(pattern, text)]
        spans += [(a, b) for a, b in keys if any(a < end and begin < b for begin, end in spans)]
        kept, position = [], 0
        for begin, end in merged(spans):
            kept += [text[position:begin], MASK]
            position = end
        return "".join([*kept, text[position:]])

    def _spans(self, lower: str) -> list[tuple[int, int]]:
        """Return the spans of values, or of pieces of them, in a case-folded text."""
        spans = self._fragments.spans(lower)
        if any(form in lower for form in self._forms):
            spans += [match.span() for match in self._exact.finditer(lower)]
        return spans

    @cached_property
    def _escapes(self) -> Escapes:
        return Escapes(
            {*_OF_BASE64, *(character for value in self._values for character in value)}
        )

    @cached_property
    def _forms(self) -> list[str]:
        forms = {form for value in self._values for form in _forms(value)}
        # Longest first, so that a secret that contains another is replaced as a whole.
        return sorted(forms, key=lambda form: (-len(form), form))

    @cached_property
    def _exact(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._forms)))

    @cached_property
    def _fragments(self) -> Fragments:
        fragments: dict[int, set[str]] = {}
        for value in self._values:
            for part in _secret_parts(value):
                for least, forms in _spellings(part).items():
                    fragments.setdefault(least, set()).update(map(folded, forms))
        return Fragments({least: frozenset(forms) for least, forms in fragments.items()})


def shortened(text: str, limit: int, redact: Callable[[str], str]) -> str:
    """Redact a text and cut its middle, so that at most ``limit`` characters remain.

    Args:
        text: Complete text, never cut before.
        limit: Maximum characters, 50 or more.
        redact: Function that removes secrets from the whole text, e.g. a ``Redactor``.
    """
    clean = redact(text)
    if len(clean) <= limit:
        return clean
    gap = f"\n… {len(clean) - limit:,} characters left out …\n"
    head = max(0, (limit - len(gap)) // 3)
    tail = max(0, limit - len(gap) - head)
    return clean[:head] + gap + clean[len(clean) - tail :]


def one_line(text: str, limit: int, redact: Callable[[str], str]) -> str:
    """Redact a text and return its beginning as one line of at most ``limit`` characters."""
    words = " ".join(redact(text).split())
    return words if len(words) <= limit else words[: limit - 1] + "…"


def redact_json(value: Json, redact: Callable[[str], str]) -> Json:
    """Return a JSON value with all its strings and keys redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_json(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact(key): redact_json(item, redact) for key, item in value.items()}
    return value


def secret_names(configuration: "Configuration") -> tuple[str, ...]:
    """Return the distinct environment variables that a configuration names."""
    # SQL queries store texts too, without a configuration.

    names = [*target_secret_names(configuration), journal_name(configuration)]
    names += [llm.api_key_env for _, llm in configuration.llms]
    return tuple(dict.fromkeys(name for name in names if name))


def target_secret_names(configuration: "Configuration") -> tuple[str, ...]:
    """Return the distinct environment variables of the target."""
    auth = configuration.api.auth
    names = [auth.token_env, auth.password_env, *configuration.api.agent.secrets]
    for text in configuration.api.request.headers.values():
        names += ENV_REFERENCE.findall(text)
    return tuple(dict.fromkeys(name for name in names if name))


def journal_name(configuration: "Configuration") -> str | None:
    """Return the variable with the URL of a shared call log."""
    names = ENV_REFERENCE.findall(configuration.storage.journal or "")
    return names[0] if names else None


def journal_url(configuration: "Configuration", secrets: Secrets | None = None) -> str | None:
    """Return the URL of a shared call log; ``None`` if the call log is a file of the store.

    Raises:
        ConfigurationError: the variable is not set, or is not a Postgres URL.
    """
    name = journal_name(configuration)
    if name is None:
        return None
    url = (secrets or Secrets()).get(name, key="storage.journal").get_secret_value()
    if not url.startswith(("postgresql://", "postgres://")):
        rule = "must name a variable that holds a Postgres URL"
        fix = f"Set {name} to a URL such as postgresql://db.example.com:5432/journal."
        value = f"{name}, whose value is not one"
        raise ConfigurationError.of("storage.journal", rule, fix, value=value)
    return url


def secret_name(api: "ApiConfig") -> str | None:
    """Return the variable to check if the endpoint denies access."""
    if api.auth.type == "basic":
        return api.auth.password_env
    if api.auth.type != "none":
        return api.auth.token_env
    named = [name for text in api.request.headers.values() for name in ENV_REFERENCE.findall(text)]
    return named[0] if named else None


def _basic_pair(configuration: "Configuration", secrets: Secrets) -> list[str]:
    """Return user name and password in the form of basic authentication."""
    auth = configuration.api.auth
    password = secrets.find(auth.password_env) if auth.password_env else None
    if password is None:
        return []
    pair = f"{auth.username or ''}:{password.get_secret_value()}"
    return [base64.b64encode(pair.encode()).decode()]


def _journal_passwords(configuration: "Configuration", secrets: Secrets) -> list[str]:
    """Return the passwords in the URL of a shared call log, raw and decoded."""
    name = journal_name(configuration)
    url = secrets.find(name) if name else None
    if url is None:
        return []
    # Parsed manually, because a malformed URL also appears in errors and must not leak its
    # password.
    place, _, query = url.get_secret_value().partition("?")
    credentials, at, _ = place.partition("://")[2].rpartition("@")
    written = [credentials.partition(":")[2]] if at else []
    for setting in query.split("&"):
        key, _, value = setting.partition("=")
        if key in ("password", "sslpassword"):
            written.append(value)
    return [form for word in written if word for form in (word, urllib.parse.unquote(word))]


def _searched(text: str) -> Iterator[re.Pattern[str]]:
    """Yield the key patterns whose marks occur in a text."""
    for marks, pattern in _PATTERNS:
        if any(mark in text for mark in marks):
            yield pattern


def _key_spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of keys, without the names before them."""
    for match in pattern.finditer(text):
        yield (match.end(1) if pattern.groups else match.start(), match.end())


def _masked(match: re.Match[str]) -> str:
    """Keep the name before a value (``api_key=``), and replace the rest."""
    return (match[1] if match.re.groups else "") + MASK


def _forms(value: str) -> set[str]:
    """Return the case-folded spellings of a whole value in a text."""
    if len(value) < MIN_SECRET_LENGTH:
        return set()
    forms = {folded(form) for forms in _spellings(value).values() for form in forms}
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}


def _spellings(value: str) -> dict[int, set[str]]:
    """Return spellings of a value by the minimum length of a run that counts as a piece."""
    raw = value.encode(errors="surrogatepass")
    quoted = {
        urllib.parse.quote(raw, safe=""),
        urllib.parse.quote(raw),
        urllib.parse.quote_plus(raw),
    }
    spellings = {
        LEAST_RUN: {value, repr(raw)[2:-1], *quoted},
        LEAST_BASE64: {*_base64_forms(raw)},
        LEAST_HEX: {raw.hex()},
        LEAST_PERCENT: {"".join(f"%{byte:02x}" for byte in raw)},
    }
    for _ in range(_MAX_NESTED):
        for forms in spellings.values():
            forms |= {written for form in forms for written in _escaped(form)}
    return spellings


def _secret_parts(value: str) -> list[str]:
    """Return the parts of a value whose pieces are sensitive.

    For a URL, these are random-looking parts, passwords and keys; scheme, host and names are words
    that also occur in answers.
    """
    parts = [value]
    if "://" in value:
        # SQL queries store texts too, without a configuration.
        from convergence_core.config.secrecy import looks_random  # noqa: PLC0415 - not needed for SQL queries

        place, _, query = value.partition("://")[2].partition("?")
        credentials, at, path = place.rpartition("@")
        secrets = [credentials.partition(":")[2]] if at else []
        secrets += [setting.partition("=")[2] for setting in query.split("&")]
        parts = [*secrets, *(word for word in path.split("/")[1:] if looks_random(word))]
    return [part for part in parts if len(part) >= LEAST_TORN]


def _escaped(text: str) -> Iterator[str]:
    """Yield the escaped forms of a text: JSON, Python's repr, HTML."""
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield text.replace("/", "\\/")
    yield repr(text)[1:-1]
    yield text.replace("\\", "\\\\")
    yield html.escape(text)


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the Base64 of a value, and its part within the Base64 of a longer text."""
    whole = base64.b64encode(raw).decode()
    forms = [whole, whole.rstrip("=")]
    for n_before in (0, 1, 2):
        text = base64.b64encode(bytes(n_before) + raw).decode()
        # Characters at either end share bits with the neighbours of the value.
        n_shared, n_whole = -(-n_before * 8 // 6), (n_before + len(raw)) * 8 // 6
        part = text[n_shared:n_whole]
        if len(part) >= _MIN_PART_LENGTH:
            forms.append(part)
    for text in forms:
        yield text
        yield text.replace("+", "-").replace("/", "_")
