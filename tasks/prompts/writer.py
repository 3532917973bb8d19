"""Writers of prompts: a model, or rules that make no call."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from convergence_core.config.prompts import PromptsConfig
from convergence_core.errors import EvaluationFault
from convergence_core.ports import Completion
from convergence_core.prompts.editor import Edit
from convergence_core.prompts.operators import WriterAnswer, WriterRequest, read_answers
from convergence_core.prompts.state import RULES
from convergence_core.prompts.twins import written_by_rules
from convergence_core.records import Json
from tasks.calls.model_calls import WRITING, AskModel, Model, UnreadableAnswerError

TOO_FEW: Final = "the writer wrote fewer prompts than the request wants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Result of a request."""

    answer: WriterAnswer | None
    """``None`` if the call failed, was refused, or exceeds the budget."""
    cost_usd: float | None = None
    """Cost in dollars; ``None`` if unknown."""
    reason: str = ""
    is_over_budget: bool = False
    """Whether the budget refused the call."""


class TextWriter(Protocol):
    """Writes prompts for planned edits."""

    @property
    def name(self) -> str:
        """``rules``, or the model's name."""

    @property
    def is_free(self) -> bool:
        """Whether it makes no call, so that a rejected prompt is replaced immediately."""

    async def write(
        self, edits: Sequence[Edit], ask_model: AskModel, rng: np.random.Generator
    ) -> list[Writing]:
        """Return the result of each edit, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesWriter:
    """Writer by rules."""

    name: str = RULES
    is_free: bool = True

    async def write(
        self,
        edits: Sequence[Edit],
        ask_model: AskModel,  # noqa: ARG002 - of the protocol
        rng: np.random.Generator,
    ) -> list[Writing]:
        """See ``TextWriter``."""
        return [
            Writing(
                answer=written_by_rules(edit.operator, edit.prompts, edit.cases, rng, edit.labels),
                cost_usd=0.0,
            )
            for edit in edits
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWriter:
    """Writer that calls a chat model."""

    model: Model
    settings: PromptsConfig
    is_free: bool = False

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    async def write(
        self,
        edits: Sequence[Edit],
        ask_model: AskModel,
        rng: np.random.Generator,  # noqa: ARG002 - of the protocol
    ) -> list[Writing]:
        """See ``TextWriter``; requests run concurrently, one for all edits that share it."""
        groups: dict[WriterRequest, list[Edit]] = {}
        for edit in edits:
            if edit.request is not None:
                groups.setdefault(edit.request, []).append(edit)
        written = await asyncio.gather(
            *(self._written(request, group, ask_model) for request, group in groups.items())
        )
        by_id = {name: writing for group in written for name, writing in group.items()}
        return [by_id[edit.mutation_id] for edit in edits]

    async def _written(
        self, request: WriterRequest, edits: Sequence[Edit], ask_model: AskModel
    ) -> dict[str, Writing]:
        """Return edit id → result; the edits share the cost of a call equally."""
        n = len(edits)
        call = self.model.chat(
            WRITING,
            request.messages(),
            limit=n * self.settings.max_tokens,
            read=_text_of,
            temperature=self.settings.temperature,
        )
        try:
            reply, _ = await ask_model(call, f"{edits[0].index}/{request.operator}")
        except EvaluationFault as fault:
            if n > 1 and fault.error_type == "budget":  # half of them may be affordable
                halves = [edits[: n // 2], edits[n // 2 :]]
                first, second = await asyncio.gather(
                    *(
                        self._written(replace(request, n_prompts=len(half)), half, ask_model)
                        for half in halves
                    )
                )
                return {**first, **second}
            paid = 0.0 if fault.billed is None else fault.billed.cost_usd
            over = fault.error_type == "budget"
            each = None if paid is None else paid / n
            missing = Writing(answer=None, cost_usd=each, reason=str(fault), is_over_budget=over)
            return dict.fromkeys((edit.mutation_id for edit in edits), missing)
        each = None if reply.cost_usd is None else reply.cost_usd / n
        answers: list[WriterAnswer | None] = [*read_answers(str(reply.value), n)]
        answers += [None] * (n - len(answers))
        return {
            edit.mutation_id: Writing(
                answer=answer, cost_usd=each, reason="" if answer else TOO_FEW
            )
            for edit, answer in zip(edits, answers, strict=True)
        }


def _text_of(done: Completion) -> Json:
    """Return the text of a complete answer.

    Raises:
        UnreadableAnswerError: it was cut off, or is empty.
    """
    if done.finish_reason == "length":
        raise UnreadableAnswerError("the written text was cut off (`prompts.max_tokens`)")
    if not done.text.strip():
        raise UnreadableAnswerError("the writer answered nothing")
    return done.text
