"""Workers of user functions: threads, or an event loop in a thread.

In both, a call holds one of ``n_workers`` slots until its work has really ended. The caller of a
call that exceeds its time-out gives it up, but it still holds its slot, because a thread cannot be
killed. If such calls hold every slot, further calls fail immediately instead of waiting forever.
Threads are daemons, so a hung one does not keep the process alive.
"""

import asyncio
import contextlib
import inspect
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeAlias, TypeVar

from convergence_core.errors import (
    CandidateFault,
    EndpointDownError,
    EvaluationFault,
    InfrastructureFault,
)
from convergence_core.records import fields_of
from tasks.functions.outages import outage_of
from tasks.version import install_command, missing_extra

MISSING_PACKAGE: Final = "missing_package"


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """Exception as data."""

    error_type: str
    message: str
    details: str = ""
    """Original traceback."""
    outage: InfrastructureFault | None = None
    """Fault of the network or server behind the exception; ``None`` if there is none."""

    def fault(self, prefix: str = "") -> EvaluationFault:
        """Return the fault: the infrastructure's if the network failed, else the candidate's.

        Args:
            prefix: Beginning of the message.

        Raises:
            EndpointDownError: a package of an extra is missing, so every candidate fails.
        """
        if self.error_type == MISSING_PACKAGE:
            raise EndpointDownError(f"{prefix}{self.message}")
        kind, text = self.error_type, f"{prefix}{self.message}"
        if self.outage is not None:
            return InfrastructureFault(
                text,
                error_type=kind,
                details=self.details,
                **fields_of(self.outage, "retryable", "retry_after_s", "may_be_billed", "rate"),
            )
        return CandidateFault(text, error_type=kind, details=self.details)


@dataclass(frozen=True, slots=True)
class WorkOutcome:
    """Outcome of a piece of work."""

    value: object
    """Result; ``None`` after a failure."""
    failure: WorkerFailure | None
    latency_ms: float
    """Milliseconds of the user's function alone, without queueing."""


Work: TypeAlias = Callable[[], WorkOutcome]
"""Function that runs in a thread, measures itself and never raises."""

AsyncWork: TypeAlias = Callable[[], Coroutine[object, object, WorkOutcome]]
"""Coroutine function that runs in the pool's event loop, measures itself and never raises."""

W = TypeVar("W", Work, AsyncWork)


class WorkTimeoutError(Exception):
    """The work exceeded its time-out."""


class WorkersHungError(Exception):
    """Timed-out calls hold all slots, and none ended in time."""


def failure_of(error: BaseException) -> WorkerFailure:
    """Convert an exception to data, with its traceback except our outermost frame."""
    frames = error.__traceback__ and error.__traceback__.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    if missing := missing_extra(error):
        fix = f"Run {install_command(missing[1])}, then `convergence resume`."
        needs = f"the package {missing[0]} must be installed. {fix}"
        return WorkerFailure(MISSING_PACKAGE, needs, "".join(lines))
    return WorkerFailure(type(error).__name__, _message(error), "".join(lines), outage_of(error))


def _message(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except BaseException:  # noqa: BLE001 - a user's exception may fail, or exit, describing itself
        return type(error).__name__


def measured(call: Callable[[], object], convert: Callable[[object], object]) -> WorkOutcome:
    """Run a user's function and convert its result; only the function is timed."""
    start = time.perf_counter()
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 - a SystemExit of the user's ends its cell, not the run
        return WorkOutcome(None, failure_of(error), (time.perf_counter() - start) * 1000)
    return _converted(value, convert, (time.perf_counter() - start) * 1000)


async def measured_async(
    call: Callable[[], Awaitable[object]], convert: Callable[[object], object]
) -> WorkOutcome:
    """Await a user's function and convert its result; only the function is timed."""
    start = time.perf_counter()
    try:
        value = await call()
    except BaseException as error:  # noqa: BLE001 - as above; a cancelled call is not read
        return WorkOutcome(None, failure_of(error), (time.perf_counter() - start) * 1000)
    return _converted(value, convert, (time.perf_counter() - start) * 1000)


def _close_unbegun(value: object) -> None:
    """Close a coroutine that never started, to avoid Python's warning."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        with contextlib.suppress(ValueError):  # it is starting right now
            value.close()


def _converted(
    value: object, convert: Callable[[object], object], latency_ms: float
) -> WorkOutcome:
    try:
        return WorkOutcome(convert(value), None, latency_ms)
    except BaseException as error:  # noqa: BLE001 - methods of the user's result may raise anything
        kind = getattr(error, "error_type", None) or type(error).__name__
        return WorkOutcome(None, WorkerFailure(kind, _message(error)), latency_ms)


class _Call:
    """Piece of work in flight, as its waiter sees it."""

    __slots__ = ("future", "hung", "loop", "task", "timeout_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self.loop = loop
        self.timeout_s = timeout_s
        self.future: asyncio.Future[WorkOutcome] = loop.create_future()
        self.hung = False
        self.task: asyncio.Task[WorkOutcome] | None = None


class _Pool(ABC, Generic[W]):
    """Slots, waiters and time-outs; subclasses run the work.

    ``run`` belongs to one event loop at a time, in which everything but ``_complete`` runs.
    """

    def __init__(self, n_workers: int, *, name: str) -> None:
        self.n_workers = n_workers
        self._name = name
        self._n_busy = 0
        self._n_hung = 0
        self._is_lost = False
        """Whether all slots hung for so long that nothing waits for them any more."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._done: deque[tuple[_Call, WorkOutcome]] = deque()
        self._wake_scheduled = False
        self._closed = False

    async def run(self, work: W, timeout_s: float) -> WorkOutcome:
        """Run the work in a free slot, and return its outcome.

        Raises:
            WorkTimeoutError: it took longer than ``timeout_s`` from its start.
            WorkersHungError: calls that exceeded twice their time-out hold every slot.
        """
        await self._take_slot()
        loop = asyncio.get_running_loop()
        call = _Call(loop, timeout_s)
        self._start(work, call)
        timer = loop.call_later(timeout_s, self._expire, call)
        try:
            return await call.future
        except asyncio.CancelledError:
            self._give_up(call)
            raise
        finally:
            timer.cancel()

    async def aclose(self) -> None:
        """Let the workers end, except hung ones; safe to call twice."""
        if not self._closed:
            self._closed = True
            await self._shut_down()

    @abstractmethod
    def _start(self, work: W, call: _Call) -> None:
        """Start work in a free slot."""

    def _cancel(self, call: _Call) -> None:
        """Cancel work that its caller gave up, if possible."""

    @abstractmethod
    async def _shut_down(self) -> None:
        """Let the workers end."""

    async def _take_slot(self) -> None:
        if self._closed:
            raise RuntimeError(f"the {self._name} pool is closed")
        if self._n_busy < self.n_workers:
            self._n_busy += 1
            return
        if self._is_lost:
            raise WorkersHungError(self.n_workers)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._pass_slot_on()
            raise

    def _pass_slot_on(self) -> None:
        """Give a free slot to the next waiter, if any."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._n_busy -= 1

    def _expire(self, call: _Call) -> None:
        if not call.future.done():
            call.future.set_exception(WorkTimeoutError())
            self._give_up(call)

    def _give_up(self, call: _Call) -> None:
        if call.hung:
            return
        call.hung = True
        self._n_hung += 1
        self._cancel(call)
        if self._n_hung >= self.n_workers:
            # One of them may still end, only late.
            call.loop.call_later(call.timeout_s, self._refuse_if_all_hung)

    def _refuse_if_all_hung(self) -> None:
        if self._n_hung < self.n_workers:
            return
        self._is_lost = True
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(WorkersHungError(self.n_workers))

    def _complete(self, call: _Call, outcome: WorkOutcome) -> None:
        """Pass an outcome to the waiter's loop, in batches if possible; called in the worker."""
        self._done.append((call, outcome))
        if not self._wake_scheduled:
            self._wake_scheduled = True
            try:
                call.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed, so there is no waiter
                self._wake_scheduled = False

    def _deliver(self) -> None:
        self._wake_scheduled = False
        while self._done:
            call, outcome = self._done.popleft()
            self._n_hung -= call.hung
            self._is_lost = False
            if not call.loop.is_closed() and not call.future.done():
                call.future.set_result(outcome)
            self._pass_slot_on()


class ThreadPool(_Pool[Work]):
    """Daemon threads, started on demand."""

    def __init__(self, n_workers: int, *, name: str = "worker") -> None:
        super().__init__(n_workers, name=name)
        self._queue: SimpleQueue[tuple[Work, _Call] | None] = SimpleQueue()
        self._n_threads = 0

    def _start(self, work: Work, call: _Call) -> None:
        if self._n_threads < self._n_busy:
            self._n_threads += 1
            name = f"{self._name}-{self._n_threads}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._queue.put((work, call))

    async def _shut_down(self) -> None:
        for _ in range(self._n_threads):
            self._queue.put(None)

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            work, call = item
            self._complete(call, work())
            del item, work, call


class LoopPool(_Pool[AsyncWork]):
    """Event loop in a daemon thread, so that a blocking call blocks only this loop.

    All calls share the loop, so clients that a function keeps between calls stay in one loop.
    """

    def __init__(self, n_workers: int, *, name: str = "worker-loop") -> None:
        super().__init__(n_workers, name=name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _start(self, work: AsyncWork, call: _Call) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(self._begin, work, call)

    def _begin(self, work: AsyncWork, call: _Call) -> None:
        assert self._loop is not None  # noqa: S101 - it runs this
        call.task = self._loop.create_task(work())
        call.task.add_done_callback(partial(self._end, call))

    def _end(self, call: _Call, task: asyncio.Task[WorkOutcome]) -> None:
        # Work that was cancelled before it started also frees its slot.
        self._complete(call, WorkOutcome(None, None, 0.0) if task.cancelled() else task.result())

    def _cancel(self, call: _Call) -> None:
        def cancel() -> None:
            if call.task is not None:
                call.task.cancel()

        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(cancel)

    def _serve(self) -> None:
        loop = self._loop
        assert loop is not None  # noqa: S101 - set before the thread is started
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    async def _shut_down(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, 2.0)


class FunctionPool:
    """Threads for user functions, and an event loop for async ones."""

    def __init__(self, n_workers: int, *, name: str) -> None:
        self._threads = ThreadPool(n_workers, name=name)
        self._loop = LoopPool(n_workers, name=f"{name}-loop")

    async def run(
        self,
        call: Callable[[], Any],
        convert: Callable[[object], object],
        timeout_s: float,
        *,
        is_async: bool,
    ) -> WorkOutcome:
        """Call a function and convert its result; see ``_Pool.run``.

        An awaitable that a sync wrapper returns is awaited in the event loop.
        """
        if is_async:
            return await self._loop.run(partial(measured_async, call, convert), timeout_s)
        plain = partial(measured, call, lambda v: v if inspect.isawaitable(v) else convert(v))
        first = await self._threads.run(plain, timeout_s)
        if not inspect.isawaitable(value := first.value):
            return first
        rest = partial(measured_async, lambda: value, convert)
        try:
            then = await self._loop.run(rest, timeout_s - first.latency_ms / 1000)
        finally:
            _close_unbegun(value)
        return replace(then, latency_ms=first.latency_ms + then.latency_ms)

    async def aclose(self) -> None:
        """Stop threads and loop; safe to call twice."""
        await self._threads.aclose()
        await self._loop.aclose()
