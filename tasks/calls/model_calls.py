"""Calls of chat models, paid only once, with worst-case and actual costs.

Judges, agents and learners call their models through ``Model``. The journal keeps the part of an
answer that its caller reads: a string, or numbers. A resumed run therefore reads exactly the
committed numbers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeAlias, runtime_checkable

from convergence_core.budget.bounds import prompt_bound
from convergence_core.budget.prices import PriceTable, provider_of
from convergence_core.budget.usage import is_priced_apart, may_exceed_tables
from convergence_core.errors import Billed, CandidateFault, EvaluationFault
from convergence_core.ports import LLM, Completion, WorstCase
from convergence_core.records import Json, Reply, Usage, fields_of
from tasks.calls.metric_calls import PaidCall

THOUGHT: Final = "thought"
SAO: Final = "sao"
WRITING: Final = "writing"
GAME: Final = "game"


class UnreadableAnswerError(ValueError):
    """An answer lacks the requested content."""


@runtime_checkable
class _HasVariants(Protocol):
    """Model whose base URL does not fully determine the endpoint."""

    def variant(self, model: str) -> Mapping[str, Json]:
        """Return the parts of the address that a plain endpoint of this base URL lacks."""


AskModel: TypeAlias = Callable[[PaidCall, str], Awaitable[tuple[Reply, int | None]]]
"""(call, label) → the stored or new answer, and the time of its storage (µs; ``None`` without a
journal). The label is the purpose and part of the key, so that different purposes share no answer.
Raises ``EvaluationFault``: the call failed, or the budget is exhausted.
"""


async def ask_directly(call: PaidCall, label: str) -> tuple[Reply, None]:  # noqa: ARG001 - of ``AskModel``
    """Make a call without a run: no journal, no ledger."""
    return await call.send(), None


def answer_and_end(done: Completion) -> Json:
    """Return the parts of an answer that tell whether it is whole."""
    return {"text": done.text, "finish_reason": done.finish_reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Chat model whose calls have a worst-case cost before and a price after."""

    llm: LLM
    name: str
    """Name at the provider."""
    wording_version: str = ""
    """Version of the prompts, part of the request of ``chat``."""
    timeout_s: float = 60.0
    credential: str | None = None
    prices: PriceTable = field(default_factory=lambda: PriceTable(version=""))

    def chat(
        self,
        purpose: str,
        messages: Sequence[Mapping[str, Json]],
        *,
        limit: int,
        read: Callable[[Completion], Json],
        temperature: float | None,
    ) -> PaidCall:
        """Return a call of a learner.

        Args:
            purpose: paying role.
            messages: the prompt.
            limit: maximum length of the answer, in tokens.
            read: extracts the part of the answer to keep.
            temperature: randomness of the answer; ``None`` omits it.
        """
        key: dict[str, Json] = {
            "wording_version": self.wording_version,
            "path": "chat/completions",
        }
        settings: dict[str, Json] = {"max_tokens": limit}
        if temperature is not None:
            settings["temperature"] = temperature
        return self.call(purpose, messages, settings, key=key, read=read)

    def call(
        self,
        purpose: str,
        messages: Sequence[Mapping[str, Json]],
        settings: Mapping[str, Json],
        *,
        key: Mapping[str, Json],
        read: Callable[[Completion], Json],
        repeat: int = 0,
    ) -> PaidCall:
        """Return a call of the chat endpoint.

        Args:
            purpose: paying role.
            messages: the prompt.
            settings: further fields of the request, with ``max_tokens`` or
                ``max_completion_tokens``.
            key: further parts of the call's key, such as the version of the prompts.
            read: extracts the part of the answer to keep.
            repeat: number among equal requests.
        """
        shown: list[Json] = [dict(message) for message in messages]
        body: dict[str, Json] = {"model": self.name, "messages": shown, **settings}
        n_prompt = prompt_bound(body)
        limit = settings.get("max_completion_tokens") or settings["max_tokens"]
        longest = limit if isinstance(limit, int) and limit > 0 else None
        address = self.llm.variant(self.name) if isinstance(self.llm, _HasVariants) else {}
        return PaidCall(
            purpose=purpose,
            provider=self.llm.provider,
            model=self.name,
            request={
                **key,
                "base_url": self.llm.base_url,
                **address,
                "model": self.name,
                "body": body,
            },
            repeat=repeat,
            **fields_of(self, "credential", "timeout_s"),
            worst=WorstCase(
                usd=self.prices.worst_case(
                    self._billed_by, self.name, n_prompt, longest, is_apart=may_exceed_tables(body)
                ),
                tokens=None if n_prompt is None or longest is None else n_prompt + longest,
            ),
            send=partial(self._reply, messages, settings, read),
        )

    async def _reply(
        self,
        messages: Sequence[Mapping[str, Json]],
        settings: Mapping[str, Json],
        read: Callable[[Completion], Json],
    ) -> Reply:
        """Make a call once and price its billed usage, whatever its outcome."""
        is_apart = is_priced_apart(settings)
        try:
            done = await self.llm.complete(messages, model=self.name, **settings)
            is_apart = is_apart or is_priced_apart(done.raw)
            try:
                value = read(done)
            except UnreadableAnswerError as error:
                billed = Billed(usage=done.usage, cost_usd=done.cost_usd, model=done.model)
                raise CandidateFault(str(error), error_type="unreadable", billed=billed) from None
        except EvaluationFault as fault:
            if fault.billed is not None:
                cost_usd, version = self._priced(
                    fault.billed.usage, fault.billed.cost_usd, is_apart=is_apart
                )
                fault.billed = replace(fault.billed, cost_usd=cost_usd, price_version=version)
            raise
        cost_usd, version = self._priced(done.usage, done.cost_usd, is_apart=is_apart)
        return Reply(
            value=value,
            cost_usd=cost_usd,
            price_version=version,
            provider=self.llm.provider,
            **fields_of(done, "latency_ms", "usage", "model", "dropped", "finish_reason"),
        )

    @property
    def _billed_by(self) -> str:
        """Provider whose prices apply, which may differ for a compatible endpoint."""
        return provider_of(self.llm.provider, self.llm.base_url)

    def _priced(
        self, usage: Usage, reported_usd: float | None, *, is_apart: bool
    ) -> tuple[float | None, str | None]:
        return self.prices.settled(
            self._billed_by, self.name, usage, reported_usd=reported_usd, is_apart=is_apart
        )
