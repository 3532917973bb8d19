"""Pool of a run's workers, on any runner, under the limits of the run.

As many work items are in flight at once as there are workers. Each takes an equal part of what is
left of the budget with it; where that was too little for all of its cells, those that were not asked
are sent again when nothing else is in flight, with all that is left. So the limits hold over all
workers together, and nothing that another one left over stays unused.
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
"""What a worker process has to end by itself: its calls in flight, and its journal."""
_KEY = "optimization.execution.runner"


class Runner(Protocol):
    """Carries packed work items to workers and brings their results. Thread-safe."""

    def run(self, item: bytes) -> bytes:
        """Have a work item executed; blocks.

        Raises:
            WorkerLostError: the worker ended meanwhile.
        """

    def stop(self, session_id: str) -> None:
        """Tell all workers to start no further call of a session; see ``RunSpec``."""

    def close(self) -> None:
        """Free the workers; safe to call twice."""


def check_runner(configuration: Configuration, *, is_by_name: bool) -> None:
    """Refuse a runner that cannot work here, before anything else is done.

    Args:
        configuration: with its runner.
        is_by_name: whether target and evaluator can be imported by another process.

    Raises:
        ConfigurationError: its package is missing, or a callable cannot travel.
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
    """Return how many candidates are evaluated at the same time in processes of their own."""
    if execution.processes is not None:
        return execution.processes
    return min(os.cpu_count() or 1, execution.parallel_workers)


def make_runner(execution: ExecutionConfig) -> Runner | None:
    """Return the runner that a configuration names, its workers starting; ``None`` means threads.

    Raises:
        ConfigurationError: the cluster cannot be reached.
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
    """Worker processes of this machine, started at once; see ``Runner``."""

    def __init__(self, n_workers: int) -> None:
        self._pool = ProcessPool("tasks.runners.worker_pool")
        self._pool.start(n_workers)

    @property
    def pids(self) -> frozenset[int]:
        """Numbers of the worker processes."""
        return self._pool.pids

    def run(self, item: bytes) -> bytes:
        """Have a work item executed by an idle worker."""
        try:
            result: bytes = self._pool.call(item)
        except ChildEndedError as error:
            raise WorkerLostError(
                "a worker process ended while it evaluated a candidate; its paid answers are "
                "in the journal. Read its output: was it killed, e.g. for memory?"
            ) from error
        return result

    def stop(self, session_id: str) -> None:
        """Tell all workers to start no further call."""
        self._pool.notify(session_id)

    def close(self) -> None:
        """Let the workers end; safe to call twice."""
        self._pool.close(_PATIENCE_S)


def main() -> None:
    """Execute work items in a child until its parent sends no more."""
    parent = Parent()
    from tasks.runners.worker import Worker  # noqa: PLC0415 - the parent may die meanwhile

    worker = Worker()
    parent.serve(worker.execute, on_notice=worker.stop)
    worker.close()


MOST_LOSSES = 3
"""Workers that may end under one candidate before the run ends: it may be what ends them."""


@dataclass(slots=True, eq=False)
class WorkerPool:
    """The workers of one run. Thread-safe."""

    runner: Runner
    """Carries work items; not closed with this."""
    spec: RunSpec
    budget: Budget
    """Of the run, over all workers."""
    journal: Journal
    """Knows what a lost worker has spent."""
    before: Spent = field(default_factory=Spent)
    """What finished runs have spent that this one continues from."""
    on_cell: Callable[[Evaluation], None] | None = None
    """Called with each evaluation, one at a time, once its candidate is done."""
    on_warning: Callable[[BudgetWarned], None] | None = None
    """Called when a limit of the budget comes near."""
    _slots: threading.Condition = field(default_factory=threading.Condition, init=False)
    _n_under_way: int = field(default=0, init=False)
    _is_alone: bool = field(default=False, init=False)
    _listener_lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def evaluate(self, assignment: Assignment, generation: int | None) -> Trial:
        """Evaluate a candidate's cells and return its trial; as ``EvaluationSession.evaluate``."""
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
        """Start no further call; cells not asked end as ``skipped``."""
        self.runner.stop(self.spec.session_id)

    def _evaluate(self, assignment: Assignment, generation: int | None) -> tuple[Trial, bool]:
        """Return the trial, and whether its item had all that was left of the budget."""
        for n_lost in range(MOST_LOSSES - 1):
            with contextlib.suppress(WorkerLostError):
                # After a loss the journal is the account, once nothing else is in flight.
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
        """Take what is spent from the journal: a lost worker has not reported it."""
        self.journal.abandon(self.spec.record.run_id)  # nobody else is at a call of this run
        spent = self.before + Spent.of(self.journal.totals(self.spec.record.run_id))
        seconds = self.budget.spent.seconds
        self.budget.restart(replace(spent, seconds=seconds), time.time())

    @contextlib.contextmanager
    def _slot(self, *, alone: bool) -> Iterator[None]:
        """Wait for a free slot, or until all are free and take all of them."""
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
