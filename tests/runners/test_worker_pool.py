"""Work items: limits hold over all workers together, and a lost worker loses nothing."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from convergence_core.budget.limits import Budget, Spent
from convergence_core.config.models import BudgetConfig
from convergence_core.errors import ConfigurationError, WorkerLostError
from convergence_core.records import Assignment, Candidate, Cell, Evaluation, Trial
from tasks.runners import worker_pool
from tasks.runners.work_items import RunSpec, WorkItem, WorkResult, packed, unpacked
from tasks.runners.worker_pool import MOST_LOSSES, WorkerPool
from tests.store.journals import intent, settled
from tests.support.configurations import mapping
from tests.support.scratch_journal import ScratchJournal
from tests.support.store_rows import run_record

SPEC = RunSpec(record=run_record("R"), session_id="s", store_path=".", mock_url=None, n_workers=3)


class Counting:
    """A runner that asks as many cells as its item's part of ``max_calls`` allows, and journals them."""

    def __init__(self, journal: ScratchJournal, max_calls: int) -> None:
        self.journal = journal
        self.max_calls = max_calls
        self.n_under_way = self.most_under_way = 0
        self.lock = threading.Lock()
        self.meet: Callable[[], object] = lambda: None
        self.losses = 0

    def run(self, data: bytes) -> bytes:
        with self.lock:
            self.n_under_way += 1
            self.most_under_way = max(self.most_under_way, self.n_under_way)
        try:
            self.meet()
            return self._run(data)
        finally:
            with self.lock:
                self.n_under_way -= 1

    def _run(self, data: bytes) -> bytes:
        item = unpacked(data)
        assert isinstance(item, WorkItem)
        calls = self.max_calls - item.start.calls
        evaluations = []
        for number, cell in enumerate(item.assignment.cells):
            key = f"{cell.candidate_id}-{cell.case_id}"
            asked = number < calls
            if asked:
                self.journal.claim([intent(key)], "w")
                if self.losses:
                    self.losses -= 1
                    raise WorkerLostError("killed")
                self.journal.settle([settled(key)])
            evaluations.append(
                Evaluation(
                    eval_id=key,
                    cell=cell,
                    generation=0,
                    status="ok" if asked else "skipped",
                    error_type=None if asked else "budget",
                    reward=1.0 if asked else None,
                    provider="function",
                    attempt=1,
                )
            )
        used = Spent(calls=min(calls, len(evaluations)))
        trial = Trial(candidate=item.assignment.candidate, evaluations=tuple(evaluations))
        return packed(WorkResult(trial=trial, used=used))

    def stop(self, session_id: str) -> None:
        pass

    def close(self) -> None:
        pass


def assignment(name: str, n_cells: int) -> Assignment:
    candidate = Candidate(candidate_id=name, params={"x": 1}, origin="sample")
    cells = tuple(Cell(candidate_id=name, case_id=f"c{n}") for n in range(n_cells))
    return Assignment(candidate=candidate, cells=cells, label=name)


def pool_of(max_calls: int, **spec: Any) -> tuple[WorkerPool, Counting, Budget]:
    journal = ScratchJournal()
    budget = Budget(BudgetConfig(max_calls=max_calls), lock=threading.Lock())
    runner = Counting(journal, max_calls)
    workers = WorkerPool(runner, replace(SPEC, **spec), budget=budget, journal=journal)
    return workers, runner, budget


def n_asked(trials: list[Trial]) -> int:
    return sum(e.status == "ok" for trial in trials for e in trial.evaluations)


@pytest.mark.parametrize("max_calls", [1, 7, 10, 39, 40, 100])
def test_all_of_the_limit_is_used_and_no_call_more(max_calls: int):
    workers, runner, budget = pool_of(max_calls)
    with ThreadPoolExecutor(8) as pool:
        trials = list(
            pool.map(lambda n: workers.evaluate(assignment(f"a{n}", 5), 0), range(8), timeout=60)
        )
    assert n_asked(trials) == min(max_calls, 40) == budget.spent.calls
    assert runner.journal.totals("R").n_attempts == min(max_calls, 40)
    assert [e.cell for e in trials[3].evaluations] == list(assignment("a3", 5).cells)


def test_a_candidate_whose_worker_is_lost_is_sent_again_and_its_calls_count_as_spent():
    workers, runner, budget = pool_of(10)
    runner.losses = 1
    trial = workers.evaluate(assignment("a", 4), 0)
    assert n_asked([trial]) == 4
    assert budget.spent.calls == 5  # the one that was lost was maybe paid


def test_a_candidate_that_ends_every_worker_ends_the_run():
    workers, runner, _ = pool_of(100)
    runner.losses = MOST_LOSSES
    with pytest.raises(WorkerLostError):
        workers.evaluate(assignment("a", 4), 0)
    assert runner.losses == 0


def test_a_runner_whose_package_is_missing_is_refused_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
):
    from convergence_core.config import parse_mapping

    configuration = parse_mapping(mapping(optimization={"execution": {"runner": "ray"}}))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"\[ray\]"):
        worker_pool.check_runner(configuration, is_by_name=True)
