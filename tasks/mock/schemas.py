"""JSON values that fit a JSON Schema, filled from a prompt's own words.

A property is looked for in the prompt: after its name (``name: value``, ``name is value``), or by
its look (an address, a date, a number). What is not found is a word of the answer, a small number,
the first entry of an enumeration. A bad answer looks in the wrong place.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tasks.mock.hash_uniform import uniform
from tasks.mock.prompt_text import content_words

DEEPEST = 8
"""Below this depth optional properties and lists stay empty, so recursive schemas end."""


class Nothing:
    """The type of ``NOTHING``."""


NOTHING: Final = Nothing()
"""No value is given for a property."""

_KEY = re.compile(r"[\"'](\w+)[\"']\s*:\s*(\"[^\"]*\"|'[^']*'|-?\d+(?:\.\d+)?|true|false|\[|\{|<)")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d{3})*(?:\.\d+)?")
_LOOKS = (
    ("email", re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    ("date", re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")),
    ("url", re.compile(r"https?://[^\s\"'<>]+")),
    ("phone", re.compile(r"\+?\d[\d ()/-]{6,}\d")),
    ("name", re.compile(r"(?<=[a-z,:] )[A-Z][a-z]+(?: [A-Z][a-z]+)+")),
)


def _given_nothing(_name: str, _kind: Mapping[str, Any]) -> Any:
    return NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSource:
    """Where values come from."""

    text: str
    """The prompt's text."""
    answer: str
    """The answer in words."""
    good: bool
    draw: str
    """Names the draws of a bad answer."""
    given: Callable[[str, Mapping[str, Any]], Any] = _given_nothing
    """Values of properties by name and schema, before any other; ``NOTHING``: look for one."""


def shown_in(text: str) -> dict[str, Any] | None:
    """Return the schema of a JSON object that a text shows as an example; ``None``: it shows none."""
    if "json" not in text.casefold():
        return None
    properties: dict[str, Any] = {}
    for name, value in _KEY.findall(text):
        properties.setdefault(name, _kind_of(name, value))
    return {"type": "object", "properties": properties} if properties else None


def _kind_of(name: str, value: str) -> dict[str, Any]:
    if value in ("true", "false"):
        return {"type": "boolean"}
    if value[0] in "-0123456789":
        return {"type": "number" if "." in value else "integer"}
    if value == "[":
        return {"type": "array", "items": {"type": "string"}}
    if name.casefold() == "winner":
        return {"type": "string", "enum": ["A", "B", "tie"]}
    return {"type": "string"}


def fill(schema: Mapping[str, Any], source: ValueSource) -> Any:
    """Return a value of the schema."""
    return _Filler(schema, source).value(schema, "", 0)


class _Filler:
    def __init__(self, root: Mapping[str, Any], source: ValueSource) -> None:
        self._root = root
        self._source = source

    def value(self, schema: Any, name: str, depth: int) -> Any:
        kind = self._resolved(schema)
        given = self._source.given(name, kind)
        if given is not NOTHING:
            return given
        if "const" in kind:
            return kind["const"]
        if listed := kind.get("enum"):
            return self._listed(list(listed), name)
        types = kind.get("type")
        wanted = types if isinstance(types, str) else next(iter(types or ["object"]), "object")
        return self._typed(str(wanted).lower(), kind, name, depth)

    def _typed(self, wanted: str, kind: Mapping[str, Any], name: str, depth: int) -> Any:
        value: Any
        match wanted:
            case "object":
                value = self._object(kind, depth)
            case "array":
                value = self._array(kind, name, depth)
            case "integer" | "number":
                value = self._number(kind, name, whole=wanted == "integer")
            case "boolean":
                value = self._truth(name)
            case "null":
                value = None
            case _:
                value = self._text(kind, name)
        return value

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        """Follow references and take the first alternative that is not null."""
        kind = schema if isinstance(schema, Mapping) else {}
        for _ in range(DEEPEST):
            reference = kind.get("$ref")
            if isinstance(reference, str) and reference.startswith("#"):
                target: Any = self._root
                for part in reference.lstrip("#/").split("/"):
                    if part:
                        target = target.get(part, {}) if isinstance(target, Mapping) else {}
                kind = target if isinstance(target, Mapping) else {}
                continue
            alternatives = kind.get("anyOf") or kind.get("oneOf")
            if alternatives:
                kind = next(
                    (
                        a
                        for a in alternatives
                        if isinstance(a, Mapping) and a.get("type") != "null"
                    ),
                    {"type": "null"},
                )
                continue
            if parts := kind.get("allOf"):
                merged: dict[str, Any] = {}
                for part in parts:
                    merged |= self._resolved(part)
                return merged
            break
        return kind

    def _object(self, kind: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = kind.get("properties") or {}
        if depth >= DEEPEST:
            required = kind.get("required") or []
            properties = {name: p for name, p in properties.items() if name in required}
        if depth >= 2 * DEEPEST:
            return {}
        return {name: self.value(p, name, depth + 1) for name, p in properties.items()}

    def _array(self, kind: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        least = int(kind.get("minItems", 0))
        n = max(least, 0 if depth >= DEEPEST else 1)
        return [self.value(kind.get("items", {}), name, depth + 1) for _ in range(n)]

    def _listed(self, listed: list[Any], name: str) -> Any:
        text = self._source.text.casefold()
        answer = self._source.answer.casefold()
        if self._source.good:
            named = [e for e in listed if str(e).casefold() == answer]
            named += [e for e in listed if str(e).casefold() in text]
            return (named or listed)[0]
        return listed[int(len(listed) * uniform("enum", name, text, self._source.draw))]

    def _number(self, kind: Mapping[str, Any], name: str, *, whole: bool) -> float | int:
        text = self._after_name(name) or self._source.text
        found = [float(n.replace(",", "")) for n in _NUMBER.findall(text)]
        answer = _NUMBER.fullmatch(self._source.answer)
        if answer is not None:  # the answer in words is a number, e.g. of a sum
            found = [float(answer[0].replace(",", ""))]
        value = found[0 if self._source.good else -1] if found else 1.0
        if not self._source.good and len(found) <= 1:
            value += 1.0
        value = max(
            float(kind.get("minimum", value)), min(float(kind.get("maximum", value)), value)
        )
        return round(value) if whole else value

    def _truth(self, name: str) -> bool:
        said = self._source.answer.casefold()
        if said in ("yes", "no"):
            return said == "yes"
        mentioned = set(content_words(name.replace("_", " "))) & set(
            content_words(self._source.text)
        )
        return bool(mentioned) == self._source.good

    def _text(self, kind: Mapping[str, Any], name: str) -> str:
        text = self._found(f"{name} {kind.get('format', '')}".casefold(), name)
        least, most = int(kind.get("minLength", 0)), kind.get("maxLength")
        text = text.ljust(least, ".")
        return text if most is None else text[: int(most)]

    def _found(self, about: str, name: str) -> str:
        source = self._source
        if source.good and (named := self._after_name(name)):
            return named
        for look, pattern in _LOOKS:
            if look in about and (found := pattern.findall(source.text)):
                return str(found[0 if source.good else -1])
        return source.answer

    def _after_name(self, name: str) -> str:
        """Return what the prompt says after a property's name, up to the end of the clause."""
        spoken = re.escape(name.replace("_", " ")).replace(r"\ ", r"[ _-]")
        pattern = (
            rf"\b{spoken}\b[\"'*]*\s*(?::|=|\bis\b)\s*[\"']?([^\n,;\"']+?)(?=\.\s|[\n,;\"']|$)"
        )
        found = re.search(pattern, self._source.text, re.IGNORECASE) if name else None
        return found[1].strip().rstrip(".") if found is not None else ""
