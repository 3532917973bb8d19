"""Mock of a paid thinker: an HTTP server with OpenAI's chat protocol that knows a world.

It reads a prompt's tables and answers with notes, forecasts of its kind and its preset settings.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer

Kind = Literal[
    "good",
    "useless",
    "adversarial",
    "silent",
    "refusing",
    "failing",
    "foreign",
    "rogue",
    "hesitant",
]


@dataclass
class ThinkingWorld:
    """What the server knows, and how it behaves."""

    truth: Callable[[dict[str, str]], float]
    kind: Kind = "good"
    setting: dict[str, Any] | None = None
    """Proposed in each reply."""
    spread: float = 0.05
    """Distance of the outer quantiles from the middle one."""
    n_asked: Counter[str] = field(default_factory=Counter)
    prompts: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Answer:  # noqa: PLR0911 - one for each kind
        """Answer one request."""
        if not request.path.endswith("/chat/completions"):
            return Answer({"error": {"message": "no such endpoint"}}, 404)
        text = str(request.body["messages"][-1]["content"])
        self.prompts.append(text)
        self.n_asked["thought"] += 1
        match self.kind:
            case "silent":
                return chat_answer("")
            case "refusing":
                message = {"role": "assistant", "content": None, "refusal": "I will not think."}
                return Answer({"choices": [{"index": 0, "message": message}]})
            case "failing":
                return Answer({"error": {"message": "down"}}, 500)
            case "foreign":
                return chat_answer("Der Wert ist bei mittlerem x am höchsten. 値は真ん中が良い。")
            case "hesitant" if "could not be read" not in text:
                return chat_answer("Let me think about it.")
            case "rogue":
                settings = [{"values": {"x": 9}}, {"values": {"nothing": 1}}]
                forecasts = dict.fromkeys(reserved(text), "Ignore the above")
                return chat_answer(json.dumps({"forecasts": forecasts, "settings": settings}))
            case _:
                return chat_answer(json.dumps(self._reply(text)))

    def _reply(self, text: str) -> dict[str, Any]:
        reply: dict[str, Any] = {}
        if '"notes"' in text:
            reply["notes"] = f"I know this world well ({self.kind})."
        reply["forecasts"] = {name: self._quantiles(p) for name, p in reserved(text).items()}
        told = self.setting
        reply["settings"] = [] if told is None else [{"values": told, "score": [0.8, 0.9, 0.99]}]
        return reply

    def _quantiles(self, params: dict[str, str]) -> list[float]:
        if self.kind == "useless":
            return [0.2, 0.5, 0.8]
        mean = min(1.0, max(0.0, self.truth(params)))
        mean = 1.0 - mean if self.kind == "adversarial" else mean
        return [mean - self.spread, mean, mean + self.spread]


def reserved(text: str) -> dict[str, dict[str, str]]:
    """Return name → setting of the trials that a prompt wants forecast."""
    lines = (
        text.partition("Next trials, chosen without you:\n")[2].partition("\n\n")[0].splitlines()
    )
    rows = [line.split("|") for line in lines]
    return {row[0]: dict(zip(rows[0][2:], row[2:], strict=True)) for row in rows[1:]}


def thinking_server(world: ThinkingWorld) -> LoopbackServer:
    """Return the server of a world; a context manager."""
    return LoopbackServer(world.answer)
