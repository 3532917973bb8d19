"""A model's process without a model: it repeats the last message, and does what that says."""

import os
import time

from tasks.functions.processes import Parent
from tasks.models.requests import ChatAnswer, ChatRequest


def main() -> None:
    parent = Parent()

    def answer(message: tuple[list[ChatRequest], float]) -> list[ChatAnswer]:
        requests, _ = message
        texts = [request.messages[-1]["content"] for request in requests]
        if "die" in texts:
            os._exit(9)
        if "hang" in texts:
            time.sleep(600)
        return [
            ChatAnswer(
                text=f"{text} of {len(requests)}",
                finish_reason="timeout" if text == "late" else "stop",
                prompt_tokens=3,
                completion_tokens=1,
                latency_ms=5.0,
            )
            for text in texts
        ]

    parent.serve(answer)
