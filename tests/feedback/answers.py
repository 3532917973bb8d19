"""Answers to be rated in tests."""

from typing import Any

from convergence_core.feedback.records import ChatMessage, Interaction


def answer(name: str = "a", *, prompt: str = "What is 2 + 2?", **values: Any) -> Interaction:
    """Return an answer of user ``ann``; ``name`` is its id and its event."""
    given: dict[str, Any] = {
        "interaction_id": name, "source": "chat", "event_id": name, "role": "assistant",
        "user_id": "ann", "model": "stand-in", "response": f"It is {name}.", "created_us": 1_000,
        "messages": (ChatMessage(role="user", content=prompt),),
    }  # fmt: skip
    return Interaction(**given | values)
