"""Choice of a tool and its arguments by the words of a request.

The user's last message is split into steps, at the ends of sentences and at *then*. For each step
the mock calls the tool whose name and description share most words with it. If no text holds an
argument ``…_id``, it searches earlier results for the object with the name in the step; without
one, it first calls a tool that lists or reads such objects. A turn is good or bad as a whole, by
the same rule as other answers. A bad turn calls nothing, calls another tool, or uses wrong
arguments.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tasks.json_values import mapping
from tasks.mock.prompt_text import content_words, sentences, uniform
from tasks.mock.protocol import Message, ModelRequest, Tool
from tasks.mock.schemas import ValueSource, fill

LEAST_FIT: Final = 4
"""Minimum points for a call: 3 for a word of the tool's name, 5 for the first, 1 for one of its
description.
"""
_STEM: Final = 5
"""Number of letters that identify the forms of a word."""
_DEEPEST: Final = 3
"""Maximum tools that one step calls to find identifiers."""
_THEN: Final = re.compile(r"[,;]?\s+(?:and\s+)?then\s+", re.IGNORECASE)
_QUOTED: Final = re.compile(r"[\"“]([^\"”]+)[\"”]")
_MASK: Final = re.compile("\ue000(\\d+)\ue001")
_SMALL: Final = re.compile(r"(?<![\w#.-])\d{1,3}(?![\w.-]*\d)")
_READS: Final = frozenset({"list", "get", "search", "read", "fetch", "find"})
_NOTHING: Final = "nothing"
_OTHER: Final = "other tool"
_WRONG: Final = "wrong arguments"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """Messages since the user's last one."""

    question: str
    steps: Sequence[str]
    called: Sequence[str]
    """Names of the called tools, in order."""
    objects: Sequence[Mapping[str, Any]]
    """Objects in the results."""
    system: str
    """System prompt."""


def asks(request: ModelRequest) -> ModelRequest:
    """Return the request up to the user's last message, which decides whether a turn is good."""
    last = _last_user(request.messages)
    return replace(request, messages=request.messages[: last + 1])


def choose(request: ModelRequest, *, good: bool) -> Tool | None:
    """Return the next tool of a turn, with its arguments; ``None`` for an answer in words."""
    turn = _turn(request)
    if good:
        return _next(turn, request.offered)
    draw = (request.model, request.system, turn.question)
    mistake = (_NOTHING, _OTHER, _WRONG)[int(3 * uniform("mistake", *draw))]
    if mistake == _NOTHING or (mistake == _OTHER and turn.called):
        return None
    if mistake == _WRONG:
        tool = _next(turn, request.offered)
        if tool is None or len(turn.called) >= len(turn.steps):
            return None
        source = ValueSource(
            text=turn.question, answer=turn.question, good=False, draw=turn.question
        )
        return replace(tool, arguments=fill(tool.schema, source))
    right = _best(turn.steps[0], request.offered) if turn.steps else None
    others = [tool for tool in request.offered if tool is not right]
    if not others:
        return None
    other = others[int(len(others) * uniform("other tool", *draw))]
    return replace(other, arguments=_arguments(other, turn.question, turn))


def answer(request: ModelRequest) -> str | None:
    """Return a call's arguments, or the relevant results of a turn; ``None`` without either."""
    if request.tool is not None:
        arguments = request.tool.arguments
        return None if arguments is None else json.dumps(arguments, ensure_ascii=False)
    last = _last_user(request.messages)
    results = [message.text for message in request.messages[last + 1 :] if message.role == "tool"]
    if not results:
        return None
    wanted = _stems(request.messages[last].text)
    lines = [line for text in results for line in _lines(text)]
    ranked = sorted(
        enumerate(lines), key=lambda entry: (-len(wanted & _stems(entry[1])), -entry[0])
    )
    return " ".join(line for _, line in ranked[:2]) or "There was no result."


# -- a turn


def _last_user(messages: Sequence[Message]) -> int:
    positions = [i for i, message in enumerate(messages) if message.role == "user"]
    return positions[-1] if positions else len(messages) - 1


def _turn(request: ModelRequest) -> _Turn:
    last = _last_user(request.messages)
    question = request.messages[last].text
    since = request.messages[last + 1 :]
    return _Turn(
        question=question,
        steps=_steps(question),
        called=[name for message in since for name in message.calls],
        objects=[
            entry
            for message in since
            if message.role == "tool"
            for entry in _objects(message.text)
        ],
        system=request.system,
    )


def _steps(question: str) -> list[str]:
    """Split a text at the ends of sentences and at *then*, except in quotation marks."""
    quoted = _QUOTED.findall(question)
    numbers = iter(range(len(quoted)))
    masked = _QUOTED.sub(lambda _: f'"\ue000{next(numbers)}\ue001"', question)
    steps = [
        step for sentence in sentences(masked) for step in _THEN.split(sentence) if step.strip()
    ]
    return [_MASK.sub(lambda match: quoted[int(match[1])], step) for step in steps]


def _next(turn: _Turn, offered: Sequence[Tool]) -> Tool | None:
    called = [*turn.called]
    for step in turn.steps:
        tool = _best(step, offered)
        if tool is None:
            continue
        before = _lookup(tool, step, turn, offered, depth=0)
        if before is not None:
            return before
        if tool.name not in called:
            return replace(tool, arguments=_arguments(tool, step, turn))
        called.remove(tool.name)
    return None


def _lookup(
    tool: Tool, step: str, turn: _Turn, known: Sequence[Tool], *, depth: int
) -> Tool | None:
    """Return a call that may find an identifier that a tool needs; ``None`` if none is needed."""
    for name in _required(tool):
        if depth >= _DEEPEST or not name.endswith("_id") or _identifier(name, step, turn):
            continue
        spoken = _stems(name.removesuffix("_id").replace("_", " "))
        for other in known:
            parts = other.name.split("_")
            if (
                other.name not in turn.called
                and parts[0] in _READS
                and name not in _required(other)
                and spoken & _stems(" ".join(parts[1:]))
            ):
                first = _lookup(other, step, turn, known, depth=depth + 1)
                return first or replace(other, arguments=_arguments(other, step, turn))
    return None


def _best(step: str, tools: Sequence[Tool]) -> Tool | None:
    step_stems = _stems(step)

    def points(tool: Tool) -> int:
        named = _stems(tool.name.replace("_", " "))
        verb = _stems(tool.name.split("_")[0])
        of_name = 3 * len(step_stems & named) + 2 * len(step_stems & verb)
        return of_name + len(step_stems & (_stems(tool.description) - named))

    best = max(tools, key=points, default=None)
    return best if best is not None and points(best) >= LEAST_FIT else None


# -- arguments


def _arguments(tool: Tool, step: str, turn: _Turn) -> dict[str, Any]:
    arguments = {}
    for name, kind in mapping(tool.schema.get("properties")).items():
        is_needed = name in _required(tool)
        value = _value(name, mapping(kind), step, turn, is_needed=is_needed)
        if value is None and is_needed:
            value = step if mapping(kind).get("type", "string") == "string" else None
        if value is not None:
            arguments[name] = value
    return arguments


def _value(name: str, kind: Mapping[str, Any], step: str, turn: _Turn, *, is_needed: bool) -> Any:
    """Return an argument; an optional one only if the step contains its name, or a number."""
    types = {kind.get("type"), *(variant.get("type") for variant in kind.get("anyOf", ()))}
    if name.endswith("_id"):
        return _identifier(name, step, turn)
    if types & {"integer", "number"}:
        numbers = _SMALL.findall(_QUOTED.sub(" ", step))
        return int(numbers[0]) if numbers else None
    if types & {"boolean", "array", "object"}:
        return None
    quoted = _QUOTED.findall(step)
    spoken = re.escape(name).replace("_", "[ _]")
    after = re.search(
        rf"\b{spoken}\b\s*(?::|=|\bis\b)?\s*[\"“]([^\"”]+)[\"”]", step, re.IGNORECASE
    )
    if after is not None:
        return after[1]
    named = [word for word in quoted if is_needed and not _is_named(word, step, turn)]
    return named[-1] if named else None


def _is_named(quoted: str, step: str, turn: _Turn) -> bool:
    """Return whether a quoted text names an object of the results rather than an argument."""
    return len(_QUOTED.findall(step)) > 1 and any(
        quoted in map(str, entry.values()) for entry in turn.objects
    )


def _identifier(name: str, step: str, turn: _Turn) -> str | None:
    spoken = re.escape(name.removesuffix("_id")).replace("_", "[ _]")
    near = re.search(rf"\b{spoken}\b\s*(?:id\b)?\s*[:=#]?\s*(\d{{4,}})", step, re.IGNORECASE)
    if near is not None:
        return near[1]
    names = [*_QUOTED.findall(step), *re.findall(r"#([\w-]+)", step)]
    for entry in turn.objects:
        key = next((key for key in (name, "id") if entry.get(key)), None)
        if key is None:
            continue
        texts = [str(value) for part, value in entry.items() if part != key]
        is_kind = key == name or _is_kind(name, entry)
        if is_kind and any(name in texts for name in names):
            return str(entry[key])
    match = re.search(rf"\b{spoken}\b\D{{0,20}}(\d{{4,}})", turn.system, re.IGNORECASE)
    return None if match is None else match[1]


def _is_kind(name: str, value: Mapping[str, Any]) -> bool:
    """Return whether an object may have the type of an identifier, judged by its content."""
    is_text = not value.keys().isdisjoint({"content", "body", "selftext"})
    return is_text == (name in ("message_id", "comment_id", "post_id", "email_id"))


def _required(tool: Tool) -> Sequence[str]:
    required = tool.schema.get("required")
    return required if isinstance(required, list) else []


# -- results


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from (node for node in _nodes(value) if isinstance(node, dict))


def _lines(text: str) -> list[str]:
    """Return a line for each entry of a result, or its sentences if it is not JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return sentences(text)
    while isinstance(value, dict):
        listed = [value for value in value.values() if isinstance(value, list) and value]
        value = listed[0] if listed else [value]
    entries = value if isinstance(value, list) else [value]
    texts = [[str(x) for x in _nodes(e) if isinstance(x, str | int) and x != ""] for e in entries]
    return [", ".join(words) for words in texts if words]


def _nodes(value: Any) -> Iterator[Any]:
    """Yield a JSON value and all values within it, level by level."""
    waiting = [value]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting += (
            node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        )


def _stems(text: str) -> set[str]:
    return {word.removesuffix("s")[:_STEM] for word in content_words(text)}
