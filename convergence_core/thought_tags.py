"""Thinking between tags, apart from the answer.

Tags: ``<think>`` of DeepSeek-R1, Qwen and their like, ``[THINK]`` of Mistral, ``<thought>`` of Gemini's
compatible endpoint, ``<thinking>`` where a prompt asks for it, ``◁think▷`` of Kimi, and the channels of
GPT-OSS (harmony) where a server delivers them as text. A chat template may write the opening tag into the
prompt: then the answer holds the closing tag alone.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

TextCallback: TypeAlias = Callable[[str], object]
"""Called with each piece of an answer's text as it comes."""

_CLOSING: Final = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|channel|>analysis<|message|>": "<|end|><|start|>assistant<|channel|>final<|message|>",
}
"""Opening tag → closing tag."""
_WRITTEN_BY_TEMPLATES: Final = ("</think>", "[/THINK]", "◁/think▷")
"""Closing tags whose opening tag a chat template may write."""
_LONE: Final = re.compile(
    rf"([\"'`])</think>\1|(?P<tag>{'|'.join(map(re.escape, _WRITTEN_BY_TEMPLATES))})"
)
"""A closing tag; between quotes it is part of a sentence about tags."""
_THINKERS: Final = re.compile(r"think|reason|qwq|\br1\b", re.IGNORECASE)
"""Names of models whose templates write the opening tag."""


class SplitText(NamedTuple):
    """A model's text in its two parts."""

    thinking: str | None
    """``None`` if there is none."""
    answer: str


def split_thinking(text: str) -> SplitText:
    """Return the thinking at the beginning of a text, and the answer after it.

    Thinking that does not end leaves no answer. Tags further on belong to the answer.
    """
    thoughts: list[str] = []
    rest = text
    while opening := _opening(rest):
        thought, _, rest = rest.lstrip().removeprefix(opening).partition(_CLOSING[opening])
        thoughts.append(thought.strip())
    if rest is text:
        lone = next((match for match in _LONE.finditer(text) if match["tag"]), None)
        if lone is None or any(tag in text[: lone.start()] for tag in _CLOSING):
            return SplitText(None, text)
        thoughts, rest = [text[: lone.start()].strip()], text[lone.end() :]
    return SplitText("\n\n".join(filter(None, thoughts)) or None, rest.lstrip())


def _opening(text: str) -> str | None:
    begin = text.lstrip()
    return next((tag for tag in _CLOSING if begin.startswith(tag)), None)


class AnswerPieces:
    """Passes on the pieces of a streamed text that are answer, and holds its thinking back.

    Args:
        on_text: called with each piece of the answer; ``None`` if no one listens.
        is_split: whether thinking is kept apart; if not, every piece is passed on.
        holds: whether the text begins within thinking, whose opening tag is in the prompt.
    """

    def __init__(
        self, on_text: TextCallback | None, *, is_split: bool = True, holds: bool = False
    ) -> None:
        self._on_text = on_text
        self._is_answer = not is_split
        self._closing: tuple[str, ...] | None = (
            _WRITTEN_BY_TEMPLATES if holds and is_split else None
        )
        self._is_after_thinking = False
        self._held = ""
        self.passed = ""
        """All that was passed on."""

    def release(self) -> None:
        """Take what comes for answer: the thinking comes in a field of its own."""
        self._closing = None

    def add(self, piece: str) -> bool:
        """Take the next piece; return whether some of the answer was passed on."""
        self._held += piece
        while not self._is_answer:
            if self._closing is not None:
                parts = (self._held.partition(closing) for closing in self._closing)
                rest = next((rest for _, tag, rest in parts if tag), None)
                if rest is None:
                    self._held = self._held[-max(map(len, self._closing)) :]
                    return False
                self._held, self._closing, self._is_after_thinking = rest, None, True
                continue
            begin = self._held.lstrip()
            if lone := next((tag for tag in _WRITTEN_BY_TEMPLATES if begin.startswith(tag)), None):
                self._held, self._is_after_thinking = begin.removeprefix(lone), True
            elif (opening := _opening(begin)) is not None:
                self._held, self._closing = begin.removeprefix(opening), (_CLOSING[opening],)
            elif any(tag.startswith(begin) for tag in (*_CLOSING, *_WRITTEN_BY_TEMPLATES)):
                return False
            else:
                self._is_answer = True
                self._held = begin if self._is_after_thinking else self._held
        text, self._held = self._held, ""
        self.passed += text
        if text and self._on_text is not None:
            self._on_text(text)
        return bool(text)


def begins_within(model: str) -> bool:
    """Return whether a model's name says that its answers may begin within thinking."""
    return _THINKERS.search(model) is not None
