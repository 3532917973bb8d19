"""Workers of user functions: threads, or an event loop of their own.

Both keep one rule: of ``n_workers`` slots, a call holds one until its work has really ended. A call
that outlives its time-out is given up by its caller, and still holds its slot, for a thread cannot
be killed. When every slot is held by such a call, further calls fail at once instead of waiting for
ever. Threads are daemons: a hung one does not keep the process alive.
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
    """An exception, as data."""

    error_type: str
    message: str
    details: str = ""
    """The original traceback."""
    outage: InfrastructureFault | None = None
    """Fault of the network or server that failed; ``None`` if the exception tells of none."""

    def fault(self, prefix: str = "") -> EvaluationFault:
        """Return the fault: the infrastructure's where the network failed, else the candidate's.

        Args:
            prefix: of the message.

        Raises:
            EndpointDownError: a package of an extra is not installed, which fails for every candidate.
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
    """How a piece of work ended."""

    value: object
    """The result; ``None`` after a failure."""
    failure: WorkerFailure | None
    latency_ms: float
    """Of the user's function alone: no queueing."""


Work: TypeAlias = Callable[[], WorkOutcome]
"""Runs in a thread, measures itself, never raises."""

AsyncWork: TypeAlias = Callable[[], Coroutine[object, object, WorkOutcome]]
"""Runs in the pool's event loop, measures itself, never raises."""

W = TypeVar("W", Work, AsyncWork)


class WorkTimeoutError(Exception):
    """The work continued for longer than it may."""


class WorkersHungError(Exception):
    """All slots are held by calls that outlived their time-out, and none of them came free."""


def failure_of(error: BaseException) -> WorkerFailure:
    """Return an exception as data, its traceback without our own outermost frame."""
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
    """Run a function of the user's and convert its result; only the function is timed."""
    start = time.perf_counter()
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 - a SystemExit of the user's ends its cell, not the run
        return WorkOutcome(None, failure_of(error), (time.perf_counter() - start) * 1000)
    return _converted(value, convert, (time.perf_counter() - start) * 1000)


async def measured_async(
    call: Callable[[], Awaitable[object]], convert: Callable[[object], object]
) -> WorkOutcome:
    """Await a function of the user's and convert its result; only the function is timed."""
    start = time.perf_counter()
    try:
        value = await call()
    except BaseException as error:  # noqa: BLE001 - as above; who cancelled a call does not read it
        return WorkOutcome(None, failure_of(error), (time.perf_counter() - start) * 1000)
    return _converted(value, convert, (time.perf_counter() - start) * 1000)


def _close_unbegun(value: object) -> None:
    """Close a coroutine that was given up before it began, which Python would warn of."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        with contextlib.suppress(ValueError):  # it begins just now
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
    """One piece of work in flight, as its waiter sees it."""

    __slots__ = ("future", "hung", "loop", "task", "timeout_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self.loop = loop
        self.timeout_s = timeout_s
        self.future: asyncio.Future[WorkOutcome] = loop.create_future()
        self.hung = False
        self.task: asyncio.Task[WorkOutcome] | None = None


class _Pool(ABC, Generic[W]):
    """Slots, waiters and time-outs; subclasses say where the work runs.

    ``run`` belongs to one event loop at a time; everything but ``_complete`` runs in it.
    """

    def __init__(self, n_workers: int, *, name: str) -> None:
        self.n_workers = n_workers
        self._name = name
        self._n_busy = 0
        self._n_hung = 0
        self._is_lost = False
        """Whether all slots hung for so long that no one waits for one any more."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._done: deque[tuple[_Call, WorkOutcome]] = deque()
        self._wake_scheduled = False
        self._closed = False

    async def run(self, work: W, timeout_s: float) -> WorkOutcome:
        """Run the work when a slot is free, and return how it ended.

        Raises:
            WorkTimeoutError: it continued for longer than ``timeout_s`` from its start.
            WorkersHungError: every slot is held by a call that outlived its time-out twice.
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
        """Let the workers end; hung ones are left behind. Safe to call twice."""
        if not self._closed:
            self._closed = True
            await self._shut_down()

    @abstractmethod
    def _start(self, work: W, call: _Call) -> None:
        """Begin work in a free slot."""

    def _cancel(self, call: _Call) -> None:
        """Ask work that is given up to end early, where that is possible."""

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
        """Give a slot that became free to the next waiter, or to no one."""
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
            # One of them may still end, only later than it should.
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
        """Hand an outcome to the waiter's loop; called in the worker, in batches where it can."""
        self._done.append((call, outcome))
        if not self._wake_scheduled:
            self._wake_scheduled = True
            try:
                call.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed: nobody waits any more
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
    """Daemon threads, started as they are needed."""

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
    """An event loop in a daemon thread of its own, so that a call that blocks blocks nothing else.

    All calls share the loop: clients that a function keeps between calls stay in one loop.
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
        # Work that was given up before it began ends as cancelled, and frees its slot too.
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
    """Threads for functions of the user's, and an event loop for async ones."""

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

        What a wrapper around an async function returns is awaited in the loop of the async ones.
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
        """End threads and loop; safe to call twice."""
        await self._threads.aclose()
        await self._loop.aclose()
