"""Functions of the user in child processes, which import them by name."""

import asyncio
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.functions.function_results import result_json
from tasks.functions.processes import START_TIMEOUT_S, ChildEndedError, Parent, ProcessPool
from tasks.functions.user_functions import is_async, load_function
from tasks.functions.workers import (
    WORKER_DIED,
    ThreadPool,
    WorkerFailure,
    WorkOutcome,
    WorkTimeoutError,
    measured,
    measured_async,
)

"""Type of the error of a call whose process has ended."""


class FunctionProcesses:
    """Runs an importable function in processes of its own, one per worker."""

    def __init__(self, path: str, base_dir: Path, *, workers: int, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._children = ProcessPool(__name__, (path, base_dir.resolve()))
        self._threads = ThreadPool(workers, name="process")

    async def run(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> WorkOutcome:
        """Call the function; see ``FunctionRunner.run``."""
        work = functools.partial(self._call, (args, dict(keywords)))
        # The child is ended when its time is over; the thread only waits for that.
        outcome = await self._threads.run(work, self._timeout_s + START_TIMEOUT_S)
        if outcome.failure is not None and outcome.failure.error_type == "timeout":
            raise WorkTimeoutError
        return outcome

    def _call(self, message: object) -> WorkOutcome:
        try:
            outcome: WorkOutcome = self._children.call(message, self._timeout_s)
        except TimeoutError:
            return WorkOutcome(None, WorkerFailure("timeout", "timeout"), self._timeout_s * 1000)
        except ChildEndedError as error:
            code = error.exit_code
            ended = "did not start" if code is None else f"ended with exit code {code}"
            failure = WorkerFailure(WORKER_DIED, f"the process of {self._path} {ended}")
            return WorkOutcome(None, failure, 0.0)
        return outcome

    async def aclose(self) -> None:
        """End the processes; safe to call twice."""
        await asyncio.to_thread(self._children.close)
        await self._threads.aclose()


def main() -> None:
    """Import the function in a child, and call it as its parent asks."""
    parent = Parent()
    path, base_dir = parent.settings
    function = load_function(path, base_dir, key="api.function")
    loop = asyncio.new_event_loop() if is_async(function) else None

    def answer(message: tuple[tuple[Any, ...], dict[str, Any]]) -> WorkOutcome:
        call = functools.partial(function, *message[0], **message[1])
        if loop is None:
            return measured(call, result_json)
        return loop.run_until_complete(measured_async(call, result_json))

    parent.serve(answer)
