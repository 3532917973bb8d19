"""Streamed answers: server-sent events, joined into one answer.

Events follow the HTML standard, section 9.2.6; providers use only ``data``. A stream is whole if
it ends with ``[DONE]`` or a finish reason. One that just stops was cut.
"""

import codecs
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Final, Protocol, TypeAlias

from convergence_core.budget.usage import usage_of
from convergence_core.errors import InfrastructureFault
from convergence_core.records import Json
from convergence_core.thought_tags import AnswerPieces
from tasks.json_values import as_text, mapping, mappings, to_json
from tasks.providers.answers import (
    REASONING,
    content_text,
    function_of,
    reasoning_text,
    refusal_of,
    tool_calls_of,
)

DONE = "[DONE]"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
EVENTS: Final = re.compile(rb"(\xef\xbb\xbf)?\s*(data|event|id|retry)?:")
"""Beginning of a stream."""
_ENDED: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})
"""Final statuses of an OpenAI response."""


async def event_data(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """Yield the data of each event of a stream.

    Only line feeds and carriage returns end lines, unlike in Python's ``splitlines``. A last event
    without an empty line after it is yielded if it is whole.
    """
    begun: list[bytes] = []
    """Parts of an unfinished line."""
    lines: list[bytes] = []
    is_first, has_returned = True, False
    async for chunk in chunks:
        more = chunk.removeprefix(b"\n") if has_returned else chunk
        has_returned = chunk.endswith(b"\r") if chunk else has_returned
        begun.append(more)
        if b"\n" not in more and b"\r" not in more:
            continue
        *pieces, rest = _LINE_END.split(b"".join(begun))
        begun = [rest]
        for line in pieces:
            bare = line.removeprefix(codecs.BOM_UTF8) if is_first else line
            is_first = False
            if bare.startswith(b"data:"):
                lines.append(bare[5:].removeprefix(b" "))
            elif not bare and lines:
                yield b"\n".join(lines).decode("utf-8-sig", "replace")
                lines = []
    rest = b"".join(begun)
    if rest.startswith(b"data:"):
        lines.append(rest[5:].strip())
    last = b"\n".join(lines).decode("utf-8-sig", "replace")
    if last and (last.strip() == DONE or _is_json(last)):
        yield last


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class Joiner(Protocol):
    """Joiner of the pieces of one answer."""

    def add(self, piece: Mapping[str, Json]) -> bool:
        """Add the next piece; return whether it holds part of the answer."""

    @property
    def is_whole(self) -> bool:
        """Whether the answer has ended."""

    @property
    def raw(self) -> dict[str, Json]:
        """Answer as if it had come in one piece."""


EventCallback: TypeAlias = Callable[[Mapping[str, Json]], object]
"""Callback for each event of a streamed answer as it comes."""


class EventJoiner:
    """Joiner that passes on the events of OpenAI's responses; the last holds the whole response.

    It passes an error on only after other events: an error that comes first is the fault of the
    whole call.
    """

    def __init__(self, on_event: EventCallback) -> None:
        self._on_event = on_event
        self._has_begun = False
        self.raw: dict[str, Json] = {}
        self.is_whole = False

    def add(self, piece: Mapping[str, Json]) -> bool:
        """See ``Joiner.add``."""
        self._has_begun = self._has_begun or not (
            piece.get("error") or piece.get("type") == "error"
        )
        if self._has_begun:
            self._on_event(piece)
        response = piece.get("response")
        if isinstance(response, dict) and response.get("status") in _ENDED:
            self.raw, self.is_whole = response, True
        return "delta" in piece


class ChatJoiner:
    """Joiner of the chat protocol's chunks; only the first choice is used."""

    def __init__(self, pieces: AnswerPieces) -> None:
        self._pieces = pieces
        self._head: dict[str, Json] = {}
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._logprobs: list[Json] = []
        self._calls: list[dict[str, Json]] = []
        self._slots: dict[object, int] = {}
        self._finish_reason: str | None = None
        self._has_choice = False

    def add(self, piece: Mapping[str, Json]) -> bool:
        """Add a chunk; return whether it holds a piece of text or of a tool call."""
        for name in ("id", "model", "usage", "x_groq"):
            if piece.get(name) is not None:
                if name == "usage" and name in self._head and not usage_of(piece).total:
                    continue  # some servers send zeros after the numbers
                self._head[name] = piece[name]
        for choice in mappings(piece.get("choices")):
            if choice.get("index", 0) in (0, None):
                return self._add_choice(choice)
        return False

    def _add_choice(self, choice: Mapping[str, Json]) -> bool:
        self._has_choice = True
        reason, delta = choice.get("finish_reason"), choice.get("delta")
        # Beside an empty delta, some servers repeat the whole message.
        delta = mapping(choice.get("message") if delta is None else delta)
        if isinstance(reason, str) and reason:
            self._finish_reason = reason
        is_content = False
        self._logprobs += mappings(mapping(choice.get("logprobs")).get("content"))
        if reasoning := reasoning_text(delta):
            self._reasoning.append(reasoning)
            self._pieces.release()
        if text := content_text(delta.get("content")):
            self._text.append(text)
            is_content = self._pieces.add(text)
        if refusal := refusal_of(delta):
            self._refusal.append(refusal)
            is_content = True
        for call in tool_calls_of(delta):
            self._add_call(call)
            is_content = True
        return is_content

    def _add_call(self, piece: Mapping[str, Json]) -> None:
        """Add to the call that a piece belongs to, by index or id, or start a new call.

        Some servers do not increment the index. There, another id begins a call, and so does a
        name after a whole call. Some servers repeat the name.
        """
        key: object = piece.get("index")
        if key is None:  # Gemini sends whole calls without an index
            key = piece.get("id") or f"call {len(self._calls)}"
        identity, function = piece.get("id"), function_of(piece)
        is_new = key not in self._slots
        if not is_new:
            is_new = _begins_another(self._calls[self._slots[key]], identity, function)
        if is_new:
            self._slots[key] = len(self._calls)
            kind = "custom" if piece.get("custom") else "function"
            self._calls.append({"id": identity, "type": kind, "name": "", "arguments": ""})
        call = self._calls[self._slots[key]]
        for name in ("name", "arguments"):
            text = function.get(name)
            if text is not None and (name == "arguments" or text != call[name]):
                call[name] = str(call[name]) + as_text(text)

    @property
    def is_whole(self) -> bool:
        """Whether a finish reason came."""
        return self._finish_reason is not None

    @property
    def raw(self) -> dict[str, Json]:
        """Answer as if it had come in one piece."""
        content = "".join(self._text) if self._text else None
        message: dict[str, Json] = {"role": "assistant", "content": content}
        if self._reasoning:
            message[REASONING] = "".join(self._reasoning)
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._calls:
            message["tool_calls"] = [*map(_whole_call, self._calls)]
        choice: dict[str, Json] = {
            "index": 0,
            "finish_reason": self._finish_reason,
            "message": message,
        }
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        choices: list[Json] = [choice] if self._has_choice else []
        return {**self._head, "object": "chat.completion", "choices": choices}


def _begins_another(
    call: Mapping[str, Json], identity: Json, function: Mapping[str, Json]
) -> bool:
    """Return whether a piece under a call's index belongs to another call."""
    name, arguments = function.get("name"), function.get("arguments")
    is_whole = _is_json(str(call["arguments"]))
    has_more = is_whole and arguments is not None and bool(as_text(arguments).strip())
    if identity and call["id"]:
        return identity != call["id"] and (bool(name) or has_more)
    return bool(name) and (has_more or (is_whole and name != call["name"]))


def _whole_call(call: Mapping[str, Json]) -> Json:
    kind = str(call["type"])
    text = "input" if kind == "custom" else "arguments"
    function = {"name": call["name"], text: call["arguments"]}
    return {"id": call["id"], "type": kind, kind: function}


def read_piece(data: str, *, url: str) -> dict[str, Json]:
    """Return the JSON of one event.

    Raises:
        InfrastructureFault: the data is not a JSON object.
    """
    try:
        piece = to_json(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise _broken(f"a piece of the answer of {url} is not JSON: {error}", "bad_body") from None
    if not isinstance(piece, dict):
        raise _broken(f"a piece of the answer of {url} is not an object", "bad_body")
    return piece


def cut_fault(url: str) -> InfrastructureFault:
    """Return the fault of a stream that stopped before the answer ended."""
    return _broken(f"the stream of {url} was cut before the answer ended", "cut_stream")


def _broken(why: str, kind: str) -> InfrastructureFault:
    return InfrastructureFault(why, error_type=kind, may_be_billed=True)


class AnthropicJoiner:
    """Joiner of the events of Anthropic's messages, with blocks by index."""

    def __init__(self, pieces: AnswerPieces) -> None:
        self._pieces = pieces
        self._head: dict[str, Json] = {}
        self._usage: dict[str, Json] = {}
        self._blocks: dict[object, dict[str, Json]] = {}
        self._arguments: dict[object, str] = {}
        self._stop_reason: Json = None

    def add(self, piece: Mapping[str, Json]) -> bool:
        """Add an event; return whether it holds text or part of a tool call."""
        kind, index = piece.get("type"), piece.get("index")
        delta = mapping(piece.get("delta"))
        if kind == "message_start":
            self._head = {**mapping(piece.get("message"))}
            self._usage = {**mapping(self._head.get("usage"))}
        elif kind == "content_block_start":
            self._blocks[index] = {**mapping(piece.get("content_block"))}
            return self._blocks[index].get("type") == "tool_use"
        elif kind == "content_block_delta":
            return self._add_delta(index, delta)
        elif kind == "message_delta":
            self._stop_reason = delta.get("stop_reason") or self._stop_reason
            # The last event's numbers cover the whole answer.
            self._usage |= {n: v for n, v in mapping(piece.get("usage")).items() if v is not None}
        return False

    def _add_delta(self, index: object, delta: Mapping[str, Json]) -> bool:
        block = self._blocks.setdefault(index, {"type": "text"})
        text, arguments = delta.get("text"), delta.get("partial_json")
        if isinstance(thinking := delta.get("thinking"), str):
            block["thinking"] = str(block.get("thinking") or "") + thinking
        if isinstance(text, str) and text:
            block["text"] = str(block.get("text") or "") + text
            return self._pieces.add(text)
        if isinstance(arguments, str):
            self._arguments[index] = self._arguments.get(index, "") + arguments
            return bool(arguments)
        return False

    @property
    def is_whole(self) -> bool:
        """Whether a finish reason came."""
        return self._stop_reason is not None

    @property
    def raw(self) -> dict[str, Json]:
        """Answer as if it had come in one piece."""
        blocks: list[Json] = []
        for index, block in self._blocks.items():
            written = self._arguments.get(index)
            blocks.append({**block, "input": _arguments(written)} if written else block)
        return {
            **self._head,
            "content": blocks,
            "stop_reason": self._stop_reason,
            "usage": self._usage,
        }


def _arguments(text: str) -> Json:
    """Return the arguments of a call, or the model's string if it is not JSON."""
    try:
        return to_json(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return text
