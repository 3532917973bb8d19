"""Roles of a chat: the persona that answers, by name."""

import difflib
from collections.abc import Mapping
from typing import Final

from convergence_core.errors import ConfigurationError

BUILT_IN: Final[Mapping[str, str]] = {
    "assistant": "You are a helpful assistant. Answer what is asked, plainly and briefly. Say so when "
    "you do not know.",
    "code": "You are an experienced programmer. Answer with code that runs, in the language of the "
    "question, and explain in a sentence or two what is not obvious.",
    "creative": "You are a writer. Answer with original, vivid language, and keep to the form that is "
    "asked for.",
}
"""Role → its persona, the opening of the system message."""
DEFAULT: Final = "assistant"


def persona_of(role: str, personas: Mapping[str, str]) -> str:
    """Return the persona of a role.

    Args:
        role: Name of the role.
        personas: Configured roles, which override built-in ones.

    Raises:
        ConfigurationError: there is no such role.
    """
    known = {**BUILT_IN, **personas}
    if role in known:
        return known[role]
    near = difflib.get_close_matches(role, known, n=1)
    hint = f"Did you mean `{near[0]}`? " if near else ""
    raise ConfigurationError.of(
        "feedback.roles",
        f"must name the role: known are {', '.join(known)}",
        f"{hint}Or write `{role[:64]}: <its persona>` below `feedback.roles`.",
        value=role[:64],
    )
