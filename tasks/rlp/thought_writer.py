"""Calls of RLP: one per generation, and one before the first.

A failed reply is recorded with its reason and never replaced.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from convergence_core.config.optimization import RlpConfig
from convergence_core.errors import (
    CandidateFault,
    EvaluationFault,
    EvaluatorFault,
    InfrastructureFault,
)
from convergence_core.records import canonical_json, sha256_hex
from convergence_core.rlp.commitments import Thought
from convergence_core.rlp.reply import UnreadableReplyError, read_reply
from tasks.calls.model_calls import THOUGHT, AskModel, Model, answer_and_end
from tasks.rlp.prompts import RlpPrompts, ThoughtRequest, asked_names
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

CUT: Final = "length"
"""``finish_reason`` of a reply that was cut off."""
N_TRIES: Final = 2
"""Number of attempts if the first reply cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtWriter:
    """Model that writes thoughts."""

    model: Model
    wording: RlpPrompts = field(default_factory=RlpPrompts)
    settings: RlpConfig = field(default_factory=RlpConfig)

    async def write(
        self,
        draft: Thought,
        request: ThoughtRequest,
        ask_model: AskModel,
        rng: Callable[[], np.random.Generator],
    ) -> Thought:
        """Write a thought, with a second attempt if the reply cannot be read.

        Args:
            draft: Thought without a reply.
            request: Data and task.
            ask_model: Makes the calls.
            rng: Makes the stream for values that a proposed setting omits.
        """
        thought, problem = draft, ""
        for number in range(N_TRIES):
            thought = await self._asked(thought, request, problem, number, ask_model)
            if thought.reason is None:
                thought = self._read(thought, request, rng())
            if thought.reason is None or not thought.reason.startswith(_UNREADABLE):
                break
            problem = thought.reason.removeprefix(_UNREADABLE)
        return thought

    async def _asked(
        self,
        thought: Thought,
        request: ThoughtRequest,
        problem: str,
        number: int,
        ask_model: AskModel,
    ) -> Thought:
        messages = self.wording.messages(request, problem)
        limit, temperature = self.settings.thought_length, self.settings.temperature
        call = self.model.chat(
            THOUGHT, messages, limit=limit, read=answer_and_end, temperature=temperature
        )
        prompt = canonical_json([*messages])
        thought = replace(
            thought,
            prompt=prompt,
            prompt_sha256=sha256_hex(prompt),
            text="",
            sha256="",
            reason=None,
        )
        try:
            reply, ended_us = await ask_model(call, f"thought/{number}")
        except EvaluationFault as fault:
            return replace(thought, reason=_reason(fault))
        value: Any = reply.value
        text = str(value["text"])
        reason = None
        if not text.strip():
            reason = f"{_UNREADABLE}it is empty"
        elif value["finish_reason"] == CUT:
            reason = f"{_UNREADABLE}it was cut off at {limit} tokens (`thought_length`)"
        paid = (thought.cost_usd, reply.cost_usd)
        return replace(
            thought,
            text=text,
            sha256=sha256_hex(text),
            committed_us=ended_us,
            tokens=reply.usage.completion_tokens,
            cost_usd=None if None in paid[number == 0 :] else sum(cost or 0.0 for cost in paid),
            reason=reason,
        )

    def _read(
        self, thought: Thought, request: ThoughtRequest, rng: np.random.Generator
    ) -> Thought:
        try:
            thought = read_reply(
                thought,
                request.space,
                names=asked_names(request),
                around=request.around,
                known={*(row.candidate_id for row in request.trials), *request.reserved},
                most_settings=request.n_settings,
                rng=rng,
            )
        except UnreadableReplyError as error:
            return replace(thought, reason=_UNREADABLE + one_line(str(error), 300, redacted_text))
        dropped = tuple(one_line(text, 200, redacted_text) for text in thought.dropped)
        return replace(thought, dropped=dropped)


_UNREADABLE: Final = "unreadable: "


def _reason(fault: EvaluationFault) -> str:
    """Return why there is no thought."""
    if isinstance(fault, CandidateFault) and fault.error_type == "empty_reply":
        return f"{_UNREADABLE}it is empty"
    kind = "failed"
    if isinstance(fault, EvaluatorFault):
        kind = "not asked"
    elif not isinstance(fault, InfrastructureFault):
        kind = "refused"
    return one_line(f"{kind} ({fault.error_type}): {fault}", 300, redacted_text)
