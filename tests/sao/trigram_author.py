"""A trigram model behind a real chat server: what it samples, and is refit on between rounds, is written."""

import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np

from convergence.plugins.learning.sao import SAOConfig, SAOMixin
from convergence_core.config.evaluation import LlmConfig
from convergence_core.sao.templates import OPENING
from tasks.providers import make_llm
from tasks.secrets.redaction import Secrets
from tests.sao.trigrams import N_PER_ROUND, Trigrams, split
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer

N_PROMPTS = 80
"""Of a round: with two answers each they fill a window of coverage, though a few hold a held-out text."""
N_SENTENCES = 4
"""Of a text: 200 texts then hold the 8,000 pairs of words that a window counts at most."""
_ANSWER = re.compile(r"\[\[BEGIN ANSWER [AB] \w+\]\]\n(.*?)\n\[\[END", re.DOTALL)


class TrigramAuthor:
    """Writes prompts and answers from a stock of sentences; judges by hash, the same in both orders."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.sentences = list(sentences)

    def answer(self, request: Request) -> Answer:
        """Answer one request of the chat protocol; one at a time."""
        shown = str(request.body["messages"][-1]["content"])
        if shown.rstrip().endswith("Letter:"):
            a, b = (hashlib.sha256(t.encode()).digest() for t in _ANSWER.findall(shown))
            return chat_answer("A" if a > b else "B")
        text = " ".join(self.sentences[:N_SENTENCES])
        del self.sentences[:N_SENTENCES]
        return chat_answer(f"{OPENING} {text}" if "The persona:" in shown else text)


@asynccontextmanager
async def play(temperature: float | None, n_rounds: int, seed: int) -> AsyncIterator[SAOMixin]:
    """Let a model write rounds that are refit on the last; yield what has written and watched them.

    Round 0 is real text, which makes the reference. All requests go over a real server and the real client.

    Args:
        temperature: of the samples; ``None``: fresh real text in every round.
        n_rounds: after round 0.
        seed: of all chance.
    """
    rng = np.random.default_rng(seed)
    texts, held_out = split(rng)
    author = TrigramAuthor(texts)
    config = SAOConfig(
        model_name="t", n_personas=N_PROMPTS * (n_rounds + 2), iterative_rounds=n_rounds + 3,
        batch_size=1, use_logprobs=False, quality_filter=False, seed=seed,
    )  # fmt: skip
    with LoopbackServer(author.answer) as server:
        llm = make_llm(LlmConfig(model="t", endpoint=server.url, timeout_seconds=60), Secrets())
        try:
            sao = SAOMixin(llm, config, held_out=held_out)
            await sao.generate_synthetic_dataset(N_PROMPTS)
            assert sao.alarms.reference is not None
            written = texts[:N_PER_ROUND]
            for _ in range(n_rounds):
                if temperature is not None:
                    written = Trigrams(written).write(N_PER_ROUND, temperature, rng)
                    author.sentences = list(written)
                if not (await sao.generate_synthetic_dataset(N_PROMPTS)).pairs:
                    break
                if sao.alarms.is_stopped:
                    break
            yield sao
        finally:
            await llm.aclose()
