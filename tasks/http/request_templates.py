"""Placeholders of request templates.

``{name}`` is a parameter, ``{input.field}`` a part of the test case; a field's name may contain
anything but braces and line ends. A string that is exactly one placeholder keeps the value's JSON
type. Braces around anything else, such as ``{ input }`` and ``{input: string}`` of code, are plain
braces. ``{{name}}`` is the literal ``{name}``, and ``{{ name }}`` stays unchanged. An inactive
parameter is empty in a string, and a field with no other content is dropped.

A parameter's string, such as a prompt, may contain ``{input.field}`` and other parameters. They
are filled once: inserted cases and parameters are never parsed as templates.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from convergence_core.errors import CandidateFault
from convergence_core.prompts.shots import joined, split
from convergence_core.records import Json, Params
from tasks.json_values import MISSING, Missing, as_text, pick

_PLACEHOLDER = re.compile(
    r"\{(?P<plain>\{)?(?:(?:(?<!\{\{)[ \t]+(?=input[ \t]*[.\[]))?input(?P<field>(?:[ \t]*[.\[][^{}\n]*)?)|"
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>(?:\.[A-Za-z0-9_-]+|\[-?\d+\])*))\}(?(plain)\})"
)
_FIELD = re.compile(r"|\.[^{}]*[^{}\s.]|\[-?\d+\][^{}]*")


def _path_of(match: re.Match[str]) -> str | None:
    """Return the path of an input placeholder; ``None`` if it is invalid."""
    is_readable = match[0].startswith("{input") and _FIELD.fullmatch(match["field"])
    return match["field"].removeprefix(".") if is_readable else None


def input_at(case_input: Json, path: str) -> "Json | Missing":
    """Return a part of a test case's input, all of it for an empty path, or ``MISSING``."""
    try:
        return pick(case_input, path) if path else case_input
    except ValueError:  # not a dotted path, and no field of that name
        return MISSING


@dataclass(frozen=True, slots=True)
class Values:
    """Values of placeholders for one candidate and one case."""

    params: Params
    case_input: Json

    def fill(self, template: Json) -> Json:
        """Return a JSON template with its placeholders filled.

        Raises:
            CandidateFault: the case has no such input.
        """
        filled = self._fill(template)
        return None if isinstance(filled, Missing) else filled

    def text(self, template: str) -> str:
        """Return a string with its placeholders filled; values that are not strings become JSON.

        Raises:
            CandidateFault: the case has no such input.
        """
        return _PLACEHOLDER.sub(self._replacement, template)

    def _fill(self, template: Json) -> "Json | Missing":
        if isinstance(template, str):
            match = _PLACEHOLDER.fullmatch(template)
            if match is not None and not match["plain"]:
                return self._value(match)
            return self.text(template)
        if isinstance(template, dict):
            filled = {key: self._fill(item) for key, item in template.items()}
            return {key: item for key, item in filled.items() if not isinstance(item, Missing)}
        if isinstance(template, list):
            items = [self._fill(item) for item in template]
            return [item for item in items if not isinstance(item, Missing)]
        return template

    def _replacement(self, match: re.Match[str]) -> str:
        if match["plain"]:
            return match[0][1:-1]
        value = self._value(match)
        return "" if isinstance(value, Missing) else as_text(value)

    def parameter(self, name: str) -> "Json | Missing":
        """Return a parameter's value; placeholders in a string are filled.

        Raises:
            CandidateFault: the case has no such input.
        """
        value = self.params.get(name, MISSING)
        if not isinstance(value, str) or "{" not in value:
            return value
        text, shots = split(value)
        return joined(_PLACEHOLDER.sub(partial(self._nested, name), text), shots)

    def _nested(self, parameter: str, match: re.Match[str]) -> str:
        """Return the value of a placeholder in a parameter's string; other braces are plain."""
        name, rest = match["name"], match["rest"]
        if name is None:
            return self._replacement(match)
        if name == parameter or name not in self.params or rest:
            return match[0]
        return match[0][1:-1] if match["plain"] else as_text(self.params[name])

    def _value(self, match: re.Match[str]) -> "Json | Missing":
        if match["name"] is not None:
            return self.parameter(match["name"])
        path = _path_of(match)
        if path is None:
            return match[0]
        found = input_at(self.case_input, path)
        if isinstance(found, Missing):
            raise CandidateFault(
                f"the request needs `{path}` of the test case's input, which has none",
                error_type="missing_input",
            )
        return found


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Placeholder as written."""

    name: str
    path: str | None
    """Path of the field; ``None`` for an invalid input placeholder."""
    text: str


def placeholders(template: Json) -> Iterator[Placeholder]:
    """Yield all placeholders of a JSON template or string."""
    if isinstance(template, str):
        for match in _PLACEHOLDER.finditer(template):
            if not match["plain"]:
                name, rest = match["name"], match["rest"]
                path = _path_of(match) if name is None else rest.removeprefix(".")
                yield Placeholder(name or "input", path, match[0])
    elif isinstance(template, dict):
        for item in template.values():
            yield from placeholders(item)
    elif isinstance(template, list):
        for item in template:
            yield from placeholders(item)
