"""Processes that answer the same cells at once, each with a session of its own on one journal."""

import random
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from convergence_core.budget.limits import Budget
from convergence_core.config.models import BudgetConfig
from convergence_core.objective import RewardModel
from convergence_core.records import Assignment, Cell
from tasks.calls.dispatcher import Workload
from tasks.calls.paid_calls import CallLimits
from tasks.calls.pending_calls import RunContext
from tasks.calls.session import EvaluationSession
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_metrics, make_target
from tasks.inputs.loader import load
from tasks.store.journal.sqlite_journal import open_journal
from tests.support.paid_runs import PROCESSES, STORE

RUN = "01SHARED"

Rewards = dict[tuple[str, str], float | None]
"""(candidate, case) → reward."""


class Sharer:
    """A process that answers all cells; it begins when it is told to."""

    def __init__(self, folder: Path, n_candidates: int, order: int) -> None:
        self._pipe, theirs = PROCESSES.Pipe()
        self._process: ForkServerProcess = PROCESSES.Process(
            target=_answer_all, args=(folder, n_candidates, order, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        assert self._pipe.recv() == "ready"

    def go(self) -> None:
        """Let it begin."""
        self._pipe.send("go")

    def rewards(self) -> Rewards:
        """Wait for its end and return what it found."""
        found: Rewards = self._pipe.recv()
        self._process.join()
        assert self._process.exitcode == 0
        return found


def _answer_all(folder: Path, n_candidates: int, order: int, pipe: Connection) -> None:
    loaded = load(folder / "optimization.yaml")
    configuration = loaded.configuration
    world = Environment.of(configuration)
    journal = open_journal(folder / STORE)
    execution = configuration.optimization.execution
    session = EvaluationSession(
        context=RunContext(
            run_id=RUN,
            cache=configuration.cache,
            payer=(RUN, 0),
            redact=world.redactor(configuration),
            keep_text=True,
        ),
        workload=Workload(
            target=make_target(loaded, world),
            timeout_s=configuration.api.request.timeout_seconds,
            metrics=make_metrics(loaded, world),
            rewards=RewardModel(configuration.evaluation.metrics),
            cases={case.case_id: case for case in loaded.cases},
        ),
        limits=CallLimits(workers=execution.parallel_workers, max_retries=execution.max_retries),
        journal=journal,
        budget=Budget(BudgetConfig()),
    )
    pipe.send("ready")
    pipe.recv()
    found: Rewards = {}
    for assignment in _assignments(loaded, n_candidates, random.Random(order)):
        trial = session.evaluate(assignment, 0)
        found |= {
            (evaluation.cell.candidate_id, evaluation.cell.case_id): evaluation.reward
            for evaluation in trial.evaluations
        }
    session.close()
    journal.close()
    pipe.send(found)


def _assignments(loaded: Any, n_candidates: int, rng: random.Random) -> list[Assignment]:
    """Return the same cells to every process, each in an order of its own."""
    assignments = []
    for number in range(n_candidates):
        params = {**loaded.space.baseline(), "temperature": number / n_candidates}
        candidate = loaded.space.candidate(params, origin="default")
        cells = [
            Cell(candidate_id=candidate.candidate_id, case_id=case.case_id)
            for case in loaded.cases
        ]
        rng.shuffle(cells)
        assignments.append(Assignment(candidate=candidate, cells=tuple(cells)))
    rng.shuffle(assignments)
    return assignments
