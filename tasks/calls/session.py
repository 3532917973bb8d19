"""Evaluates cells: asked under one hard limit, journaled, budgeted, retried, measured.

One session belongs to one run in one process. An asyncio loop in a daemon thread makes the calls
(``tasks.calls.paid_calls``) and measures the answers (``tasks.calls.dispatcher``); ``evaluate`` blocks its caller
and may be called from many threads at once.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from convergence_core.budget.limits import Budget
from convergence_core.budget.rate_limit import AddressCheck
from convergence_core.config.optimization import ExecutionConfig
from convergence_core.errors import CandidateFault
from convergence_core.events import BudgetWarned, TrafficChanged
from convergence_core.objective.reward import RewardModel
from convergence_core.ports import Journal, Metric, Target
from convergence_core.records import (
    Assignment,
    Case,
    Cell,
    Evaluation,
    Reply,
    Trial,
    eval_id_of,
)
from tasks.calls.call_keys import Epoch
from tasks.calls.cells import Job, PendingCell, unasked
from tasks.calls.dispatcher import (
    JUDGE_LANE,
    TARGET_LANE,
    THOUGHT_LANE,
    Asking,
    Dispatcher,
    endpoint_of,
)
from tasks.calls.journal_batches import JournalQueue
from tasks.calls.metric_calls import PaidCall, PaidMetric
from tasks.calls.paid_calls import Calls
from tasks.calls.rate_limiter import EndpointLimiters
from tasks.calls.scorer import Closable, Scorer
from tasks.calls.shared_rate import Pacing
from tasks.http.retries import Backoff

T = TypeVar("T")


class AskApart(Protocol):
    """Makes a paid call for no evaluation; see ``Dispatcher.ask_apart``."""

    def __call__(
        self, call: PaidCall, *, place: str, generation: int
    ) -> Awaitable[tuple[Reply, int]]:
        """Return the reply, and when it was durable."""
        ...


LEASE_MARGIN_S = 180.0
"""How much longer than two time-outs (connecting, answering) a claim is held: a process may have to
start first."""
STOP_GRACE_S = 10.0
"""How long calls in flight may go on after ``stop``, so that their answers are kept."""


class EvaluationSession:
    """Evaluates assignments of one run; see the module's docstring for its guarantees.

    Args:
        run_id: the run; part of every call's key.
        target: what is asked; closed with the session.
        metrics: how answers are measured; closed with the session.
        rewards: from metrics to a reward.
        cases: all cases by id.
        journal: where calls are claimed and settled; not closed with the session.
        budget: what the run may still spend, on all calls together.
        epoch: which stored answers are used again.
        workers: most calls of the target in flight, over all assignments.
        judge_workers: most calls of judges in flight.
        thought_workers: most calls of thoughts in flight.
        max_retries: further tries of a call after a fault that a retry may heal.
        max_rate_limit_retries: further tries of a call after a rate limit, beside those.
        timeout_s: how long the target lets one call go on.
        credential: name of the variable with the target's key; rate limits are counted per key.
        run_label: what `convergence resume` is to be given, for messages.
        redact: takes secrets out of a text; runs before anything is stored or scored.
        keep_text: whether requests and answers are stored; without, only their metrics are.
        on_cell: called with each evaluation as it ends, one at a time, in a thread of
            ``evaluate``.
        on_notice: told when a limit comes near or a provider slows the run down, in the
            session's own thread.
        now_us: clock, in microseconds since the epoch.
        backoff: pauses before retries.
        pacing: calls per second that all processes keep together; closed with the session.
        address_of: makes the check of an endpoint's address; see ``EndpointLimiters``.
    """

    def __init__(
        self,
        *,
        run_id: str,
        target: Target,
        metrics: Sequence[Metric | PaidMetric],
        rewards: RewardModel,
        cases: Mapping[str, Case],
        journal: Journal,
        budget: Budget,
        epoch: Epoch,
        workers: int,
        judge_workers: int = 1,
        thought_workers: int = 1,
        max_retries: int,
        max_rate_limit_retries: int = ExecutionConfig().max_rate_limit_retries,
        timeout_s: float,
        credential: str | None = None,
        run_label: str | None = None,
        redact: Callable[[str], str],
        keep_text: bool,
        on_cell: Callable[[Evaluation], None] | None = None,
        on_notice: Callable[[BudgetWarned | TrafficChanged], None] | None = None,
        now_us: Callable[[], int] | None = None,
        backoff: Backoff | None = None,
        pacing: Pacing | None = None,
        address_of: Callable[[str], AddressCheck] | None = None,
    ) -> None:
        self._run_id = run_id
        self._pacing = pacing
        self._target = target
        self._metrics = tuple(metrics)
        self._cases = cases
        self._redact = redact
        self._on_cell = on_cell
        self._timeout_s = timeout_s
        self._budget = budget
        self._grace_s = min(timeout_s, STOP_GRACE_S)
        self._listener_lock = threading.Lock()
        self._close_lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        owner = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
        self._journal = JournalQueue(journal, owner=owner, loop=self._loop)
        now_us = now_us or (lambda: time.time_ns() // 1000)
        gates = EndpointLimiters(
            max_in_flight=max(workers, judge_workers),
            run_label=run_label,
            pacing=pacing,
            address_of=address_of,
            on_event=None
            if on_notice is None
            else lambda event: on_notice(TrafficChanged(text=event.text)),
        )
        self._asking = Asking(
            run_id=run_id,
            epoch=epoch,
            gates=gates,
            redact=redact,
            lease_s=lambda timeout_s: 2 * timeout_s + LEASE_MARGIN_S,
        )
        calls = Calls(
            loop=self._loop,
            journal=self._journal,
            budget=budget,
            lanes={
                JUDGE_LANE: judge_workers,
                TARGET_LANE: workers,
                THOUGHT_LANE: thought_workers,
            },  # judges first: they finish a cell
            max_retries=max_retries,
            max_rate_limit_retries=max_rate_limit_retries,
            keep_text=keep_text,
            redact=redact,
            now_us=now_us,
            backoff=backoff or Backoff(),
            on_failure=self._fail,
            on_warning=on_notice,
        )
        self._dispatcher = Dispatcher(
            loop=self._loop,
            target=target,
            timeout_s=timeout_s,
            credential=credential,
            scorer=Scorer(metrics, rewards, redact),
            calls=calls,
            asking=self._asking,
            keep_text=keep_text,
        )
        self._loop.set_exception_handler(self._on_loop_error)
        self._thread = threading.Thread(target=self._serve, name="evaluations", daemon=True)
        self._thread.start()

    @property
    def calls_used(self) -> int:
        """Calls of the run so far, retries included, journal hits not."""
        return self._budget.spent.calls

    def evaluate(self, assignment: Assignment, generation: int | None) -> Trial:
        """Evaluate a candidate's cells and return its trial; blocks until all have ended.

        Faults of cells are data.

        Raises:
            ConfigurationError: something the target needs is missing, e.g. a variable.
            RuntimeError: the session is closed.
            EndpointDownError: an endpoint answers nothing any more.
            StoreError: the journal cannot be written; nothing unjournaled is used.
        """
        n_cells = len(assignment.cells)
        job = Job(assignment, generation, tells_each=self._on_cell is not None, n_left=n_cells)
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
            if self._on_cell is not None:
                with self._listener_lock:
                    for _, evaluation in batch:
                        self._on_cell(evaluation)
        return Trial(
            candidate=assignment.candidate,
            evaluations=tuple(index_to_evaluation[index] for index in range(n_cells)),
        )

    def run(self, work: Callable[[AskApart], Awaitable[T]]) -> T:
        """Run work that makes paid calls for no evaluation; blocks until it has ended.

        Args:
            work: gets what makes a call; runs in the session's loop.

        Raises:
            RuntimeError: the session is closed.
        """

        async def go() -> T:
            return await work(self._dispatcher.ask_apart)

        return asyncio.run_coroutine_threadsafe(go(), self._loop).result()

    def stop(self) -> None:
        """Start no further call; cells not asked end as ``skipped``.

        Calls in flight have a few seconds to end, so that what is paid is kept.
        """
        with contextlib.suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._dispatcher.stop, self._grace_s)

    def drain(self) -> None:
        """Wait, after ``stop``, until the calls in flight have ended or their seconds are over."""
        with contextlib.suppress(RuntimeError):  # closed already
            asyncio.run_coroutine_threadsafe(self._dispatcher.drain(), self._loop).result()

    def close(self) -> None:
        """Stop, give up calls in flight, free the target, end all threads. Safe to call twice."""
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
            try:
                asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
            finally:
                self._journal.close()
                if self._pacing is not None:
                    self._pacing.close()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()

    async def _shut_down(self) -> None:
        await self._dispatcher.aclose()
        await self._target.aclose()
        for metric in self._metrics:
            if isinstance(metric, Closable):
                await metric.aclose()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._dispatcher.fail(error or RuntimeError(str(context.get("message"))))

    def _prepare(self, job: Job, index: int, cell: Cell) -> PendingCell | Evaluation:
        case = self._cases[cell.case_id]
        eval_id = eval_id_of(self._run_id, job.generation, cell)
        provider = self._target.provider
        params = job.assignment.candidate.params
        try:
            request = self._target.request(params, case)
            worst = self._target.worst_case(params, case)
        except CandidateFault as fault:
            return unasked(job, cell, eval_id, fault, self._redact, provider=provider)
        model = request.get("model") if isinstance(request, dict) else None
        intent, text = self._asking.intent(
            purpose=TARGET_LANE,
            key_purpose=TARGET_LANE,
            provider=provider,
            model=model if isinstance(model, str) else None,
            request=request,
            cell=cell,
            vote=0,
            generation=job.generation,
            eval_id=eval_id,
            worst=worst,
            timeout_s=self._timeout_s,
        )
        return PendingCell(
            job, index, cell, case, eval_id, text, intent, worst, endpoint_of(request)
        )

    def _fail(self, error: BaseException) -> None:
        self._dispatcher.fail(error)
