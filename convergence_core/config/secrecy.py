"""Recognition of secrets, and display of keys and values in messages.

No function here, and no message, returns the checked text: a secret in a terminal or a log is a
leaked secret.
"""

import re
from typing import Any

from convergence_core.records import canonical_json

HIDDEN = "a text that is not shown, since it may be a secret"
"""Replacement for a value in messages."""

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
ENV_REFERENCE = re.compile(r"\$\{([^}]*)\}")

_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?=[A-Za-z0-9_-]*[0-9])(?:[A-Za-z]+-)*[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic and kin
    r"|gsk_[A-Za-z0-9]{16,}"  # Groq
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # AWS
    r"|AIza[A-Za-z0-9_-]{30,}"  # Google
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|hf_[A-Za-z0-9]{24,}"
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}|bb_(?:live|test)_[A-Za-z0-9_-]{12,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # JSON Web Token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r")"
)
_CREDENTIALS = re.compile(r"://[^\s/?#@\"'<>{}$]+@")
_HEX = re.compile(r"[0-9a-f]{32,}|[0-9A-F]{32,}")
_DENSE = re.compile(r"[A-Za-z0-9+/_=.-]{24,}")
_SECRET_KEY = re.compile(
    r"authorization|cookie|password|passwd|secret|token|credential|signature"
    r"|(?:^|[-_])(?:api|access|auth|subscription|private)?[-_]?key$|apikey|^sig$",
    re.IGNORECASE,
)
_NOT_SECRET_KEY = re.compile(r"_env$|tokens|token_count", re.IGNORECASE)
_SCHEME = re.compile(r"(?:bearer|basic|token|key|apikey|api-key|digest)\b[:=]?", re.IGNORECASE)


def has_known_secret(text: str) -> bool:
    """Return whether a text contains a key of a well-known form (``sk-…``, ``AKIA…``, a JWT…)."""
    return _KNOWN.search(text) is not None


def has_credentials(text: str) -> bool:
    """Return whether a text contains a URL with credentials (``https://user:…@host``)."""
    return _CREDENTIALS.search(text) is not None


def looks_random(text: str) -> bool:
    """Return whether a text without spaces looks random: long hexadecimal or base64."""
    if _HEX.fullmatch(text):
        return True
    if not _DENSE.fullmatch(text):
        return False
    n_digits = sum(character.isdigit() for character in text)
    lower = any(character.islower() for character in text)
    upper = any(character.isupper() for character in text)
    if lower and upper:
        return n_digits >= 3 and len(set(text)) >= 12
    return lower and n_digits >= 5 and "_" not in text and "." not in text


def looks_like_secret(text: str) -> bool:
    """Return whether a text looks like a secret or contains one."""
    return has_known_secret(text) or has_credentials(text) or looks_random(text)


def is_env_name(text: str) -> bool:
    """Return whether a text can name an environment variable and does not look secret."""
    return ENV_NAME.fullmatch(text) is not None and not looks_like_secret(text)


def is_secret_key(key: str) -> bool:
    """Return whether a header, query parameter or key of this name usually holds a secret."""
    return bool(_SECRET_KEY.search(key)) and not _NOT_SECRET_KEY.search(key)


def is_only_references(value: str) -> bool:
    """Return whether a header consists of ``${ENV_NAME}`` and a scheme such as ``Bearer``."""
    if not ENV_REFERENCE.search(value):
        return False
    rest = ENV_REFERENCE.sub(" ", value)
    return not _SCHEME.sub(" ", rest).strip(" ;,=:")


# -- values in messages: short, one line, never a secret

_MAX_SHOWN = 60


def dotted(path: tuple[str | int, ...]) -> str:
    """Return a path for display: ``search_space.constraints[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if "." not in part and " " not in part and part else f'"{part}"'
            name = "…" if has_known_secret(name) else name
            name = name if len(name) <= _MAX_SHOWN else name[: _MAX_SHOWN - 1] + "…"
            text += f".{name}" if text else name
    return text


def shown(value: Any, key: str = "") -> str:
    """Return a value for display in a message; ``key`` is its key."""
    if isinstance(value, str):
        return _shown_text(value, key)
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        is_long = isinstance(value, int) and abs(value) >= 10**30
        return "a number of more than 30 digits" if is_long else repr(value)
    return _shown_container(value)


def _shown_text(value: str, key: str) -> str:
    if looks_like_secret(value) or is_secret_key(key):
        return HIDDEN
    text = canonical_json(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 2] + '…"'


def _shown_container(value: Any) -> str:
    if isinstance(value, dict):
        names = ", ".join("…" if has_known_secret(name) else name[:30] for name in list(value)[:5])
        more = ", …" if len(value) > 5 else ""
        return f"a mapping of {names}{more}" if value else "an empty mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return f"a value of type {type(value).__name__}"


def shown_url(url: str) -> str:
    """Return a URL for display; anything before an ``@`` may be a secret."""
    return HIDDEN if "@" in url else shown(url)
