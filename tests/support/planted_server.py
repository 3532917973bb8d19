"""Planted author and judge behind a real HTTP server with OpenAI's protocol.

It recognises four requests by their content: write a prompt in persona, answer one, judge two
answers, distil instructions. Answers carry a tag with a hidden quality.
"""

import hashlib
import math
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from convergence_core.sao.preferences import sigmoid
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer

Mode = Literal["fair", "always_first", "garbage", "http500"]

TAG = re.compile(r"\[\[r(\d+)q(-?\d+)\]\]")
_SUBJECTS = [
    "roof",
    "boiler",
    "invoice",
    "passport",
    "bicycle",
    "timetable",
    "deposit",
    "allergy",
    "parcel",
    "warranty",
    "refund",
    "hedge",
    "ticket",
    "landlord",
    "payslip",
    "ballot",
    "vaccine",
    "mortgage",
    "kettle",
    "router",
    "luggage",
    "licence",
    "subscription",
]
_WORDS = [
    f"{a}{b}"
    for a in ("al", "ber", "cor", "den", "el", "fin", "gar", "hol")
    for b in ("ta", "mer", "son", "vik", "dale", "ford", "wick", "lund", "ness")
]


@dataclass
class PlantedWorld:
    """Knowledge and behavior of the server."""

    mode: Mode = "fair"
    quality: Callable[[dict[str, Any]], float] = lambda _body: 0.0
    """Body of a request for an answer → mean quality of its author."""
    spread: float = 1.0
    """Deviation of an answer's quality around its author's."""
    delta: float = 0.3
    length: float = 0.0
    noise: float = 0.3
    """Deviation of the log-odds of each order."""
    breaks: frozenset[str] = frozenset({"prompt", "answer", "judgement"})
    """What `garbage` and `http500` spoil."""
    lies: bool = False
    """Whether the judge reports the opposite of what it sees."""
    n_words: tuple[int, int] = (15, 60)
    """Words of an answer, as bounds."""
    vocabulary: int | None = None
    """Words that answers are made of; ``None``: thousands."""
    distilled: str = "Answer in three short steps. Name the office that decides."
    truth: Callable[[str], str | None] = lambda _prompt: None
    """Prompt of a test case → what it is to be answered; ``None``: it is none."""
    meaning_of: Callable[[str], str] | None = None
    """Text → what it means: texts that mean the same have the same direction. ``None``: the server has
    no `embeddings`."""
    prompt_of: Callable[[int], str] | None = None
    """Number of the prompt → its text; by default all differ."""
    n_asked: Counter[str] = field(default_factory=Counter)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(what, text that was shown)."""
    _n_of: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        body = request.body
        if request.path.endswith("/embeddings") and self.meaning_of is not None:
            return self._embed(body, self.meaning_of)
        if request.path.endswith("/chat/completions"):
            return self._chat(body)
        self._count("refused", str(request.path))
        return Answer({"error": {"message": "no such endpoint"}}, 404)

    def _chat(self, body: dict[str, Any]) -> Answer:
        shown = "\n".join(str(message["content"]) for message in body["messages"])
        if shown.rstrip().endswith("Letter:"):
            return self._judge(shown)
        if "You write requests" in shown:
            return self._write(shown)
        if "You improve the standing instructions" in shown:
            self._count("distilled", shown)
            return chat_answer(self.distilled)
        return self._reply(body, shown)

    def _embed(self, body: dict[str, Any], meaning_of: Callable[[str], str]) -> Answer:
        self._count("embedding", body["input"])
        if "embedding" in self.breaks and self.mode == "http500":
            return Answer({"error": {"message": "down"}}, 500)
        vector = 3.0 * _rng(meaning_of(body["input"])).normal(size=64)
        found = {"object": "embedding", "index": 0, "embedding": vector.tolist()}
        usage = {"prompt_tokens": 9, "total_tokens": 9}
        return Answer({"object": "list", "data": [found], "model": body["model"], "usage": usage})

    def _count(self, what: str, shown: str) -> int:
        with self._lock:
            self.n_asked[what] += 1
            self.asked.append((what, shown))
            self._n_of[shown] += 1
            return self._n_of[shown]

    def _write(self, shown: str) -> Answer:
        self._count("prompt", shown)
        if self.mode == "http500" and "prompt" in self.breaks:
            return Answer({"error": {"message": "down"}}, 500)
        if self.mode == "garbage" and "prompt" in self.breaks:
            return chat_answer("I'm sorry, but I cannot help with that.")
        rng = _rng(shown)
        if self.prompt_of is not None:
            return chat_answer(f"User prompt: {self.prompt_of(int(rng.integers(1_000_000)))}")
        words = " ".join(str(w) for w in rng.choice(_WORDS, 25))
        about = rng.choice(_SUBJECTS)
        return chat_answer(f"User prompt: What shall I do about the {about} of {words}?")

    def _reply(self, body: dict[str, Any], shown: str) -> Answer:
        n = self._count("answer", shown)
        if self.mode == "http500" and "answer" in self.breaks:
            return Answer({"error": {"message": "down"}}, 500)
        rng = _rng(f"{shown}/{sorted(_settings(body).items())}/{n}")
        z = self.quality(body) + self.spread * float(rng.normal())
        n_words = (
            self.n_words[n % 2] if self.mode == "garbage" else int(rng.integers(*self.n_words))
        )
        own = rng.choice(_WORDS[: self.vocabulary], n_words)
        ends = [""] * n_words if self.vocabulary else rng.integers(99, size=n_words)
        words = " ".join(f"{word}{end}" for word, end in zip(own, ends, strict=True))
        return chat_answer(f"[[r{rng.integers(10**6)}q{round(1000 * z)}]] {words}")

    def _p_first(self, shown: str) -> float | None:
        """Return P(the first is better), or ``None`` if there is nothing to judge."""
        a, _, b = shown.partition("[[BEGIN ANSWER B")
        tags = [TAG.findall(part) for part in (a, b)]
        if not tags[0] or not tags[1]:
            return 0.6  # a probe, or test cases, which bear no tag
        if self.mode == "always_first":
            return 0.95
        z = [int(found[-1][1]) / 1000 for found in tags]
        lengths = [math.log(max(1, len(part))) for part in (a[a.rfind("[[BEGIN") :], b)]
        noise = self.noise * float(_rng(shown).normal())
        return sigmoid(
            1.5 * (z[0] - z[1]) + self.delta + self.length * (lengths[0] - lengths[1]) + noise
        )

    def _of_case(self, shown: str) -> float | None:
        """Return P(the first is better) of answers to a test case, whose truth the judge sees."""
        parts = re.findall(r"\[\[BEGIN (REQUEST|ANSWER A|ANSWER B) \w+\]\]\n(.*?)\n\[\[END", shown,
                           re.DOTALL)  # fmt: skip
        found: dict[str, str] = dict(parts)
        told = self.truth(found.get("REQUEST", ""))
        if told is None:
            return None
        right = [found["ANSWER A"] == told, found["ANSWER B"] == told]
        sign = -1 if self.lies else 1
        longer = math.log(len(found["ANSWER A"]) / len(found["ANSWER B"]))
        said = (
            sign * (int(right[0]) - int(right[1])) * math.log(9.0)
        )  # .9 of what it sees is right
        return sigmoid(said + self.length * longer)

    def _judge(self, shown: str) -> Answer:
        self._count("judgement", shown)
        has_tags = len(TAG.findall(shown)) >= 2
        broken = has_tags and "judgement" in self.breaks
        if broken and self.mode == "garbage":
            return chat_answer("neither")
        if broken and self.mode == "http500":
            return Answer({"error": {"message": "down"}}, 500)
        p = self._of_case(shown)
        if p is None:
            p = self._p_first(shown) or 0.5
        return chat_answer("A" if p >= 0.5 else "B")


def planted_server(world: PlantedWorld) -> LoopbackServer:
    """Return the server of a world; a context manager."""
    return LoopbackServer(world.answer)


def _settings(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("temperature", "top_p") if name in body}


def _rng(text: str) -> np.random.Generator:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed)
