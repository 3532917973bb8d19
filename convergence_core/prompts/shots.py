"""Demonstrations (shots) at the end of a prompt, sent as chat turns."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from convergence_core.records import Json

_BLOCK: Final = re.compile(r"\n*<shots>\n(?P<body>.*)\n</shots>\s*\Z", re.DOTALL)
_SHOT: Final = re.compile(
    r"<shot>\n<user>(?P<user>.*?)</user>\n<assistant>(?P<assistant>.*?)</assistant>\n</shot>",
    re.DOTALL,
)
END: Final = "</shots>"
"""End of a prompt with demonstrations."""
TAG: Final = re.compile(r"</?(?:shots?|user|assistant)>")
"""Tags that no demonstration may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One demonstration: a case's input as text, and the correct answer."""

    user: str
    assistant: str

    @property
    def is_plain(self) -> bool:
        """Whether it can be written: neither side is empty or holds a tag of the block."""
        sides = (self.user, self.assistant)
        return all(side.strip() and TAG.search(side) is None for side in sides)

    def input(self, like: Json) -> Json:
        """Return the input in the form of another case's: parsed as JSON unless a string."""
        if isinstance(like, dict | list):
            try:
                value: Json = json.loads(self.user)
            except ValueError:
                return self.user
            return value
        return self.user


def split(text: str) -> tuple[str, tuple[Shot, ...]]:
    """Return a prompt without its demonstrations, and these.

    A broken block of demonstrations stays in the prompt.
    """
    match = _BLOCK.search(text)
    if match is None:
        return text, ()
    shots = [
        Shot(user=shot["user"], assistant=shot["assistant"])
        for shot in _SHOT.finditer(match["body"])
    ]
    if _SHOT.sub("", match["body"]).strip() or not shots:
        return text, ()
    return text[: match.start()], tuple(shots)


def joined(instruction: str, shots: Sequence[Shot]) -> str:
    """Return a prompt with these demonstrations at its end, in this order."""
    if not shots:
        return instruction
    body = "\n".join(
        f"<shot>\n<user>{shot.user}</user>\n<assistant>{shot.assistant}</assistant>\n</shot>"
        for shot in shots
    )
    return f"{instruction}\n\n<shots>\n{body}\n</shots>"
