"""Paid calls of a served chat, under a daily limit.

Each call is first recorded with its maximum cost, so the ledger has it even after a kill. It then
continues if its client leaves, and its true cost is settled. The ledger's run is
``answers/SYSTEM/DATE`` and holds no text.
"""

import asyncio
import datetime
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Final, Self
from uuid import uuid4

from convergence_core.budget.bounds import prompt_bound
from convergence_core.budget.limits import Budget, Exhausted, Reservation, Spent, Wait, dollars
from convergence_core.config.models import BudgetConfig
from convergence_core.errors import ConfigurationError, EvaluationFault, EvaluatorFault
from convergence_core.ports import CallIntent
from convergence_core.records import Reply, canonical_json, fields_of, sha256_hex
from tasks.calls.journal_batches import JournalQueue
from tasks.calls.metric_calls import PaidCall
from tasks.calls.outcomes import (
    AttemptRecord,
    fault_outcome,
    redacted,
    reply_outcome,
    settle_reservation,
    settlement_of,
)
from tasks.calls.pending_calls import LEASE_MARGIN_S, endpoint_of
from tasks.calls.rate_limiter import SharedRates
from tasks.http.clients import within_limits
from tasks.inputs.loader import Loaded
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import journal_url
from tasks.store.clock import wall_clock_us
from tasks.store.journal.ledger import ANSWERS
from tasks.store.journal.rates import Rates
from tasks.store.journal.sql_journal import Journal
from tasks.store.journal.sqlite_journal import open_journal
from tasks.store.layout import locked
from tasks.store.runtime.answers import export_answers

MOST_AT_ONCE: Final = 64
"""Maximum concurrent requests to the provider; further ones wait."""
SPENT: Final = "budget"
"""Error type of a call that the daily limit rejects."""
LOCK_FILE: Final = "answers.lock"
_GRACE_S: Final = 10.0
"""Maximum seconds for calls in flight when the service ends."""


@dataclass(eq=False, repr=False)
class PaidAnswers:
    """Caller for a served chat, for one event loop.

    Args:
        journal: Ledger, closed with this object.
        system: System that answers.
        limits: Limits per day (UTC) over all answers of the system.
        rates: Calls per second shared by all processes, closed with this object.
        now_us: Clock, in microseconds since the epoch.
    """

    journal: Journal
    _: KW_ONLY
    system: str
    limits: BudgetConfig = field(default_factory=BudgetConfig)
    rates: SharedRates | None = None
    now_us: Callable[[], int] = wall_clock_us

    def __post_init__(self) -> None:
        """Start without calls; the day's budget is read before the first."""
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._settled = asyncio.Event()
        self._calls: set[asyncio.Task[Reply]] = set()
        self._queue: JournalQueue | None = None
        self._held = ExitStack()
        self._run_id, self._budget = "", Budget(self.limits)

    @classmethod
    def of(cls, loaded: Loaded, root: Path, *, max_usd: float | None) -> Self:
        """Return the paid answers of a configuration's system in a store.

        Args:
            loaded: Configuration with the system, its call log and the calls per second.
            root: Folder of the store.
            max_usd: Maximum US dollars per day (UTC); ``None`` means no limit.

        Raises:
            ConfigurationError: another service of this store has such a limit.
            StoreError: the call log cannot be opened.
        """
        configuration = loaded.configuration
        url = journal_url(configuration)
        per_second = configuration.optimization.execution.calls_per_second
        limits = {"max_usd": max_usd, "max_calls": None, "max_tokens": None, "max_minutes": None}
        with ExitStack() as held:
            if max_usd is not None:
                _hold_limit(held, root, max_usd)
            journal = open_journal(root, url)
            if url is not None:  # `convergence fold` exports from the store's own file
                export_answers(journal, root, wall_clock_us())
            made = cls(
                journal,
                system=configuration.api.name,
                limits=configuration.budget.model_copy(update=limits),
                rates=SharedRates(Rates(root, url), per_second) if per_second else None,
            )
            made._held = held.pop_all()
        return made

    async def make(self, call: PaidCall, interaction_id: str) -> Reply:
        """Make a call once; cancellation cannot stop it once it is recorded.

        Raises:
            EvaluationFault: as the call's, or of type ``SPENT`` if the daily limit rejects it.
            StoreError: the call log cannot be written.
        """
        digest = sha256_hex(
            canonical_json(call.request)
        )  # before a slot is taken, because it may raise
        await self._slots.acquire()
        try:
            budget, reservation = await self._reserved(call)
        except BaseException:
            self._slots.release()
            raise
        intent = self._intent(call, digest, interaction_id)
        made = asyncio.create_task(self._made(call, intent, budget, reservation))
        self._calls.add(made)
        made.add_done_callback(self._ended)
        return await asyncio.shield(made)

    async def aclose(self) -> None:
        """Wait a while for calls in flight, then close the call log; safe to call twice."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=_GRACE_S)
        for call in (calls := [*self._calls]):
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        if self._queue is not None:
            await asyncio.to_thread(self._queue.close)
        if self.rates is not None:
            self.rates.close()
        self.journal.close()
        self._held.close()

    async def _reserved(self, call: PaidCall) -> tuple[Budget, Reservation]:
        """Return the day's budget with a reservation of the call's maximum cost.

        Raises:
            EvaluatorFault: the call exceeds the rest of the day's budget.
        """
        while True:
            budget = self._today()
            reservation = budget.reserve(call.worst)
            if isinstance(reservation, Exhausted):
                raise EvaluatorFault(_refusal(call, budget, reservation), error_type=SPENT)
            if not isinstance(reservation, Wait):
                return budget, reservation
            await self._settled.wait()

    def _today(self) -> Budget:
        """Return the day's budget, initialized from the ledger."""
        day = datetime.datetime.fromtimestamp(self.now_us() / 1e6, tz=datetime.UTC).date()
        run_id = f"{ANSWERS}{self.system}/{day}"
        if run_id != self._run_id:
            self._budget = Budget(self.limits, Spent.of(self.journal.totals(run_id)))
            self._run_id = run_id
        return self._budget

    def _intent(self, call: PaidCall, digest: str, interaction_id: str) -> CallIntent:
        return CallIntent(
            call_key=uuid4().hex,
            run_id=self._run_id,
            generation=None,
            eval_id=interaction_id,
            **fields_of(call, "purpose", "provider", "model"),
            request_sha256=digest,
            lease_s=2 * call.timeout_s + LEASE_MARGIN_S,
            max_usd=call.worst.usd,
            max_tokens=call.worst.tokens,
        )

    async def _made(
        self, call: PaidCall, intent: CallIntent, budget: Budget, reservation: Reservation
    ) -> Reply:
        try:
            if self._queue is None:
                self._queue = JournalQueue(self.journal, asyncio.get_running_loop())
            claim = await self._queue.claim(intent)
        except BaseException:
            budget.release(reservation)
            raise
        started_us = self.now_us()
        rates = None if self.rates is None else self.rates.of(endpoint_of(call.request))
        ending: Reply | EvaluationFault
        try:
            with within_limits(rates):
                ending = await call.send()
        except EvaluationFault as fault:
            ending = fault
        except BaseException:  # its end is unknown: the record stays, with its maximum cost
            budget.settle(reservation, usd=None, tokens=None)
            raise
        settle_reservation(budget, reservation, ending)
        self._wake()
        record = AttemptRecord.of(ending, claim.attempt, started_us, self.now_us())
        if isinstance(ending, Reply):
            kept = redacted(replace(ending, value=None, thinking=None), redacted_text)
            await self._queue.settle(settlement_of(intent, record, reply_outcome(kept), ending))
            return ending
        stored = fault_outcome(ending, redacted_text, keep_text=False)
        await self._queue.settle(settlement_of(intent, record, stored, ending))
        raise ending

    def _ended(self, call: "asyncio.Task[Reply]") -> None:
        self._calls.discard(call)
        self._slots.release()
        self._wake()
        if not call.cancelled():
            call.exception()  # its client may have left

    def _wake(self) -> None:
        """Wake the calls that wait for room in the budget."""
        self._settled.set()
        self._settled = asyncio.Event()


def _refusal(call: PaidCall, budget: Budget, exhausted: Exhausted) -> str:
    body = call.request.get("body") if isinstance(call.request, Mapping) else None
    if exhausted.is_unknown and prompt_bound(body) is None:
        return (
            f"`--max-usd` needs the highest cost of every answer, but it is unknown for {call.model!r} with "
            "pictures, sound, files or what the provider keeps. Send text alone, or set "
            "`budget.allow_unknown_prices: true`."
        )
    if exhausted.is_unknown:
        return (
            f"`--max-usd` needs the highest cost of every answer, but it is unknown for {call.model!r}. Name "
            "the model under `prices:` and send `max_tokens`, or set `budget.allow_unknown_prices: true`."
        )
    limit, paid = budget.limits.max_usd or 0.0, budget.spent.usd
    return (
        f"`--max-usd` must cover the answer, but {dollars(paid)} of {dollars(limit)} is paid today (UTC), "
        f"and this answer may cost {dollars(call.worst.usd or 0.0)}. Raise it, lower `max_tokens`, or wait "
        "for tomorrow."
    )


def _hold_limit(held: ExitStack, root: Path, max_usd: float) -> None:
    """Hold the lock of a store's daily limit until the stack closes."""
    if not held.enter_context(locked(root / LOCK_FILE, should_wait=False)):
        rule = "must be kept by one service of a store, and another one runs"
        fix = "Stop that one, or leave the option out."
        raise ConfigurationError.of("--max-usd", rule, fix, value=f"{max_usd:g}")
