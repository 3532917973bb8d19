"""YAML text → plain data, with the line and column of every key and value.

Scalars are read by the core schema of YAML 1.2, as editors do: only ``true`` and ``false`` are
booleans, ``1e-5`` is a number, and ``on``, ``yes``, ``no``, ``off`` and dates are texts.
Anchors, aliases and merge keys work within bounds of size and depth.
"""

import codecs
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from convergence_core.config.source import ConfigSource, Path, Position
from convergence_core.config.syntax import explain
from convergence_core.errors import Problem

try:
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]

MAX_CHARACTERS = 10_000_000
MAX_NODES = 200_000
MAX_DEPTH = 64

_TAG = "tag:yaml.org,2002:"


class _Loader(_BaseLoader):
    """A safe loader that knows the scalars of YAML 1.2 only."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _name, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+0123456789."),
    ),
    ("merge", r"^<<$", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)


class _TooLargeError(Exception):
    """The document has more nodes, or is deeper, than any configuration needs."""


def read_yaml(text: str | bytes, file: str | None) -> ConfigSource:
    """Read a document; what is wrong with it is in ``problems`` of the result."""
    source = ConfigSource(file=file)
    decoded = _decode(text, source)
    if decoded is None:
        return source
    node = _compose(decoded, source)
    if node is None:
        if not source.problems:
            source.problems.append(
                source.problem(
                    (),
                    "the file must not be empty",
                    "Write the sections `api`, `search_space` and `evaluation`, or let "
                    "`convergence init` write an example.",
                )
            )
        return source
    try:
        source.data = _Converter(source).convert(node, ())
    except _TooLargeError as error:
        source.problems.append(
            Problem(key="", rule=str(error), value="", fix=_SIZE_FIX, file=file, line=1, column=1)
        )
        source.data = None
    return source


_SIZE_FIX = "Shorten it; large test cases belong in a file of their own (`test_cases.path`)."


def _decode(text: str | bytes, source: ConfigSource) -> str | None:
    """Return the text without its byte order mark, or note why it is none."""
    if isinstance(text, bytes):
        is_utf16 = text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        try:
            text = text.decode("utf-16" if is_utf16 else "utf-8")
        except UnicodeDecodeError as error:
            source.problems.append(_not_utf8(error, source.file))
            return None
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        rule = f"the file must not exceed {MAX_CHARACTERS:,} characters"
        source.problems.append(source.problem((), rule, _SIZE_FIX, value=f"{len(text):,}"))
        return None
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - (text.rfind("\n", 0, bad.start()) + 1) + 1
        problem = Problem(
            key="",
            rule="the file must hold no control characters",
            value=f"U+{ord(bad.group()):04X}",
            fix='Remove the character, or write it as an escape in double quotes, e.g. "\\u0007".',
            file=source.file,
            line=line,
            column=column,
        )
        source.problems.append(problem)
        return None
    return text


def _not_utf8(error: UnicodeDecodeError, file: str | None) -> Problem:
    before = error.object[: error.start]
    return Problem(
        key="",
        rule="the file must be UTF-8 text",
        value=f"byte 0x{error.object[error.start]:02x}",
        fix="Save the file with the encoding UTF-8.",
        file=file,
        line=before.count(b"\n") + 1,
        column=len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1,
    )


_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _compose(text: str, source: ConfigSource) -> yaml.Node | None:
    """Return the document's root node; ``None`` for an empty or broken document."""
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        rule, fix = explain(error, text)
        line = mark.line + 1 if mark else None
        column = mark.column + 1 if mark else None
        source.problems.append(
            Problem(
                key="", rule=rule, value="", fix=fix, file=source.file, line=line, column=column
            )
        )
        return None
    except (yaml.YAMLError, _TooLargeError) as error:
        rule = str(error) if isinstance(error, _TooLargeError) else "the file must be valid YAML"
        source.problems.append(
            Problem(key="", rule=rule, value="", fix=_SIZE_FIX, file=source.file, line=1, column=1)
        )
        return None
    return node if isinstance(node, yaml.Node) else None


def _check_depth(text: str) -> None:
    """Refuse nesting that would exhaust the stack, before anything recursive sees it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise _TooLargeError(f"the file must not nest deeper than {MAX_DEPTH} levels")


class _Converter:
    """Turns nodes into plain data and notes positions."""

    def __init__(self, source: ConfigSource) -> None:
        self._source = source
        self._n_nodes = 0

    def convert(self, node: yaml.Node, path: Path) -> Any:
        """Return the plain value of a node."""
        self._n_nodes += 1
        if self._n_nodes > MAX_NODES:
            raise _TooLargeError(
                f"the file must not hold more than {MAX_NODES:,} values, aliases counted in full"
            )
        if len(path) > MAX_DEPTH:
            raise _TooLargeError(
                f"the file must not nest deeper than {MAX_DEPTH} levels, and no anchor may hold "
                "its own alias"
            )
        self._source.values[path] = _start(node)
        if isinstance(node, yaml.MappingNode):
            if self._has_plain_tag(node, path, "map"):
                return self._mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            if self._has_plain_tag(node, path, "seq"):
                return [self.convert(item, (*path, i)) for i, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return None

    def _has_plain_tag(self, node: yaml.Node, path: Path, kind: str) -> bool:
        if node.tag == _TAG + kind:
            return True
        self._add(path, "must carry no YAML tag", "Remove the word that begins with `!`.")
        return False

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: list[yaml.MappingNode] = []
        first: dict[str, Position] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged.extend(self._merged(value_node, path))
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            here = _start(key_node)
            if key in first:
                rule = (
                    f"must be written once, but stands on lines {first[key].line} and {here.line}"
                )
                self._source.keys[(*path, key)] = here
                self._add((*path, key), rule, "Remove one of them.", of_key=True)
            else:
                first[key] = here
            self._source.keys[(*path, key)] = here
            own[key] = self.convert(value_node, (*path, key))
        for mapping in merged:
            self._merge(mapping, path, own)
        return own

    def _merged(self, node: yaml.Node, path: Path) -> Iterator[yaml.MappingNode]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for item in nodes:
            if isinstance(item, yaml.MappingNode):
                yield item
            else:
                rule = "must merge (`<<`) mappings only"
                self._add(path, rule, "Write `<<: *anchor` of a mapping.", at=_start(node))

    def _merge(self, mapping: yaml.MappingNode, path: Path, own: dict[str, Any]) -> None:
        """Add a merged mapping's keys, which yield to those already there."""
        if len(path) >= MAX_DEPTH:
            raise _TooLargeError(f"the file must not nest deeper than {MAX_DEPTH} levels")
        self._n_nodes += 1 + len(mapping.value)
        if self._n_nodes > MAX_NODES:
            raise _TooLargeError(f"the file must not hold more than {MAX_NODES:,} values")
        nested: list[yaml.MappingNode] = []
        for key_node, value_node in mapping.value:
            if key_node.tag == _TAG + "merge":
                nested.extend(
                    item for item in self._merged(value_node, path) if item is not mapping
                )
                continue
            key = self._key(key_node, path)
            if key is not None and key not in own:
                self._source.keys[(*path, key)] = _start(key_node)
                own[key] = self.convert(value_node, (*path, key))
        for item in nested:
            self._merge(item, path, own)

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        """Return a key's text; ``None`` for a key that is no scalar."""
        if not isinstance(node, yaml.ScalarNode):
            self._add(path, "must have texts as keys", "Write a plain word.", at=_start(node))
            return None
        text = str(node.value)
        if node.tag != _TAG + "str":
            rule = f"must have texts as keys, but one of them is {shown_key(text)}"
            fix = f'Put the key in quotes: "{text}".' if text else "Write a key before the `:`."
            self._add(path, rule, fix, at=_start(node))
            if not text:
                return None
        return text

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = str(node.value)
        kind = node.tag.removeprefix(_TAG)
        if kind == "str":
            return text
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in {"true", "false"}:
            return text.lower() == "true"
        if kind in {"int", "float"}:
            return self._number(text, kind, path)
        if kind == "merge":
            return text
        self._add(path, "must carry no YAML tag", "Remove the word that begins with `!`.")
        return None

    def _number(self, text: str, kind: str, path: Path) -> int | float | None:
        try:
            number = _to_int(text) if kind == "int" else _to_float(text)
            float(number)
        except (ValueError, OverflowError):
            rule, fix = "must be a number that can be read", "Write fewer digits, or use quotes."
            self._add(path, rule, fix, value=f"{len(text)} characters")
            return None
        if isinstance(number, float) and not math.isfinite(number):
            self._add(path, "must be a finite number", "Write a number.", value=text[:40])
            return None
        return number

    def _add(
        self,
        path: Path,
        rule: str,
        fix: str,
        *,
        value: str = "",
        of_key: bool = False,
        at: Position | None = None,
    ) -> None:
        problem = self._source.problem(path, rule, fix, value=value, of_key=of_key)
        if at is not None:
            problem = Problem(
                key=problem.key,
                rule=rule,
                value=value,
                fix=fix,
                file=problem.file,
                line=at.line,
                column=at.column,
            )
        self._source.problems.append(problem)


def shown_key(text: str) -> str:
    """Return a key for a message."""
    return f"`{text[:40]}`" if text else "empty"


def _start(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def _to_int(text: str) -> int:
    if text.startswith("0o"):
        return int(text[2:], 8)
    if text.startswith("0x"):
        return int(text[2:], 16)
    return int(text)


def _to_float(text: str) -> float:
    plain = text.lower().replace(".inf", "inf").replace(".nan", "nan")
    return float(plain)
