"""Separation of a model's thinking from its answer by tags.

Tags: ``<think>`` of DeepSeek-R1, Qwen and similar models, ``[THINK]`` of Mistral, ``<thought>`` of
Gemini's compatible endpoint, ``<thinking>`` if a prompt requests it, ``◁think▷`` of Kimi, and the
channels of GPT-OSS (harmony) if a server delivers them as text. If a chat template writes the
opening tag into the prompt, the answer has only the closing tag.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

TextCallback: TypeAlias = Callable[[str], object]
"""Callback for each piece of an answer's text as it arrives."""

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
"""Closing tags with an opening tag that a chat template may write."""
_LONE: Final = re.compile(
    rf"([\"'`])</think>\1|(?P<tag>{'|'.join(map(re.escape, _WRITTEN_BY_TEMPLATES))})"
)
"""Closing tag; between quotes it is part of a sentence about tags."""
_THINKERS: Final = re.compile(r"think|reason|qwq|\br1\b", re.IGNORECASE)
"""Names of models with templates that write the opening tag."""


class SplitText(NamedTuple):
    """Thinking and answer of a model's text."""

    thinking: str | None
    """Thinking; ``None`` if there is none."""
    answer: str


def split_thinking(text: str) -> SplitText:
    """Return the thinking at the start of a text, and the answer after it.

    Unfinished thinking leaves no answer. Later tags belong to the answer.
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
    """Filter that forwards the answer in a streamed text and withholds the thinking.

    Args:
        on_text: Callback for each piece of the answer, or ``None``.
        is_split: Whether to separate thinking; otherwise every piece is forwarded.
        holds: Whether the text starts within thinking, with the opening tag in the prompt.
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
        """Forwarded text so far."""

    def release(self) -> None:
        """Treat all further text as answer, since the thinking arrives in a separate field."""
        self._closing = None

    def add(self, piece: str) -> bool:
        """Add the next piece; return whether any of the answer was forwarded."""
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
    """Return whether answers of a model with this name may start within thinking."""
    return _THINKERS.search(model) is not None
