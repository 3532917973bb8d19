"""Learners' access to their run: parts, budget shares and calls."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from convergence_core.errors import EvaluationFault, EvaluatorFault
from convergence_core.ports import LLM, Row, RunRecord, Target, WorstCase
from convergence_core.records import Reply
from convergence_core.result.number_text import usd
from convergence_core.search.study_state import StudyState
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import AskModel
from tasks.calls.session import AskStandalone, EvaluationSession
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.store.tables.parquet_store import ParquetStore

T = TypeVar("T")


@dataclass(slots=True)
class SubBudget:
    """Remaining budget of one learner."""

    limit_usd: float | None
    """US dollars; ``None`` means no limit besides the run's."""
    spent_usd: float = 0.0
    owner: str = "thoughts"
    key: str = "society.rlp.max_share_usd"
    """Configuration key that sets the limit."""

    def reserve(self, worst: WorstCase) -> float:
        """Reserve and return the worst case of a call.

        Raises:
            EvaluatorFault: the limit is exhausted.
        """
        most_usd = worst.usd or 0.0
        if self.limit_usd is not None and self.spent_usd + most_usd > self.limit_usd:
            raise EvaluatorFault(
                f"the share of {self.owner} in `budget.max_usd` is spent ({usd(self.spent_usd)} of "
                f"{usd(self.limit_usd)}, and the next call may cost {usd(most_usd)}; `{self.key}`)",
                error_type="budget",
            )
        self.spent_usd += most_usd
        return most_usd

    def settle(self, reserved: float, paid: float | None) -> None:
        """Release the unspent part of a reservation; an unknown price counts as the worst case."""
        if paid is not None:
            self.spent_usd += paid - reserved


def bounded(ask: AskModel, n: int) -> AskModel:
    """Return an asker with at most ``n`` requests in flight."""
    free = asyncio.Semaphore(n)

    async def ask_one(call: PaidCall, label: str) -> tuple[Reply, int | None]:
        async with free:
            return await ask(call, label)

    return ask_one


@dataclass(slots=True, eq=False)
class LearnerCalls:
    """Calls of one learner in a run's session, paid from a separate budget."""

    name: str
    """Display name of the learner."""
    session: EvaluationSession
    budget: SubBudget
    n_at_once: int = 1_000
    """Maximum number of requests in flight."""
    on_notice: Callable[[str], None] | None = None
    """Called once with the reason why the learner is disabled."""
    disabled_reason: str | None = field(default=None, init=False)
    """Why the learner is disabled in this run; ``None`` if it works."""
    _is_closed: bool = field(default=False, init=False)

    def run(
        self,
        work: Callable[[AskModel], Awaitable[T]],
        generation: int,
        *,
        scope: str | None = None,
    ) -> T:
        """Run calls and return their result.

        Args:
            work: Makes the calls with the asker.
            generation: Generation of the calls.
            scope: Prefix of the calls' keys; ``None`` means the generation's.
        """
        where = f"g{generation}" if scope is None else scope

        async def go(ask_once: AskStandalone) -> T:
            async def ask(call: PaidCall, label: str) -> tuple[Reply, int | None]:
                reserved = self.budget.reserve(call.worst)
                paid: float | None = 0.0
                try:
                    reply, ended_us = await ask_once(call, f"{where}/{label}", generation)
                    paid = reply.cost_usd
                except EvaluationFault as fault:
                    paid = 0.0 if fault.billed is None else fault.billed.cost_usd
                    raise
                finally:
                    self.budget.settle(reserved, paid)
                return reply, ended_us

            return await work(bounded(ask, self.n_at_once))

        result: T = self.session.run(go)
        return result

    def disable(self, reason: str) -> None:
        """Disable the learner and report why."""
        self.disabled_reason = f"{self.name} off: {reason}"
        if self.on_notice is not None:
            self.on_notice(self.disabled_reason)

    def close(self, *models: LLM | Target | None) -> None:
        """Close the models' connections in the session's loop; safe to call twice."""

        async def close(_: AskStandalone) -> None:
            for model in models:
                if model is not None:
                    await model.aclose()

        if not self._is_closed:
            self._is_closed = True
            self.session.run(close)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerParts:
    """Parts of an open run for its learners."""

    record: RunRecord
    loaded: Loaded
    world: Environment
    """Keys, prices, and the mock server if there is one."""
    redact: Callable[[str], str]
    """Removes secrets from stored or sent text."""
    target: Target
    """Optimized system; its session closes it."""
    session: EvaluationSession
    store: ParquetStore
    attempts: Callable[[], Sequence[Row]]
    """Returns the run's calls, including those of its learners."""
    state: StudyState
    """State of the last committed generation."""
    on_notice: Callable[[str], None] | None
    """Called with the reason why a learner is disabled."""

    def tell(self, text: str) -> None:
        """Pass a notice to the listener, if any."""
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
        """Return the calls of a learner with the rest of its dollar share.

        Args:
            name: Display name of the learner.
            max_share: Share of ``budget.max_usd``.
            purposes: Purposes of its calls in the journal.
            owner: Owner of the share, in messages.
            key: Configuration key that sets the share.
            n_at_once: Maximum number of requests in flight.
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
    """Return the cost of these purposes in committed generations, lost calls at worst."""
    return sum(
        float(row.get("cost_usd") or row.get("maybe_usd") or 0.0)
        for row in attempts
        if row["purpose"] in purposes
        and row["generation"] is not None
        and int(row["generation"]) < next_generation
    )
