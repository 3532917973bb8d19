"""Writer of SAO: prompts, the system's own answers, prompts distilled from pairs.

Answers come from the target with a candidate's parameters, as in an evaluation. Their calls are
journaled and paid separately. A fault is an error with its reason; nothing replaces the missing
text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from convergence_core.errors import EvaluationFault
from convergence_core.ports import Target
from convergence_core.records import Candidate, Case, Json, Reply
from convergence_core.sao.preferences import Answer, JudgedPair, PairKind
from convergence_core.sao.prompt_shape import PromptShape
from convergence_core.sao.templates import distilling, prompt_of, writing
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import SAO, AskModel, Model, answer_and_end
from tasks.json_values import as_text
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

STOP: Final = "stop"
N_AT_ONCE: Final = 10
"""Maximum requests of a round in flight."""
LONGEST_PROMPT: Final = 512
"""Maximum tokens of a prompt."""
LONGEST_ANSWER: Final = 2048
"""Maximum tokens of a chat model's answer without another limit."""
LONGEST_TEXT: Final = 20_000
"""Maximum characters of a distilled prompt."""


class FailedError(Exception):
    """There is no text; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringSystem:
    """System that answers."""

    target: Target
    warm: Target | None
    """The target at the temperature for answers; ``None`` if it is not a chat model."""
    shape: PromptShape
    credential: str | None = None
    timeout_s: float = 60.0

    def call(self, prompt: str, params: Mapping[str, Any], kind: PairKind, turn: int) -> PaidCall:
        """Return the call for one answer.

        Args:
            prompt: Prompt to answer.
            params: Parameters of the answering candidate.
            kind: An incumbent answers at the temperature for answers, a candidate at its own.
            turn: Number among equal requests.

        Raises:
            CandidateFault: these parameters make no valid request.
        """
        target = self.target
        if kind == "incumbent" and self.warm is not None:
            target = self.warm
            params = {name: value for name, value in params.items() if name != "temperature"}
        case = Case(case_id=f"sao/{kind}", input=self.shape.input(prompt))
        return PaidCall.of_target(
            target,
            params,
            case,
            purpose=SAO,
            credential=self.credential,
            timeout_s=self.timeout_s,
            repeat=turn,
        )

    async def answer(
        self,
        prompt: str,
        candidate: Candidate,
        kind: PairKind,
        turn: int,
        *,
        label: str,
        ask_model: AskModel,
    ) -> Answer:
        """Return one answer.

        Raises:
            FailedError: the call failed.
        """
        reply = await reply_of(
            partial(self.call, prompt, candidate.params, kind, turn), label, ask_model
        )
        # Functions and endpoints give no finish reason, so their answers count as complete.
        reason = reply.finish_reason if self.warm is not None else STOP
        return Answer(
            text=as_text(reply.value), author=candidate.candidate_id, finish_reason=reason
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Model that writes and distils prompts."""

    model: Model
    task: str
    """Purpose of the system."""

    async def write(
        self,
        persona: str,
        *,
        temperature: float | None,
        failures: Sequence[str],
        label: str,
        ask_model: AskModel,
    ) -> str:
        """Return one prompt.

        Raises:
            FailedError: the call failed, was cut off, or returned no prompt.
        """
        messages = writing(persona, task=self.task, failures=failures)
        text = await self._text(messages, LONGEST_PROMPT, temperature, label, ask_model)
        prompt = prompt_of(text)
        if prompt is None:
            raise FailedError("prompt: the answer is empty, or a refusal")
        return prompt

    async def distil(
        self, text: str, pairs: Sequence[JudgedPair], *, label: str, ask_model: AskModel
    ) -> str:
        """Return a new variant of a prompt, distilled from pairs of answers.

        Raises:
            FailedError: the call failed, or the result is not a valid variant.
        """
        examples = [(p.comparison.prompt, p.chosen.text, p.rejected.text) for p in pairs]
        messages = distilling(text, examples)
        summary = (await self._text(messages, 4 * LONGEST_PROMPT, None, label, ask_model)).strip()
        if not summary or len(summary) > LONGEST_TEXT:
            raise FailedError("distilled text: empty, or longer than 20,000 characters")
        if "[[BEGIN" in summary or "[[END" in summary:
            raise FailedError("distilled text: it holds a fence")
        if placeholders(summary) != placeholders(text):
            raise FailedError("distilled text: its placeholders are not those of the text")
        return summary

    async def _text(
        self,
        messages: Sequence[Mapping[str, Json]],
        limit: int,
        temperature: float | None,
        label: str,
        ask_model: AskModel,
    ) -> str:
        call = self.model.chat(
            SAO, messages, limit=limit, read=answer_and_end, temperature=temperature
        )
        value: Any = (await reply_of(lambda: call, label, ask_model)).value
        if value["finish_reason"] not in (STOP, None):
            purpose = label.partition("/")[0]
            raise FailedError(f"{purpose}: it was cut off ({value['finish_reason']})")
        return str(value["text"])


def placeholders(text: str) -> frozenset[str]:
    """Return the names in braces that a text holds."""
    return frozenset(re.findall(r"\{([^\W\d][\w.]*)\}", text))


async def reply_of(make_call: Callable[[], PaidCall], label: str, ask_model: AskModel) -> Reply:
    """Return the reply to a call, whose purpose is the first part of its label.

    Raises:
        FailedError: the call failed.
    """
    try:
        reply, _ = await ask_model(make_call(), label)
    except EvaluationFault as fault:
        raise failed(label.partition("/")[0], fault) from None
    return reply


def failed(purpose: str, fault: EvaluationFault) -> FailedError:
    """Return the error for a failed call."""
    return FailedError(
        f"{purpose}: {one_line(f'{fault.error_type}: {fault}', 200, redacted_text)}"
    )
