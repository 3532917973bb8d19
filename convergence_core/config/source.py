"""Plain data from YAML text, with the line and column of each part.

Scalars follow the core schema of YAML 1.2, as in editors: only ``true`` and ``false`` are
booleans, ``1e-5`` is a number, and ``on``, ``yes``, ``no``, ``off`` and dates are texts. Anchors,
aliases and merge keys work within limits of size and depth.
"""

import codecs
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import yaml

from convergence_core.config.secrecy import dotted
from convergence_core.errors import Problem

try:
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]

MAX_CHARACTERS = 10_000_000
MAX_NODES = 200_000
MAX_DEPTH = 64

_TAG = "tag:yaml.org,2002:"
_NO_TAG = ("must carry no YAML tag", "Remove the word that begins with `!`.")
_TOO_DEEP = f"the file must not nest deeper than {MAX_DEPTH} levels"
_SIZE_FIX = "Shorten it; large test cases belong in their own file (`test_cases.path`)."
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of a document."""


def texts_of(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each text in plain data, with its path.

    Args:
        value: Plain data.
        path: Path of ``value``.
    """
    return ((place, leaf) for place, leaf in leaves(value, path) if isinstance(leaf, str))


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each scalar in plain data, with the path to it."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path, value


class Position(NamedTuple):
    """Position in a file."""

    line: int
    """Line, from 1."""
    column: int
    """Column in characters, from 1."""


@dataclass(slots=True)
class ConfigSource:
    """Plain data, with the position and problems of each part."""

    file: str | None = None
    """Path as the user gave it; ``None`` for data from Python."""
    data: Any = None
    keys: dict[Path, Position] = field(default_factory=dict)
    values: dict[Path, Position] = field(default_factory=dict)
    retyped: dict[Path, str] = field(default_factory=dict)
    """Unquoted scalar other than a text → its spelling."""
    problems: list[Problem] = field(default_factory=list)

    def position(self, path: Path, *, of_key: bool) -> Position | None:
        """Return the position of a value (or its key), else that of the nearest enclosing part."""
        if not of_key and path in self.values:
            return self.values[path]
        for end in range(len(path), 0, -1):
            mark = self.keys.get(path[:end]) or self.values.get(path[:end])
            if mark is not None:
                return mark
        return self.values.get(())

    def located(self, problem: Problem) -> Problem:
        """Return a problem with the position of its key.

        Matches the key as written, since parameter names may contain dots.
        """
        around = [
            path
            for path in {*self.keys, *self.values}
            if problem.key == dotted(path) or problem.key.startswith(f"{dotted(path)}.")
        ]
        at = self.position(max(around, key=len, default=()), of_key=False)
        line, column = at or (None, None)
        return replace(problem, file=self.file, line=line, column=column)

    def problem(
        self,
        path: Path,
        rule: str,
        fix: str,
        *,
        value: str = "",
        of_key: bool = False,
        at: Position | None = None,
    ) -> Problem:
        """Return a problem located at a path, or at a given position."""
        line, column = at or self.position(path, of_key=of_key) or (None, None)
        key = dotted(path)
        return Problem(
            key=key, rule=rule, value=value, fix=fix, file=self.file, line=line, column=column
        )

    def add(self, path: Path, rule: str, fix: str, **place: Any) -> None:
        """Record a problem, see ``problem``."""
        self.problems.append(self.problem(path, rule, fix, **place))


# -- YAML


class _Loader(_BaseLoader):
    """Safe loader with only the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes a text if YAML 1.2 would read it as another type."""


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
    _Dumper.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)


def yaml_text(data: Any) -> str:
    r"""Return plain data as YAML, which readers of YAML 1.1 and 1.2 parse to the same values.

    Example:
        >>> yaml_text({"hash": "1e5", "rate": 0.5})
        "hash: '1e5'\nrate: 0.5\n"
    """
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _TooLargeError(Exception):
    """The document exceeds the limits of size or depth."""


def read_yaml(text: str | bytes, file: str | None) -> ConfigSource:
    """Read a document; its problems are in ``problems`` of the result."""
    source = ConfigSource(file=file)
    decoded = _decode(text, source)
    if decoded is None:
        return source
    try:
        node = _compose(decoded, source)
        if node is not None:
            source.data = _Converter(source).convert(node, ())
        elif not source.problems:
            fix = (
                "Write the sections `api`, `search_space` and `evaluation`, or let "
                "`convergence init` write an example."
            )
            source.add((), "the file must not be empty", fix)
    except (yaml.YAMLError, _TooLargeError) as error:
        rule = str(error) if isinstance(error, _TooLargeError) else "the file must be valid YAML"
        source.add((), rule, _SIZE_FIX, at=Position(1, 1))
        source.data = None
    return source


def _decode(text: str | bytes, source: ConfigSource) -> str | None:
    """Return the text without its byte order mark; ``None`` if it is invalid."""
    if isinstance(text, bytes):
        is_utf16 = text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        try:
            text = text.decode("utf-16" if is_utf16 else "utf-8")
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode("utf-8", "replace")
            value = f"byte 0x{error.object[error.start]:02x}"
            fix = "Save the file with the encoding UTF-8."
            source.add((), "the file must be UTF-8 text", fix, value=value, at=_end(before))
            return None
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        rule = f"the file must not exceed {MAX_CHARACTERS:,} characters"
        source.add((), rule, _SIZE_FIX, value=f"{len(text):,}")
        return None
    bad = _UNPRINTABLE.search(text)
    if bad:
        rule = "the file must hold no control characters"
        fix = 'Remove the character, or write it as an escape in double quotes, e.g. "\\u0007".'
        value = f"U+{ord(bad.group()):04X}"
        source.add((), rule, fix, value=value, at=_end(text[: bad.start()]))
        return None
    return text


def _end(text: str) -> Position:
    """Return the position after a text."""
    return Position(text.count("\n") + 1, len(text.rpartition("\n")[2]) + 1)


def _compose(text: str, source: ConfigSource) -> yaml.Node | None:
    """Return the document's root node; ``None`` for an empty or broken document.

    Raises:
        _TooLargeError: The nesting is too deep.
        yaml.YAMLError: The YAML is invalid at an unknown position.
    """
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = Position(mark.line + 1, mark.column + 1) if mark else None
        source.add((), *_explain(error, text), at=at)
        return None
    return node if isinstance(node, yaml.Node) else None


def _check_depth(text: str) -> None:
    """Reject nesting that would exhaust the stack, before any recursion."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise _TooLargeError(_TOO_DEEP)


class _Converter:
    """Converter of nodes to plain data, which records positions."""

    def __init__(self, source: ConfigSource) -> None:
        self._source = source
        self._n_nodes = 0

    def convert(self, node: yaml.Node, path: Path) -> Any:
        """Return the plain value of a node."""
        self._count(1, ", aliases counted in full")
        if len(path) > MAX_DEPTH:
            raise _TooLargeError(f"{_TOO_DEEP}, and no anchor may hold its own alias")
        self._source.values[path] = _start(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.convert(item, (*path, i)) for i, item in enumerate(node.value)]
        self._source.add(path, *_NO_TAG)
        return None

    def _count(self, n: int, remark: str = "") -> None:
        self._n_nodes += n
        if self._n_nodes > MAX_NODES:
            raise _TooLargeError(f"the file must not hold more than {MAX_NODES:,} values{remark}")

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        merged_over: dict[str, Any] = {}
        merged: list[yaml.MappingNode] = []
        first: dict[str, Position] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged.extend(self._merged(value_node, path))
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            start = self._source.keys[(*path, key)] = _start(key_node)
            if key in first:
                lines = f"{first[key].line} and {start.line}"
                rule = f"must be written once, but stands on lines {lines}"
                self._source.add((*path, key), rule, "Remove one of them.", of_key=True)
            first.setdefault(key, start)
            merged_over[key] = self.convert(value_node, (*path, key))
        for mapping in merged:
            self._merge(mapping, path, merged_over)
        return merged_over

    def _merged(self, node: yaml.Node, path: Path) -> Iterator[yaml.MappingNode]:
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(item, yaml.MappingNode):
                yield item
            else:
                rule, fix = "must merge (`<<`) mappings only", "Write `<<: *anchor` of a mapping."
                self._source.add(path, rule, fix, at=_start(node))

    def _merge(self, mapping: yaml.MappingNode, path: Path, explicit: dict[str, Any]) -> None:
        """Add a merged mapping's keys, except existing ones."""
        if len(path) >= MAX_DEPTH:
            raise _TooLargeError(_TOO_DEEP)
        self._count(1 + len(mapping.value))
        nested: list[yaml.MappingNode] = []
        for key_node, value_node in mapping.value:
            if key_node.tag == _TAG + "merge":
                merged = self._merged(value_node, path)
                nested.extend(item for item in merged if item is not mapping)
                continue
            key = self._key(key_node, path)
            if key is not None and key not in explicit:
                self._source.keys[(*path, key)] = _start(key_node)
                explicit[key] = self.convert(value_node, (*path, key))
        for item in nested:
            self._merge(item, path, explicit)

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        """Return a key's text; ``None`` for an empty or non-scalar key."""
        at = _start(node)
        if not isinstance(node, yaml.ScalarNode):
            self._source.add(path, "must have strings as keys", "Write a plain word.", at=at)
            return None
        text = str(node.value)
        if node.tag == _TAG + "str":
            return text
        rule = f"must have strings as keys, but one of them is {shown_key(text)}"
        fix = f'Put the key in quotes: "{text}".' if text else "Write a key before the `:`."
        self._source.add(path, rule, fix, at=at)
        return text or None

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text, kind = str(node.value), node.tag.removeprefix(_TAG)
        if kind != "str":
            self._source.retyped[path] = text
        if kind in {"int", "float"}:
            return self._number(text, kind, path)
        if kind in {"str", "merge"}:
            return text
        if kind == "bool" and text.lower() in {"true", "false"}:
            return text.lower() == "true"
        if kind != "null":
            self._source.add(path, *_NO_TAG)
        return None

    def _number(self, text: str, kind: str, path: Path) -> int | float | None:
        number: int | float
        try:
            if kind == "int":
                number = int(text, 0 if text.startswith(("0o", "0x")) else 10)
            else:
                number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            is_finite = math.isfinite(number)
        except (ValueError, OverflowError):
            rule, fix = "must be a number that can be read", "Write fewer digits, or use quotes."
            self._source.add(path, rule, fix, value=f"{len(text)} characters")
            return None
        if not is_finite:
            rule = "must be a finite number"
            self._source.add(path, rule, "Write a number.", value=text[:40])
            return None
        return number


def shown_key(text: str) -> str:
    """Return a key for display in a message."""
    return f"`{text[:40]}`" if text else "empty"


def _start(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


# -- errors of syntax

_TABS = ("lines must be indented by spaces, not tabs", "Replace each tab by two spaces.")
_ONE_DOCUMENT = (
    "the file must hold one YAML document",
    "Remove the `---` that begins a second one.",
)
_ESCAPE = (
    "a backslash in double quotes must begin an escape of YAML",
    "Double the backslash, or put the text in single quotes.",
)
_SYNTAX: dict[str, tuple[str, str]] = {
    "'\\t'": _TABS,
    "undefined alias": ("an alias must follow its anchor", "Define it with `&name` before."),
    "duplicate anchor": (
        "an anchor must be defined once",
        "Give the second one another name.",
    ),
    "single document": _ONE_DOCUMENT,
    "but found another document": _ONE_DOCUMENT,
    "mapping values are not allowed": (
        "a `:` must follow a key at the beginning of a line",
        "Check the indentation, or put the text in quotes if it holds `: `.",
    ),
    "could not find expected ':'": (
        "a key must be followed by `:`",
        "Add the `:`, or check the indentation and the quotes above.",
    ),
    "expected <block end>": (
        "keys of one mapping must be indented alike",
        "Align the line with its neighbours, or close the bracket or quote above.",
    ),
    "invalid Unicode character escape code": (
        "an escape must be that of a character, not of half a pair",
        "Write the character itself, or its code as `\\U` and eight digits.",
    ),
    "unknown escape character": _ESCAPE,
    "hexdecimal number": _ESCAPE,
    "quoted scalar": (
        "a quoted string must end with its quote",
        "Add the missing quote at the end of the text.",
    ),
    "flow": (
        "a `[` or `{` must be closed and its items separated by commas",
        "Add the missing `,`, `]` or `}`.",
    ),
    "cannot start any token": (
        "a string must not begin with a character that YAML reserves (`@`, a backtick, `%`)",
        "Put the text in quotes.",
    ),
}
"""Words of PyYAML's message → rule and fix; the first match counts."""


def _explain(error: yaml.MarkedYAMLError, text: str) -> tuple[str, str]:
    """Return rule and fix for a syntax error, without text of the file, which may be secret."""
    message = f"{error.problem or ''} {error.context or ''}"
    mark = error.problem_mark
    lines = [] if mark is None else text.splitlines()[mark.line : mark.line + 1]
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in lines):
        return _TABS
    unknown = (
        "the file must be valid YAML",
        "Check indentation, quotes and brackets here and above.",
    )
    return next(
        (explanation for words, explanation in _SYNTAX.items() if words in message), unknown
    )
