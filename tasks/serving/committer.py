"""Group commit: one thread that performs many operations per transaction.

While a commit reaches the disk, the next requests gather and then share one transaction. Under
load a request thus costs a fraction of a commit, and a single one does not wait. Answers are sent
only after their commit is durable.
"""

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from convergence_core.errors import StoreError
from tasks.serving.operations import Operation, performed
from tasks.store.runtime.runtime_store import RuntimeStore

Result = TypeVar("Result")

MOST_TOGETHER = 256
"""Maximum operations per transaction."""
MOST_WAITING = 10_000
"""Maximum waiting operations; further ones are rejected."""


class BusyError(StoreError):
    """Too many operations are waiting."""


@dataclass(slots=True)
class _Waiting:
    operation: Operation[Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    value: Any = None
    error: Exception | None = None

    def attempt(self, step: Callable[[], Any]) -> None:
        """Run a step of the operation and store its error as the answer."""
        try:
            self.value = step()
        except Exception as error:  # noqa: BLE001 - the error is the answer
            self.error = error


class Committer:
    """Group commit of operations on one store."""

    def __init__(self, store: RuntimeStore, *, most_waiting: int = MOST_WAITING) -> None:
        """Start the thread; ``close`` stops it."""
        self._store = store
        self._most_waiting = most_waiting
        self._waiting: deque[_Waiting] = deque()
        self._news = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        """Number of operations that wait for their transaction."""
        return len(self._waiting)

    async def perform(self, operation: Operation[Result]) -> Result:
        """Perform an operation; it is durable when this returns.

        If the caller is cancelled, the operation is still performed and its answer dropped.

        Raises:
            BusyError: too many operations wait, or the committer is closing.
            Exception: the operation's error.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        with self._news:
            if self._closing:
                raise BusyError("the service is shutting down. Use another, or try later.")
            if len(self._waiting) >= self._most_waiting:
                raise BusyError(f"{self._most_waiting:,} requests wait already. Try again later.")
            self._waiting.append(_Waiting(operation, loop, future))
            self._news.notify()
        return await future

    def close(self) -> None:
        """Perform the waiting operations and stop; safe to call twice."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._waiting and not self._closing:
                    self._news.wait()
                n = min(len(self._waiting), MOST_TOGETHER)
                batch = [self._waiting.popleft() for _ in range(n)]
            if not batch:
                return
            rest: Sequence[_Waiting] = batch
            while rest:
                rest = self._commit(_prepared(rest))
            loops = {waiting.loop for waiting in batch}
            for loop in loops:
                done = [waiting for waiting in batch if waiting.loop is loop]
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_deliver, done)

    def _commit(self, ready: Sequence[_Waiting]) -> list[_Waiting]:
        """Write operations in one transaction; return the outdated ones."""
        if not ready:
            return []
        try:
            with self._store.database.transaction() as connection:
                for waiting in ready:
                    waiting.operation.write(connection)
        except StoreError as error:
            for waiting in ready:
                waiting.error = error
        except Exception:  # noqa: BLE001 - one failed and all rolled back: retry each alone
            for waiting in ready:
                waiting.attempt(functools.partial(performed, self._store, waiting.operation))
        else:
            for waiting in ready:
                if not waiting.operation.is_outdated:
                    waiting.attempt(waiting.operation.result)
            return [waiting for waiting in ready if waiting.operation.is_outdated]
        return []


def _prepared(batch: Sequence[_Waiting]) -> list[_Waiting]:
    """Prepare operations; return those with something to write, sorted by system."""
    for waiting in batch:
        waiting.attempt(waiting.operation.prepare)
        if waiting.error is None and not waiting.operation.writes:
            waiting.attempt(waiting.operation.result)
    ready = [item for item in batch if item.error is None and item.operation.writes]
    return sorted(ready, key=lambda waiting: waiting.operation.system)


def _deliver(batch: Sequence[_Waiting]) -> None:
    for waiting in batch:
        if waiting.future.done():
            continue  # its caller was cancelled
        if waiting.error is not None:
            waiting.future.set_exception(waiting.error)
        else:
            waiting.future.set_result(waiting.value)
