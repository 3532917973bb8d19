"""``WorkerPool``: evaluates candidates where a runner takes them, under the limits of one run.

As many orders travel at once as there are places. Each takes an equal part of what is left of the
budget with it; where that was too little for all of its cells, those that were not asked travel
again when nobody else does, with all that is left. So the limits hold over all workers together, and
nothing that another one left over stays unused.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from convergence_core.budget.limits import Budget, Grant, Spent
from convergence_core.errors import WorkerLostError
from convergence_core.events import BudgetWarned
from convergence_core.ports import Journal
from convergence_core.records import Assignment, Evaluation, Trial
from tasks.runners.base import Runner
from tasks.runners.work_items import RunSpec, WorkItem, WorkResult, packed, unpacked

MOST_LOSSES = 3
"""Workers that may end under one candidate before the run ends: it may be what ends them."""


class WorkerPool:
    """The places of one run. Thread-safe."""

    def __init__(
        self,
        runner: Runner,
        recipe: RunSpec,
        *,
        budget: Budget,
        journal: Journal,
        before: Spent | None = None,
        on_cell: Callable[[Evaluation], None] | None = None,
        on_warning: Callable[[BudgetWarned], None] | None = None,
    ) -> None:
        """Prepare to send orders.

        Args:
            runner: carries them; closed with this.
            recipe: what every worker needs to know.
            budget: of the run, over all workers.
            journal: knows what a lost worker has spent.
            before: what finished runs have spent that this one goes on from.
            on_cell: called with each evaluation, one at a time, once its candidate is done.
            on_warning: told when a limit of the budget comes near.
        """
        self.runner = runner
        self._recipe = recipe
        self._budget = budget
        self._journal = journal
        self._before = before or Spent()
        self._on_cell = on_cell
        self._on_warning = on_warning
        self._free = threading.Condition()
        self._n_travelling = 0
        self._is_alone = False
        self._listener_lock = threading.Lock()

    def evaluate(self, assignment: Assignment, generation: int | None) -> Trial:
        """Evaluate a candidate's cells and return its trial; as ``EvaluationSession.evaluate``."""
        trial, is_whole = self._travel(assignment, generation, alone=False)
        left = {e.cell for e in trial.evaluations if e.error_type == "budget"}
        if left and not is_whole:
            cells = tuple(cell for cell in assignment.cells if cell in left)
            again, _ = self._travel(replace(assignment, cells=cells), generation, alone=True)
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
        self.runner.stop(self._recipe.opening)

    def close(self) -> None:
        """Free the workers; safe to call twice."""
        self.runner.close()

    def _travel(
        self, assignment: Assignment, generation: int | None, *, alone: bool
    ) -> tuple[Trial, bool]:
        """Return the trial, and whether the order had all that was left of the budget."""
        for _ in range(MOST_LOSSES - 1):
            with contextlib.suppress(WorkerLostError):
                return self._travel_once(assignment, generation, alone=alone)
            alone = True  # the journal is the account, once nobody else writes
        return self._travel_once(assignment, generation, alone=True)

    def _travel_once(
        self, assignment: Assignment, generation: int | None, *, alone: bool
    ) -> tuple[Trial, bool]:
        with self._place(alone=alone):
            n_parts = 1 if alone else self._recipe.n_places
            if alone:
                self._recount()
            grant = self._budget.grant(n_parts, time.time())
            order = WorkItem(
                recipe=self._recipe,
                assignment=assignment,
                generation=generation,
                start=grant.start,
                kept=self._budget.kept,
            )
            delivery = self._sent(order, grant)
        if delivery.error is not None:
            raise delivery.error
        assert delivery.trial is not None  # noqa: S101 - one of the two
        return delivery.trial, alone

    def _sent(self, order: WorkItem, grant: Grant) -> WorkResult:
        used = Spent()
        try:
            delivery = unpacked(self.runner.run(packed(order)))
            assert isinstance(delivery, WorkResult)  # noqa: S101 - the answer to an order
            used = delivery.used
            return delivery
        finally:
            self._budget.settle_grant(grant, used)
            if self._on_warning is not None:
                for share, text in self._budget.warnings(time.time()):
                    self._on_warning(BudgetWarned(text=text, share=share))

    def _recount(self) -> None:
        """Take what is spent from the journal: a worker that is lost told nobody."""
        self._journal.abandon(self._recipe.run_id)  # nobody else is at a call of this run
        spent = self._before + Spent.of(self._journal.totals(self._recipe.run_id))
        seconds = self._budget.spent.seconds
        self._budget.restart(replace(spent, seconds=seconds), time.time())

    @contextlib.contextmanager
    def _place(self, *, alone: bool) -> Iterator[None]:
        """Wait for a free place, or until all are free and take all of them."""
        n = self._recipe.n_places
        with self._free:
            while self._is_alone or self._n_travelling >= (1 if alone else n):
                self._free.wait()
            self._n_travelling += 1
            self._is_alone = alone
        try:
            yield
        finally:
            with self._free:
                self._n_travelling -= 1
                self._is_alone = False
                self._free.notify_all()
