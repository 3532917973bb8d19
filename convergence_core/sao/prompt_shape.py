"""Position of the prompt in a test case, and the form of a written prompt.

A system gets written prompts only if each of its test cases holds one text: a string, a mapping
with one text under the same name everywhere, or messages whose last is the user's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convergence_core.records import Case, Json


@dataclass(frozen=True, slots=True)
class PromptShape:
    """Rule for making an input from a prompt."""

    key: str | None = None
    """Name of the text in a mapping; ``None`` without a mapping."""
    as_messages: bool = False

    def text(self, case_input: Json) -> str | None:
        """Return the prompt of an input; ``None`` if it has another shape."""
        value: Any = case_input
        if self.key is not None:
            value = value.get(self.key) if isinstance(value, dict) and len(value) == 1 else None
        if self.as_messages:
            return _last_user_text(value)
        return value if isinstance(value, str) and value.strip() else None

    def input(self, prompt: str) -> Json:
        """Return the input for a prompt."""
        inner: Json = [{"role": "user", "content": prompt}] if self.as_messages else prompt
        return inner if self.key is None else {self.key: inner}


def shape_of(cases: Sequence[Case]) -> PromptShape | None:
    """Return the common shape of all cases; ``None`` if there is none."""
    if not cases:
        return None
    first: Any = cases[0].input
    key = None
    if isinstance(first, dict) and len(first) == 1:
        (key,) = first
        first = first[key]
    shape = PromptShape(key=key, as_messages=isinstance(first, list))
    return shape if all(shape.text(case.input) is not None for case in cases) else None


def _last_user_text(value: Any) -> str | None:
    if not isinstance(value, list) or not value or not isinstance(value[-1], dict):
        return None
    last = value[-1]
    content = last.get("content") if last.get("role") == "user" else None
    return content if isinstance(content, str) and content.strip() else None
