"""Pool of a run's workers, on any runner, under the run's limits.

At most one work item per worker is in flight. Each takes an equal part of the remaining budget. If
that is too little for all its cells, the remaining cells are sent again when nothing else is in
flight, with the whole remaining budget. So the limits apply to all workers together, and no budget
stays unused.
"""

import contextlib
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from convergence_core.budget.limits import Budget, Spent
from convergence_core.config import Configuration
from convergence_core.config.optimization import ExecutionConfig
from convergence_core.errors import ConfigurationError, WorkerLostError
from convergence_core.events import BudgetWarned
from convergence_core.records import Assignment, Evaluation, Trial
from tasks.functions.processes import ChildEndedError, Parent, ProcessPool
from tasks.runners.work_items import RunSpec, WorkItem, WorkResult, packed, unpacked
from tasks.store.journal.sql_journal import Journal
from tasks.version import install_command

_PATIENCE_S: Final = 15.0
"""Seconds for a worker process to finish its calls in flight and its call log."""
_KEY = "optimization.execution.runner"


class Runner(Protocol):
    """Transport of packed work items to workers. Thread-safe."""

    def run(self, item: bytes) -> bytes:
        """Execute a work item; blocks.

        Raises:
            WorkerLostError: the worker ended meanwhile.
        """

    def stop(self, session_id: str) -> None:
        """Tell all workers to start no further call of a session; see ``RunSpec``."""

    def close(self) -> None:
        """Stop the workers; safe to call twice."""


def check_runner(configuration: Configuration, *, is_by_name: bool) -> None:
    """Reject a runner that cannot work here, before anything else.

    Args:
        configuration: Configuration with its runner.
        is_by_name: Whether another process can import target and evaluator.

    Raises:
        ConfigurationError: its package is missing, or a callable cannot be sent.
    """
    execution = configuration.optimization.execution
    if execution.runner == "ray" and importlib.util.find_spec("ray") is None:
        rule, fix = "needs the package ray, which is not installed", install_command("ray")
        raise ConfigurationError.of(_KEY, rule, f"Install it: {fix}", value="ray")
    if execution.runner != "threads" and not is_by_name:
        rule = "needs a function that other processes can import, not a callable of this one"
        fix = "Put the function into a file and name it: `api.function: path/file.py:name`."
        raise ConfigurationError.of(_KEY, rule, fix, value=execution.runner)


def n_workers_of(execution: ExecutionConfig) -> int:
    """Return the number of worker processes, each with one candidate at a time."""
    if execution.processes is not None:
        return execution.processes
    return min(os.cpu_count() or 1, execution.parallel_workers)


def make_runner(execution: ExecutionConfig) -> Runner | None:
    """Return a configuration's runner and start its workers; ``None`` means threads.

    Raises:
        ConfigurationError: the cluster is unreachable.
    """
    n_workers = n_workers_of(execution)
    match execution.runner:
        case "processes":
            return ProcessRunner(n_workers)
        case "ray":
            from tasks.runners.ray_runner import RayRunner  # noqa: PLC0415 - an extra

            return RayRunner(n_workers, execution.cluster)
        case "threads":
            return None


class ProcessRunner:
    """Local worker processes, started immediately; see ``Runner``."""

    def __init__(self, n_workers: int) -> None:
        self._pool = ProcessPool("tasks.runners.worker_pool")
        self._pool.start(n_workers)

    @property
    def pids(self) -> frozenset[int]:
        """Process ids of the workers."""
        return self._pool.pids

    def run(self, item: bytes) -> bytes:
        """Execute a work item on an idle worker."""
        try:
            result: bytes = self._pool.call(item)
        except ChildEndedError as error:
            raise WorkerLostError(
                "a worker process ended while it evaluated a candidate; its paid answers are "
                "in the journal. Read its output: was it killed, e.g. for memory?"
            ) from error
        return result

    def stop(self, session_id: str) -> None:
        """Tell all workers to start no further calls."""
        self._pool.notify(session_id)

    def close(self) -> None:
        """Let the workers end; safe to call twice."""
        self._pool.close(_PATIENCE_S)


def main() -> None:
    """Execute work items in a child until its parent closes the pipe."""
    parent = Parent()
    from tasks.runners.worker import Worker  # noqa: PLC0415 - the parent may die meanwhile

    worker = Worker()
    parent.serve(worker.execute, on_notice=worker.stop)
    worker.close()


MOST_LOSSES = 3
"""Maximum workers lost with one candidate before the run ends, since it may be the cause."""


@dataclass(slots=True, eq=False)
class WorkerPool:
    """Workers of one run. Thread-safe."""

    runner: Runner
    """Transport of work items; not closed with this object."""
    spec: RunSpec
    budget: Budget
    """Budget of the run, over all workers."""
    journal: Journal
    """Call log, which holds a lost worker's spending."""
    before: Spent = field(default_factory=Spent)
    """Spending of earlier runs that this one continues."""
    on_cell: Callable[[Evaluation], None] | None = None
    """Callback for each evaluation, one at a time, after its candidate is done."""
    on_warning: Callable[[BudgetWarned], None] | None = None
    """Callback for warnings about the budget's limits."""
    _slots: threading.Condition = field(default_factory=threading.Condition, init=False)
    _n_under_way: int = field(default=0, init=False)
    _is_alone: bool = field(default=False, init=False)
    _listener_lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def evaluate(self, assignment: Assignment, generation: int | None) -> Trial:
        """Evaluate a candidate like ``EvaluationSession.evaluate``, and return its trial."""
        trial, had_all = self._evaluate(assignment, generation)
        left = {e.cell for e in trial.evaluations if e.error_type == "budget"}
        if left and not had_all:
            cells = tuple(cell for cell in assignment.cells if cell in left)
            again = self._execute(replace(assignment, cells=cells), generation, alone=True)
            repeated = {evaluation.cell: evaluation for evaluation in again.evaluations}
            merged = tuple(repeated.get(e.cell, e) for e in trial.evaluations)
            trial = replace(trial, evaluations=merged)
        if self.on_cell is not None:
            with self._listener_lock:
                for evaluation in trial.evaluations:
                    self.on_cell(evaluation)
        return trial

    def stop(self) -> None:
        """Start no further calls; cells without a call end as ``skipped``."""
        self.runner.stop(self.spec.session_id)

    def _evaluate(self, assignment: Assignment, generation: int | None) -> tuple[Trial, bool]:
        """Return the trial, and whether its item had the whole remaining budget."""
        for n_lost in range(MOST_LOSSES - 1):
            with contextlib.suppress(WorkerLostError):
                # After a loss, only the call log knows the spending, once nothing else is in
                # flight.
                alone = n_lost > 0
                return self._execute(assignment, generation, alone=alone), alone
        return self._execute(assignment, generation, alone=True), True

    def _execute(self, assignment: Assignment, generation: int | None, *, alone: bool) -> Trial:
        with self._slot(alone=alone):
            if alone:
                self._recount()
            grant, start = self.budget.grant(1 if alone else self.spec.n_workers, time.time())
            item = WorkItem(
                spec=self.spec,
                assignment=assignment,
                generation=generation,
                start=start,
                kept=self.budget.kept,
            )
            result = self._sent(item, grant)
        if result.error is not None:
            raise result.error
        assert result.trial is not None  # noqa: S101 - one of the two
        return result.trial

    def _sent(self, item: WorkItem, grant: int) -> WorkResult:
        used = Spent()
        try:
            result = unpacked(self.runner.run(packed(item)))
            assert isinstance(result, WorkResult)  # noqa: S101 - the answer to an item
            used = result.used
            return result
        finally:
            self.budget.settle_grant(grant, used)
            if self.on_warning is not None:
                for share, text in self.budget.warnings(time.time()):
                    self.on_warning(BudgetWarned(text=text, share=share))

    def _recount(self) -> None:
        """Read the spending from the call log, since a lost worker has not reported it."""
        self.journal.abandon(self.spec.record.run_id)  # no other process makes calls of this run
        spent = self.before + Spent.of(self.journal.totals(self.spec.record.run_id))
        seconds = self.budget.spent.seconds
        self.budget.restart(replace(spent, seconds=seconds), time.time())

    @contextlib.contextmanager
    def _slot(self, *, alone: bool) -> Iterator[None]:
        """Wait for a free slot, or until all slots are free and take them all."""
        n_most = 1 if alone else self.spec.n_workers
        with self._slots:
            self._slots.wait_for(lambda: not self._is_alone and self._n_under_way < n_most)
            self._n_under_way += 1
            self._is_alone = alone
        try:
            yield
        finally:
            with self._slots:
                self._n_under_way -= 1
                self._is_alone = False
                self._slots.notify_all()
