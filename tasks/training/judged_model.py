"""Local model whose answers to held-out prompts are judged.

Its process runs ``main`` of this module, with the lowest priority.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from convergence_core.records import Json
from tasks.models import model_process
from tasks.models.files import LocalModel, ModelFiles, ModelProcessError
from tasks.models.requests import ChatAnswer, ChatRequest, ModelRequest, ScoreRequest

TIMEOUT_S: Final = 3_600.0
"""Time-out of one batch, in seconds."""
NICENESS: Final = 18
"""Added to the model process's own niceness: 19 in all, the lowest priority."""
MAX_TOKENS: Final = 128
"""Maximum tokens of an answer if the logged answer has no limit."""

Messages = tuple[dict[str, str], ...]
PROBE: Final[Messages] = ({"role": "user", "content": "Hello"},)
"""Prompt that tests whether the model answers with an adapter."""


def request_of(messages: Messages, sampling: Mapping[str, Json]) -> ChatRequest:
    """Return a request for a logged prompt with its logged sampling settings."""

    def number(name: str, default: float) -> float:
        value = sampling.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else default  # type: ignore[arg-type] # as checked

    return ChatRequest(
        messages=messages,
        max_tokens=int(number("max_tokens", MAX_TOKENS)),
        temperature=number("temperature", 1.0),
        top_p=number("top_p", 1.0),
    )


def answer_seed(seed: int, key: str, k: int) -> int:
    """Return the seed of the ``k``-th answer to the prompt of a key, in [0, 2**63)."""
    digest = hashlib.sha256(f"{seed}\0{k}\0{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class UnusableAdapterError(ModelProcessError):
    """The model cannot answer with an adapter's weights."""

    def __init__(self, adapter: Path | None, message: str) -> None:
        super().__init__(message)
        self.adapter = adapter


class JudgedModel:
    """One model with any of its adapters; calls block."""

    def __init__(self, files: ModelFiles) -> None:
        """Prepare; the process starts with the first request.

        Args:
            files: Files of the base model.
        """
        self._model = LocalModel(files, module=__name__)

    def answers(
        self, prompts: Mapping[str, ChatRequest], adapter: Path | None, *, n: int, seed: int
    ) -> list[str]:
        """Return ``n`` sampled answers to each prompt, grouped by prompt.

        Args:
            prompts: Key → prompt with its sampling settings.
            adapter: Folder of the adapter; ``None`` means the base model.
            n: Number of answers to each prompt.
            seed: Seed; the same one gives the same answers to a prompt of the same key. Prompts of
                different keys sample independently: an interval over prompts would miss randomness
                common to their answers.

        Raises:
            UnusableAdapterError: the weights of the adapter are at fault.
            ModelProcessError: the process ended, or an answer failed.
        """
        requests: list[ModelRequest] = [
            replace(prompt, seed=answer_seed(seed, key, k), adapter=adapter)
            for key, prompt in prompts.items()
            for k in range(n)
        ]
        return [answer.text for answer in self._answers(requests)]

    def adapter_problem(self, adapter: Path) -> str:
        """Return why the model cannot answer with an adapter's weights; empty if it can."""
        request = ChatRequest(messages=PROBE, max_tokens=1, adapter=adapter)
        answer = self._model.ask(request, TIMEOUT_S).result()
        return answer.error if answer.finish_reason == "adapter" else ""

    def log_likelihoods(
        self, answers: Sequence[tuple[Messages, str]], adapter: Path | None
    ) -> list[float]:
        """Return the log-likelihood of each given answer, with its end token, in nats.

        Raises:
            ModelProcessError: as ``answers``.
        """
        requests: list[ModelRequest] = [
            ScoreRequest(messages=messages, response=text, adapter=adapter)
            for messages, text in answers
        ]
        return [sum(answer.logprobs or ()) for answer in self._answers(requests)]

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self, requests: Sequence[ModelRequest]) -> list[ChatAnswer]:
        futures = [self._model.ask(request, TIMEOUT_S) for request in requests]
        results = [future.result() for future in futures]
        for request, answer in zip(requests, results, strict=True):
            if answer.finish_reason == "adapter":
                raise UnusableAdapterError(request.adapter, answer.error)
            if answer.error:
                raise ModelProcessError(answer.error)
        return results


def main() -> None:
    """Answer in a child process of the lowest priority."""
    os.nice(NICENESS)
    model_process.main()
