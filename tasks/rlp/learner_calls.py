"""Parts of a run that its learners are made of: shares of its budget, and calls."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from convergence_core.errors import EvaluationFault, EvaluatorFault
from convergence_core.ports import LLM, Row, RunRecord, Store, Target, WorstCase
from convergence_core.result.number_text import usd
from convergence_core.search.study_state import StudyState
from tasks.calls.metric_calls import PaidCall
from tasks.calls.session import AskStandalone, EvaluationSession
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.rlp.channel_probe import ChannelProbe
from tasks.rlp.model_calls import Answered, ThoughtAsker

T = TypeVar("T")


@dataclass(slots=True)
class SubBudget:
    """What one learner may still cost."""

    limit_usd: float | None
    """``None``: no limit of its own."""
    spent_usd: float = 0.0
    owner: str = "thoughts"
    key: str = "society.rlp.max_share_usd"
    """Of the configuration, which sets the limit."""
    limit_calls: int | None = None
    """``None``: no limit of its own."""
    n_calls: int = 0
    """Made so far."""

    def reserve(self, worst: WorstCase, n_calls: int = 1) -> float:
        """Set aside the worst case of one call, or of some; return it.

        Raises:
            EvaluatorFault: the limit is spent.
        """
        most_usd = worst.usd or 0.0
        if self.limit_calls is not None and self.n_calls + n_calls > self.limit_calls:
            raise EvaluatorFault(
                f"the share of {self.owner} in `budget.max_calls` is spent ({self.n_calls:,} of "
                f"{self.limit_calls:,} calls; `{self.key}`)",
                error_type="budget",
            )
        if self.limit_usd is not None and self.spent_usd + most_usd > self.limit_usd:
            raise EvaluatorFault(
                f"the share of {self.owner} in `budget.max_usd` is spent ({usd(self.spent_usd)} of "
                f"{usd(self.limit_usd)}, and the next call may cost {usd(most_usd)}; `{self.key}`)",
                error_type="budget",
            )
        self.spent_usd += most_usd
        self.n_calls += n_calls
        return most_usd

    def settle(self, reserved: float, paid: float | None) -> None:
        """Give back what a call did not cost; an unknown price counts as the worst case."""
        if paid is not None:
            self.spent_usd += paid - reserved


class BoundedAsker:
    """An asker with at most so many requests in flight."""

    def __init__(self, asker: ThoughtAsker, n: int) -> None:
        self._asker = asker
        self._free = asyncio.Semaphore(n)

    async def ask(self, call: PaidCall, label: str) -> Answered:
        """See ``ThoughtAsker``."""
        async with self._free:
            return await self._asker.ask(call, label)


@dataclass(frozen=True, slots=True)
class _RunAsker:
    """Makes calls in a run's session, on behalf of one generation."""

    ask_once: AskStandalone
    scope: str
    generation: int
    budget: SubBudget

    async def ask(self, call: PaidCall, label: str) -> Answered:
        """See ``ThoughtAsker``."""
        reserved = self.budget.reserve(call.worst)
        paid: float | None = 0.0
        try:
            reply, ended_us = await self.ask_once(
                call, label=f"{self.scope}/{label}", generation=self.generation
            )
            paid = reply.cost_usd
        except EvaluationFault as fault:
            paid = 0.0 if fault.billed is None else fault.billed.cost_usd
            raise
        finally:
            self.budget.settle(reserved, paid)
        return Answered(reply=reply, ended_us=ended_us)


@dataclass(slots=True, eq=False)
class LearnerCalls:
    """Calls of one learner in a run's session, paid from a budget of its own."""

    name: str
    """Of the learner, as people read it."""
    session: EvaluationSession
    budget: SubBudget
    n_at_once: int = 1_000
    """Most requests in flight."""
    on_notice: Callable[[str], None] | None = None
    """Told once why the learner does nothing."""
    disabled_reason: str | None = field(default=None, init=False)
    """Why the learner does nothing in this run; ``None``: it works."""
    _probe: ChannelProbe | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    def run(
        self,
        work: Callable[[ThoughtAsker], Awaitable[T]],
        generation: int,
        *,
        scope: str | None = None,
    ) -> T:
        """Return what some calls bring.

        Args:
            work: makes them with the asker that it gets.
            generation: on whose behalf.
            scope: beginning of the calls' keys; ``None``: the generation's.
        """
        where = f"g{generation}" if scope is None else scope

        async def go(ask: AskStandalone) -> T:
            asker = _RunAsker(ask, where, generation, self.budget)
            return await work(BoundedAsker(asker, self.n_at_once))

        result: T = self.session.run(go)
        return result

    def probed(
        self,
        probe: Callable[[ThoughtAsker], Awaitable[ChannelProbe]],
        generation: int,
        scope: str,
    ) -> ChannelProbe:
        """Return the model's probability channel, probed once; without one the learner is disabled."""
        if self._probe is None:
            self._probe = self.run(probe, generation, scope=scope)
            if self._probe.disabled_reason is not None:
                self.disable(self._probe.disabled_reason)
        return self._probe

    def disable(self, reason: str) -> None:
        """Let the learner do nothing more, and say why."""
        self.disabled_reason = f"{self.name} off: {reason}"
        if self.on_notice is not None:
            self.on_notice(self.disabled_reason)

    def close(self, *models: LLM | Target | None) -> None:
        """Close the models' connections, in the session's loop; safe to call twice."""

        async def close(_: AskStandalone) -> None:
            for model in models:
                if model is not None:
                    await model.aclose()

        if not self._is_closed:
            self._is_closed = True
            self.session.run(close)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerParts:
    """Parts of an open run that its learners are made of."""

    record: RunRecord
    loaded: Loaded
    world: Environment
    """Keys and prices, and the server that answers in a model's place."""
    redact: Callable[[str], str]
    """Keeps secrets out of what is stored or sent."""
    target: Target
    """The optimized system; closed by its session."""
    session: EvaluationSession
    store: Store
    attempts: Callable[[], Sequence[Row]]
    """Returns the run's calls, among them those of its learners."""
    state: StudyState
    """Of the last committed generation."""
    held: ExitStack
    """Ends what a learner opens, with the run."""
    on_notice: Callable[[str], None] | None
    """Hears why a learner does nothing."""

    def tell(self, text: str) -> None:
        """Pass a notice on to the listener, if there is one."""
        if self.on_notice is not None:
            self.on_notice(text)

    def calls(
        self,
        name: str,
        max_share: float,
        purposes: Collection[str],
        *,
        owner: str,
        key: str,
        n_at_once: int = 1_000,
    ) -> LearnerCalls:
        """Return the calls of a learner, with what is left of its share of the dollars.

        Args:
            name: of the learner, as people read it.
            max_share: of ``budget.max_usd``.
            purposes: of its calls, in the journal.
            owner: of the share, in messages.
            key: that sets the share.
            n_at_once: most requests in flight.
        """
        limit = self.loaded.configuration.budget.max_usd
        budget = SubBudget(
            limit_usd=None if limit is None else limit * max_share,
            spent_usd=spent_on(purposes, self.attempts(), self.state.next_generation),
            owner=owner,
            key=key,
        )
        return LearnerCalls(
            name, self.session, budget, n_at_once=n_at_once, on_notice=self.on_notice
        )


def spent_on(
    purposes: Collection[str], attempts: Iterable[Mapping[str, Any]], next_generation: int
) -> float:
    """Return what these purposes of committed generations have cost, lost calls at their worst."""
    return sum(
        float(row.get("cost_usd") or row.get("maybe_usd") or 0.0)
        for row in attempts
        if row["purpose"] in purposes
        and row["generation"] is not None
        and int(row["generation"]) < next_generation
    )
