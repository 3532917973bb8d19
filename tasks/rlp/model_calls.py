"""Calls of the learners' models: paid calls, none of which is made twice.

What the journal keeps of an answer is what scoring reads: a text, or numbers. So a resumed run
reads the very numbers that were committed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from convergence_core.budget.bounds import prompt_bound
from convergence_core.budget.prices import PriceTable, provider_of
from convergence_core.budget.usage import usage_of
from convergence_core.errors import Billed, CandidateFault, EvaluationFault
from convergence_core.ports import LLM, Completion, WorstCase
from convergence_core.records import Json, Reply, Usage
from tasks.calls.metric_calls import PaidCall

THOUGHT: Final = "thought"
PREDICTION: Final = "prediction"
SAO: Final = "sao"
WRITING: Final = "writing"
GAME: Final = "game"
Purpose: TypeAlias = Literal["thought", "prediction", "sao", "writing", "game", "safety"]
RawPath: TypeAlias = Literal["completions", "embeddings", "moderations", "chat/completions"]
"""Endpoints that are asked with a body as it is; of chat for fields that are a server's own."""


class UnreadableAnswerError(ValueError):
    """An answer does not hold what was asked for."""


class ThoughtAsker(Protocol):
    """Makes paid calls for thoughts; see ``tasks.calls.metric_calls.Asker.ask``."""

    async def ask(self, call: PaidCall, label: str) -> "Answered":
        """Return the stored or new answer, and when it was durable.

        Args:
            call: to be made once.
            label: what it is for: part of its key, so that no two purposes share an answer.

        Raises:
            EvaluationFault: it failed, was refused, or the budget is spent.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A reply, and its entry in the journal."""

    reply: Reply
    ended_us: int | None
    """When it was durable; ``None``: no journal keeps it."""


@runtime_checkable
class Exchanger(Protocol):
    """A model whose server may have endpoints beside chat; see ``OpenAIChat.exchange``."""

    async def exchange(
        self, path: RawPath, body: Mapping[str, Json], /
    ) -> tuple[dict[str, Json], float]:
        """Ask an endpoint once; return its JSON and the milliseconds."""
        ...


class _Answer(NamedTuple):
    read: Callable[[], Json]
    """Returns what is kept of it, or raises ``UnreadableAnswerError``."""
    usage: Usage
    latency_ms: float
    model: str | None
    dropped: tuple[str, ...] = ()
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that thoughts, predictions and judgements come from."""

    llm: LLM
    name: str
    """As its provider calls it."""
    wording_version: str
    timeout_s: float = 60.0
    credential: str | None = None
    """Name of the environment variable of the key."""
    reads_for: Purpose = PREDICTION
    """Purpose of the calls by which probabilities are read."""
    prices: PriceTable = field(default_factory=lambda: PriceTable(version=""))

    def chat(
        self,
        purpose: Purpose,
        messages: Sequence[Mapping[str, Json]],
        *,
        limit: int,
        repeat: int = 0,
        read: Callable[[Completion], Json],
        **options: Json,
    ) -> PaidCall:
        """Return a call of the chat endpoint.

        Args:
            purpose: who pays.
            messages: what is asked.
            limit: longest answer, in tokens.
            repeat: number among equal requests.
            read: what of the answer is kept.
            options: further settings; those the model has no field for are left out.
        """
        shown: list[Json] = [dict(message) for message in messages]
        settings = {"max_tokens": limit, **options}
        body: dict[str, Json] = {"model": self.name, "messages": shown, **settings}

        async def ask() -> _Answer:
            done = await self.llm.complete(messages, model=self.name, **settings)
            return _Answer(
                partial(read, done),
                done.usage,
                done.latency_ms,
                done.model,
                done.dropped,
                done.cost_usd,
            )

        return self._call(purpose, "chat/completions", body, limit, repeat, ask)

    def exchange(
        self,
        purpose: Purpose,
        path: RawPath,
        body: dict[str, Json],
        *,
        limit: int = 0,
        repeat: int = 0,
        read: Callable[[Mapping[str, Json]], Json],
    ) -> PaidCall:
        """Return a call of an endpoint by a body of its own.

        Args:
            purpose: who pays.
            path: of the endpoint.
            body: without the model.
            limit: longest answer, in tokens.
            repeat: number among equal requests.
            read: what of the answer is kept.
        """
        body = {"model": self.name, **body}
        llm = cast("Exchanger", self.llm)  # the probe looks before it asks

        async def ask() -> _Answer:
            raw, latency_ms = await llm.exchange(path, body)
            told = raw.get("model")
            model = told if isinstance(told, str) else None
            return _Answer(partial(read, raw), usage_of(raw), latency_ms, model)

        return self._call(purpose, path, body, limit, repeat, ask)

    def _call(  # noqa: PLR0917 - of one place, twice
        self,
        purpose: Purpose,
        path: str,
        body: dict[str, Json],
        limit: int,
        repeat: int,
        ask: Callable[[], Awaitable["_Answer"]],
    ) -> PaidCall:
        n_prompt = prompt_bound(body)
        provider = self.llm.provider
        return PaidCall(
            purpose=purpose,
            provider=provider,
            model=self.name,
            request={
                "wording_version": self.wording_version,
                "base_url": self.llm.base_url,
                "path": path,
                "model": self.name,
                "body": body,
            },
            repeat=repeat,
            credential=self.credential,
            worst=WorstCase(
                usd=self.prices.worst_case(self._billed_by, self.name, n_prompt, limit),
                tokens=None if n_prompt is None else n_prompt + limit,
            ),
            timeout_s=self.timeout_s,
            send=partial(self._reply, ask),
        )

    async def _reply(self, ask: Callable[[], Awaitable["_Answer"]]) -> Reply:
        """Make a call once; what it was billed is priced whatever came of it."""
        try:
            answer = await ask()
            try:
                value = answer.read()
            except UnreadableAnswerError as error:
                billed = Billed(usage=answer.usage, cost_usd=answer.cost_usd, model=answer.model)
                raise CandidateFault(str(error), error_type="unreadable", billed=billed) from None
        except EvaluationFault as fault:
            if fault.billed is not None:
                cost_usd, version = self._priced(fault.billed.usage, fault.billed.cost_usd)
                fault.billed = replace(fault.billed, cost_usd=cost_usd, price_version=version)
            raise
        cost_usd, version = self._priced(answer.usage, answer.cost_usd)
        return Reply(
            value=value,
            latency_ms=answer.latency_ms,
            cost_usd=cost_usd,
            price_version=version,
            usage=answer.usage,
            model=answer.model,
            provider=self.llm.provider,
            dropped=answer.dropped,
        )

    @property
    def _billed_by(self) -> str:
        """The provider whose prices hold: a compatible endpoint may be another one's."""
        return provider_of(self.llm.provider, self.llm.base_url)

    def _priced(self, usage: Usage, told: float | None) -> tuple[float | None, str | None]:
        return self.prices.settled(self._billed_by, self.name, usage, reported_usd=told)
