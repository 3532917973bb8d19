"""Keys and values as messages show them: short, one line, never a secret."""

from typing import Any

from convergence_core.config.secrecy import (
    HIDDEN,
    has_known_secret,
    is_secret_key,
    looks_like_secret,
)
from convergence_core.records import canonical_json

_MAX = 60


def dotted(path: tuple[str | int, ...]) -> str:
    """Return a path as people write it: ``search_space.constraints[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if "." not in part and " " not in part and part else f'"{part}"'
            name = "…" if has_known_secret(name) else name
            name = name if len(name) <= _MAX else name[: _MAX - 1] + "…"
            text += f".{name}" if text else name
    return text


def shown(value: Any, key: str = "") -> str:
    """Return a value as a message shows it; ``key`` is the word it stands under."""
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
    return text if len(text) <= _MAX else text[: _MAX - 2] + '…"'


def _shown_container(value: Any) -> str:
    if isinstance(value, dict):
        names = ", ".join("…" if has_known_secret(name) else name[:30] for name in list(value)[:5])
        more = ", …" if len(value) > 5 else ""
        return f"a mapping of {names}{more}" if value else "an empty mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return f"a {type(value).__name__}"
