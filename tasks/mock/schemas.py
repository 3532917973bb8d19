"""JSON values for a JSON Schema, filled from the words of a prompt.

A property's value comes from the prompt: after its name (``name: value``, ``name is value``), or
by its pattern (an address, a date, a number). Otherwise it is the answer's text, a small number,
or the first entry of an enumeration. A bad answer searches in the wrong place.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tasks.json_values import mapping
from tasks.mock.prompt_text import content_words, uniform

DEEPEST = 8
"""Depth below which optional properties and lists stay empty, so that recursive schemas end."""

Schema: TypeAlias = Mapping[str, Any]

_KEY = re.compile(r"[\"'](\w+)[\"']\s*:\s*(\"[^\"]*\"|'[^']*'|-?\d+(?:\.\d+)?|true|false|\[|\{|<)")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d{3})*(?:\.\d+)?")
_LOOKS = (
    ("email", re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    ("date", re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")),
    ("url", re.compile(r"https?://[^\s\"'<>]+")),
    ("phone", re.compile(r"\+?\d[\d ()/-]{6,}\d")),
    ("name", re.compile(r"(?<=[a-z,:] )[A-Z][a-z]+(?: [A-Z][a-z]+)+")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSource:
    """Source of the values."""

    text: str
    answer: str
    good: bool
    draw: str
    """Seed of a bad answer's random choices."""
    fixed: Callable[[str, Schema], Any] = lambda _name, _kind: None
    """Function of name and schema that is tried first; ``None`` searches for a value."""


def shown_in(text: str) -> dict[str, Any] | None:
    """Return the schema of a JSON object that a text shows; ``None`` if there is none."""
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


def fill(schema: Schema, source: ValueSource) -> Any:
    """Return a value that fits the schema."""
    return _Filler(schema, source).value(schema, "", 0)


class _Filler:
    def __init__(self, root: Schema, source: ValueSource) -> None:
        self._root = root
        self._source = source

    def value(self, schema: Any, name: str, depth: int) -> Any:
        kind = self._resolved(schema)
        if (value := self._source.fixed(name, kind)) is not None:
            return value
        if "const" in kind:
            return kind["const"]
        if listed := kind.get("enum"):
            return self._listed(list(listed), name)
        types = kind.get("type")
        wanted = types if isinstance(types, str) else next(iter(types or ["object"]), "object")
        makers: dict[str, Callable[[], Any]] = {
            "object": lambda: self._object(kind, depth),
            "array": lambda: self._array(kind, name, depth),
            "integer": lambda: round(self._number(kind, name)),
            "number": lambda: self._number(kind, name),
            "boolean": lambda: self._truth(name),
            "null": lambda: None,
        }
        return makers.get(str(wanted).lower(), lambda: self._text(kind, name))()

    def _resolved(self, schema: Any) -> Schema:
        """Follow references, and take the first alternative that is not null."""
        kind: Schema = mapping(schema)
        for _ in range(DEEPEST):
            reference = kind.get("$ref")
            alternatives = kind.get("anyOf") or kind.get("oneOf")
            if isinstance(reference, str) and reference.startswith("#"):
                kind = self._root
                for part in filter(None, reference.lstrip("#/").split("/")):
                    kind = mapping(kind.get(part))
            elif alternatives:
                schemas = (a for a in alternatives if isinstance(a, Mapping))
                kind = next((a for a in schemas if a.get("type") != "null"), {"type": "null"})
            elif parts := kind.get("allOf"):
                return {key: v for part in parts for key, v in self._resolved(part).items()}
            else:
                break
        return kind

    def _object(self, kind: Schema, depth: int) -> dict[str, Any]:
        properties = kind.get("properties") or {}
        if depth >= 2 * DEEPEST:
            return {}
        if depth >= DEEPEST:
            required = kind.get("required") or []
            properties = {name: p for name, p in properties.items() if name in required}
        return {name: self.value(p, name, depth + 1) for name, p in properties.items()}

    def _array(self, kind: Schema, name: str, depth: int) -> list[Any]:
        n = max(int(kind.get("minItems", 0)), 0 if depth >= DEEPEST else 1)
        return [self.value(kind.get("items", {}), name, depth + 1) for _ in range(n)]

    def _listed(self, listed: list[Any], name: str) -> Any:
        text, answer = self._source.text.casefold(), self._source.answer.casefold()
        if self._source.good:
            named = [e for e in listed if str(e).casefold() == answer]
            named += [e for e in listed if str(e).casefold() in text]
            return (named or listed)[0]
        return listed[int(len(listed) * uniform("enum", name, text, self._source.draw))]

    def _number(self, kind: Schema, name: str) -> float:
        good, answer = self._source.good, self._source.answer
        text = self._after_name(name) or self._source.text
        if _NUMBER.fullmatch(answer):  # the answer in words is a number, e.g. of a sum
            text = answer
        numbers = [float(n.replace(",", "")) for n in _NUMBER.findall(text)]
        value = numbers[0 if good else -1] if numbers else 1.0
        if not good and len(numbers) <= 1:
            value += 1.0
        low, high = float(kind.get("minimum", value)), float(kind.get("maximum", value))
        return max(low, min(high, value))

    def _truth(self, name: str) -> bool:
        answer = self._source.answer.casefold()
        if answer in ("yes", "no"):
            return answer == "yes"
        named = set(content_words(name.replace("_", " ")))
        is_mentioned = bool(named & set(content_words(self._source.text)))
        return is_mentioned == self._source.good

    def _text(self, kind: Schema, name: str) -> str:
        text = self._described_value(f"{name} {kind.get('format', '')}".casefold(), name)
        most = kind.get("maxLength")
        text = text.ljust(int(kind.get("minLength", 0)), ".")
        return text if most is None else text[: int(most)]

    def _described_value(self, about: str, name: str) -> str:
        source = self._source
        if source.good and (named := self._after_name(name)):
            return named
        for look, pattern in _LOOKS:
            if look in about and (matches := pattern.findall(source.text)):
                return str(matches[0 if source.good else -1])
        return source.answer

    def _after_name(self, name: str) -> str:
        """Return the prompt's text after a property's name, up to the end of the clause."""
        spoken = re.escape(name.replace("_", " ")).replace(r"\ ", r"[ _-]")
        pattern = (
            rf"\b{spoken}\b[\"'*]*\s*(?::|=|\bis\b)\s*[\"']?([^\n,;\"']+?)(?=\.\s|[\n,;\"']|$)"
        )
        match = re.search(pattern, self._source.text, re.IGNORECASE) if name else None
        return match[1].strip().rstrip(".") if match is not None else ""
