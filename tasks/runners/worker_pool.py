"""Pool of a run's workers, on any runner, under the limits of the run.

As many work items are under way at once as there are workers. Each takes an equal part of what is
left of the budget with it; where that was too little for all of its cells, those that were not asked
are sent again when nothing else is under way, with all that is left. So the limits hold over all
workers together, and nothing that another one left over stays unused.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from convergence_core.budget.limits import Budget
from convergence_core.budget.terms import Grant, Spent
from convergence_core.errors import WorkerLostError
from convergence_core.events import BudgetWarned
from convergence_core.ports import Journal
from convergence_core.records import Assignment, Evaluation, Trial
from tasks.runners.base import Runner
from tasks.runners.work_items import RunSpec, WorkItem, WorkResult, packed, unpacked

MOST_LOSSES = 3
"""Workers that may end under one candidate before the run ends: it may be what ends them."""


class WorkerPool:
    """The workers of one run. Thread-safe."""

    def __init__(
        self,
        runner: Runner,
        spec: RunSpec,
        *,
        budget: Budget,
        journal: Journal,
        before: Spent | None = None,
        on_cell: Callable[[Evaluation], None] | None = None,
        on_warning: Callable[[BudgetWarned], None] | None = None,
    ) -> None:
        """Prepare to send work items.

        Args:
            runner: carries them; not closed with this.
            spec: what every worker needs to know.
            budget: of the run, over all workers.
            journal: knows what a lost worker has spent.
            before: what finished runs have spent that this one goes on from.
            on_cell: called with each evaluation, one at a time, once its candidate is done.
            on_warning: called when a limit of the budget comes near.
        """
        self.runner = runner
        self._spec = spec
        self._budget = budget
        self._journal = journal
        self._before = before or Spent()
        self._on_cell = on_cell
        self._on_warning = on_warning
        self._slots = threading.Condition()
        self._n_under_way = 0
        self._is_alone = False
        self._listener_lock = threading.Lock()

    def evaluate(self, assignment: Assignment, generation: int | None) -> Trial:
        """Evaluate a candidate's cells and return its trial; as ``EvaluationSession.evaluate``."""
        trial, had_all = self._evaluate(assignment, generation)
        left = {e.cell for e in trial.evaluations if e.error_type == "budget"}
        if left and not had_all:
            cells = tuple(cell for cell in assignment.cells if cell in left)
            again = self._execute(replace(assignment, cells=cells), generation, alone=True)
            asked = {evaluation.cell: evaluation for evaluation in again.evaluations}
            merged = tuple(asked.get(e.cell, e) for e in trial.evaluations)
            trial = replace(trial, evaluations=merged)
        if self._on_cell is not None:
            with self._listener_lock:
                for evaluation in trial.evaluations:
                    self._on_cell(evaluation)
        return trial

    def stop(self) -> None:
        """Start no further call; cells not asked end as ``skipped``."""
        self.runner.stop(self._spec.session_id)

    def _evaluate(self, assignment: Assignment, generation: int | None) -> tuple[Trial, bool]:
        """Return the trial, and whether its item had all that was left of the budget."""
        for n_lost in range(MOST_LOSSES - 1):
            with contextlib.suppress(WorkerLostError):
                # After a loss the journal is the account, once nothing else is under way.
                alone = n_lost > 0
                return self._execute(assignment, generation, alone=alone), alone
        return self._execute(assignment, generation, alone=True), True

    def _execute(self, assignment: Assignment, generation: int | None, *, alone: bool) -> Trial:
        with self._slot(alone=alone):
            if alone:
                self._recount()
            grant = self._budget.grant(1 if alone else self._spec.n_workers, time.time())
            item = WorkItem(
                spec=self._spec,
                assignment=assignment,
                generation=generation,
                start=grant.start,
                kept=self._budget.kept,
            )
            result = self._sent(item, grant)
        if result.error is not None:
            raise result.error
        assert result.trial is not None  # noqa: S101 - one of the two
        return result.trial

    def _sent(self, item: WorkItem, grant: Grant) -> WorkResult:
        used = Spent()
        try:
            result = unpacked(self.runner.run(packed(item)))
            assert isinstance(result, WorkResult)  # noqa: S101 - the answer to an item
            used = result.used
            return result
        finally:
            self._budget.settle_grant(grant, used)
            if self._on_warning is not None:
                for share, text in self._budget.warnings(time.time()):
                    self._on_warning(BudgetWarned(text=text, share=share))

    def _recount(self) -> None:
        """Take what is spent from the journal: a lost worker has not reported it."""
        self._journal.abandon(self._spec.run_id)  # nobody else is at a call of this run
        spent = self._before + Spent.of(self._journal.totals(self._spec.run_id))
        seconds = self._budget.spent.seconds
        self._budget.restart(replace(spent, seconds=seconds), time.time())

    @contextlib.contextmanager
    def _slot(self, *, alone: bool) -> Iterator[None]:
        """Wait for a free slot, or until all are free and take all of them."""
        n_most = 1 if alone else self._spec.n_workers
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
