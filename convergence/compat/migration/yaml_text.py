"""YAML with comments, which YAML 1.1 and 1.2 read alike."""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

Comments = Mapping[tuple[str, ...], Sequence[str]]
"""Comment lines by the path of the key they stand above."""

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS = frozenset(
    ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf", "~"]
)
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_MAX_FLOW = 72


def to_yaml(data: Mapping[str, Any], comments: Comments) -> str:
    """Return YAML text of a mapping, each comment above its key."""
    return "\n".join(_block(data, (), comments)) + "\n"


def scalar(value: Any) -> str:
    """Return one value as YAML on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and not _is_number(text):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match.group()):04x}", quoted)


def _is_number(text: str) -> bool:
    try:
        float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return re.fullmatch(r"[-+.0-9_:eE]+", text) is not None
    return True


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return scalar(value)


def _block(data: Mapping[str, Any], path: tuple[str, ...], comments: Comments) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        here = (*path, key)
        if not path and lines:
            lines.append("")
        lines += _comment(comments.get(here, ()))
        lines += _entry(scalar(key), value, here, comments)
    lines += _comment(comments.get((*path, ""), ()))
    return lines


def _comment(texts: Sequence[str]) -> list[str]:
    return [f"# {line}" for text in texts for line in textwrap.wrap(text, 90)]


def _entry(key: str, value: Any, path: tuple[str, ...], comments: Comments) -> list[str]:
    short = f"{key}: {_flow(value)}"
    is_commented = any(place[: len(path)] == path and place != path for place in comments)
    if isinstance(value, Mapping) and value:
        if len(path) > 2 and len(short) <= _MAX_FLOW and not is_commented:
            return [short]
        return [f"{key}:", *(_indented(line) for line in _block(value, path, comments))]
    if isinstance(value, list) and value and len(short) > _MAX_FLOW:
        return [f"{key}:", *(f"  - {_flow(item)}" for item in value)]
    return [short]


def _indented(line: str) -> str:
    return f"  {line}" if line else line
