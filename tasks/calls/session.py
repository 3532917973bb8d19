"""Evaluation sessions: cells under limits, journaled, budgeted and measured.

One session belongs to one run in one process. An asyncio loop in a daemon thread makes the calls
(``tasks.calls.paid_calls``) and measures the answers (``tasks.calls.dispatcher``). ``evaluate``
blocks its caller and may be called from many threads.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from convergence_core.budget.limits import Budget
from convergence_core.budget.rate_limit import AddressCheck
from convergence_core.errors import CandidateFault
from convergence_core.events import BudgetWarned, CallListener, TrafficChanged
from convergence_core.ports import Target
from convergence_core.records import Assignment, Cell, Evaluation, Reply, Trial, eval_id_of
from tasks.calls.dispatcher import Dispatcher, Job, PendingCell, Workload, unrequested
from tasks.calls.journal_batches import JournalQueue
from tasks.calls.metric_calls import PaidCall
from tasks.calls.paid_calls import CallLimits, Calls
from tasks.calls.pending_calls import TARGET_LANE, RunContext
from tasks.calls.rate_limiter import EndpointLimiter, SharedRates
from tasks.calls.scorer import Scorer
from tasks.store.journal.sql_journal import Journal

T = TypeVar("T")

STOP_GRACE_S = 10.0
"""Seconds that calls in flight may continue after ``stop``, so that their answers are kept."""


AskStandalone = Callable[[PaidCall, str, int], Awaitable[tuple[Reply, int]]]
"""Makes a paid call outside any evaluation; see ``Dispatcher.ask_standalone``."""


@dataclass(eq=False, repr=False, kw_only=True)
class EvaluationSession:
    """Evaluates assignments of one run; see the module's docstring for its guarantees.

    Args:
        context: the run.
        workload: target and metrics, which close with the session.
        limits: maximum calls in flight and retries.
        journal: journal of claims and settlements; it stays open.
        budget: remaining budget of the run, over all calls.
        rates: calls per second of all processes together; closed with the session.
        address_of: makes the check of an endpoint's address.
        on_cell: called with each finished evaluation, one at a time, in a thread of ``evaluate``.
        on_call: called with each attempt at a call; closed with the session.
        on_notice: called when a limit is near or a provider slows the run down, in the session's
            thread.
        now_us: clock, in microseconds since the epoch.
    """

    context: RunContext
    workload: Workload
    limits: CallLimits
    journal: Journal
    budget: Budget
    rates: SharedRates | None = None
    address_of: Callable[[str], AddressCheck] = lambda _: AddressCheck()
    on_cell: Callable[[Evaluation], None] | None = None
    on_call: CallListener | None = None
    on_notice: Callable[[BudgetWarned | TrafficChanged], None] | None = None
    now_us: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        """Start the session's event loop."""
        self._listener_lock = threading.Lock()
        self._close_lock = threading.Lock()
        self._closed = False
        self._loop = loop = asyncio.new_event_loop()
        self._queue = JournalQueue(self.journal, loop)
        context = self.context
        self._calls = Calls(
            loop=loop,
            journal=self._queue,
            budget=self.budget,
            limits=self.limits,
            limiter_of=cache(self._limiter),
            rates=self.rates,
            keep_text=context.keep_text,
            redact=context.redact,
            now_us=self.now_us or (lambda: time.time_ns() // 1000),
            on_failure=self._fail,
            on_call=self.on_call,
            on_warning=self.on_notice,
        )
        workload = self.workload
        self._dispatcher = Dispatcher(
            loop=loop,
            workload=workload,
            scorer=Scorer(workload.metrics, workload.rewards, context.redact),
            calls=self._calls,
            context=context,
        )
        loop.set_exception_handler(self._on_loop_error)
        self._thread = threading.Thread(target=self._serve, name="evaluations", daemon=True)
        self._thread.start()

    def evaluate(self, assignment: Assignment, generation: int | None) -> Trial:
        """Evaluate a candidate's cells and return its trial; blocks until all have ended.

        Faults of cells are data.

        Raises:
            ConfigurationError: a requirement of the target is missing, e.g. a variable.
            RuntimeError: the session is closed.
            EndpointDownError: an endpoint has stopped answering.
            StoreError: the journal cannot be written; unjournaled answers are not used.
        """
        n_cells = len(assignment.cells)
        job = Job(assignment, generation, reports_each=self.on_cell is not None, n_left=n_cells)
        index_to_evaluation: dict[int, Evaluation] = {}
        pending: list[PendingCell] = []
        for index, cell in enumerate(assignment.cells):
            prepared = self._prepare(job, index, cell)
            if isinstance(prepared, Evaluation):
                job.deliver(index, prepared)
            else:
                pending.append(prepared)
        job.flush()
        if pending:
            self._loop.call_soon_threadsafe(self._dispatcher.add, job, pending)
        while len(index_to_evaluation) < n_cells:
            batch = job.results.get()
            if isinstance(batch, BaseException):
                raise batch
            index_to_evaluation.update(batch)
            if self.on_cell is not None:
                with self._listener_lock:
                    for _, evaluation in batch:
                        self.on_cell(evaluation)
        return Trial(
            candidate=assignment.candidate,
            evaluations=tuple(index_to_evaluation[index] for index in range(n_cells)),
        )

    @property
    def target(self) -> Target:
        """Target of the session; closed with it."""
        return self.workload.target

    def run(self, work: Callable[[AskStandalone], Awaitable[T]]) -> T:
        """Run work with paid calls outside any evaluation; blocks until it has ended.

        Args:
            work: receives a function that makes a call; runs in the session's loop.

        Raises:
            RuntimeError: the session is closed.
        """

        async def go() -> T:
            return await work(self._dispatcher.ask_standalone)

        return asyncio.run_coroutine_threadsafe(go(), self._loop).result()

    def stop(self) -> None:
        """Start no further calls; unsent cells end as ``skipped``.

        Calls in flight have a few seconds to end, so that paid answers are kept.
        """
        grace_s = min(self.workload.timeout_s, STOP_GRACE_S)
        with contextlib.suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._calls.stop, grace_s)

    def drain(self) -> None:
        """Wait, after ``stop``, until the calls in flight have ended or their grace is over.

        Their answers are then measured, unless that takes longer than the grace.
        """
        with contextlib.suppress(RuntimeError):  # closed already
            ended = self._dispatcher.drain(STOP_GRACE_S)
            asyncio.run_coroutine_threadsafe(ended, self._loop).result()

    def close(self) -> None:
        """Stop, abandon calls in flight, close the target, end all threads; safe to call twice."""
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
            try:
                asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
            finally:
                self._queue.close()
                if self.rates is not None:
                    self.rates.close()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                if self.on_call is not None:
                    self.on_call.close()

    async def _shut_down(self) -> None:
        await self._dispatcher.aclose()
        await self.workload.target.aclose()
        for metric in self.workload.metrics:
            if (close := getattr(metric, "aclose", None)) is not None:
                await close()

    def _limiter(self, endpoint: str, _credential: str | None) -> EndpointLimiter:
        notify = self.on_notice
        return EndpointLimiter(
            endpoint,
            max_in_flight=max(self.limits.workers, self.limits.judge_workers),
            run_label=self.context.label,
            on_event=notify and (lambda text: notify(TrafficChanged(text=text))),
            rate=None if self.rates is None else self.rates.of(endpoint),
            address=self.address_of(endpoint),
        )

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _fail(self, error: BaseException) -> None:
        self._dispatcher.fail(error)

    def _on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._fail(context.get("exception") or RuntimeError(str(context.get("message"))))

    def _prepare(self, job: Job, index: int, cell: Cell) -> PendingCell | Evaluation:
        workload = self.workload
        case, params = workload.cases[cell.case_id], job.assignment.candidate.params
        eval_id = eval_id_of(self.context.run_id, job.generation, cell)
        try:
            paid = workload.call(params, case)
        except CandidateFault as fault:
            redact, provider = self.context.redact, workload.target.provider
            return unrequested(job, cell, eval_id, fault, redact, provider=provider)
        call = self.context.pending(
            paid, cell, lane=TARGET_LANE, eval_id=eval_id, generation=job.generation
        )
        call.model_choice = str(params.get("model", ""))
        return PendingCell(job, index, cell, case, call)
