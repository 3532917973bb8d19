"""The worker's side: a session for each run, opened at its first order and kept for the next.

The session is the same as in the process of the run, with an equal part of its limits, on the same
journal. Orders of one process are fulfilled one after the other.
"""

import json
import threading
import time
from pathlib import Path

from convergence_core.budget.limits import Budget, Limits, Spent
from convergence_core.errors import ResumeError
from convergence_core.ports import Journal
from convergence_core.records import Trial, canonical_json
from tasks.calls.session import EvaluationSession
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded, load_mapping
from tasks.runners.evaluation_deps import EvaluationDeps, open_session
from tasks.runners.work_items import RunSpec, WorkItem, WorkResult, packed, portable, unpacked
from tasks.secrets.process_redaction import redacted_errors
from tasks.store import open_journal


class Worker:
    """Fulfils orders of one run after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recipe: RunSpec | None = None
        self._budget: Budget | None = None
        self._session: EvaluationSession | None = None
        self._journal: Journal | None = None
        self._stopped: set[str] = set()

    def execute(self, data: bytes) -> bytes:
        """Evaluate the candidate of a packed order; return the packed delivery, errors in it."""
        order = unpacked(data)
        assert isinstance(order, WorkItem)  # noqa: S101 - nothing else is sent here
        with self._lock:
            try:
                return packed(self._fulfil(order))
            except BaseException as error:  # noqa: BLE001 - it is raised where the order came from
                return packed(
                    WorkResult(trial=None, used=self._used(order), error=portable(error))
                )

    def stop(self, opening: str) -> None:
        """Let no further call of a run start; those in flight have a few seconds to end."""
        self._stopped.add(opening)
        session, recipe = self._session, self._recipe
        if session is not None and recipe is not None and recipe.opening == opening:
            session.stop()

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            self._close()

    def _fulfil(self, order: WorkItem) -> WorkResult:
        with redacted_errors():
            session = self._opened(order.recipe)
            assert self._budget is not None  # noqa: S101 - of the session
            self._budget.restart(order.start, time.time())
            self._budget.keep_back(share=order.kept[0], calls=order.kept[1])
            if order.recipe.opening in self._stopped:
                session.stop()
            trial: Trial = session.evaluate(order.assignment, order.generation)
            return WorkResult(trial=trial, used=self._used(order))

    def _used(self, order: WorkItem) -> Spent:
        if self._budget is None or self._recipe != order.recipe:
            return Spent()
        now, start = self._budget.spent, order.start
        return Spent(
            usd=max(0.0, now.usd - start.usd),
            calls=now.calls - start.calls,
            tokens=now.tokens - start.tokens,
            n_unpriced=now.n_unpriced - start.n_unpriced,
        )

    def _opened(self, recipe: RunSpec) -> EvaluationSession:
        if self._session is not None and self._recipe == recipe:
            return self._session
        self._close()
        loaded = _loaded(recipe)
        configuration = loaded.configuration
        world = Environment.of(configuration, mock_url=recipe.mock_url)
        budget = Budget(Limits.of(configuration.budget), lock=threading.Lock())
        deps = EvaluationDeps.of(loaded, world)
        journal = open_journal(recipe.store_path, world.journal_url(configuration))
        try:
            self._session = open_session(
                deps, recipe, journal=journal, budget=budget, n_sessions=recipe.n_places
            )
        except BaseException:
            journal.close()
            raise
        self._journal, self._budget, self._recipe = journal, budget, recipe
        return self._session

    def _close(self) -> None:
        session, journal = self._session, self._journal
        self._session = self._journal = self._budget = self._recipe = None
        if session is not None:
            session.close()
        if journal is not None:
            journal.close()


def _loaded(recipe: RunSpec) -> Loaded:
    """Read the files of a run, which must be the very ones.

    Raises:
        ResumeError: they are others here.
    """
    loaded = load_mapping(json.loads(recipe.config_json), Path(recipe.base_dir))
    same_space = canonical_json(loaded.space.to_json()) == recipe.search_space_json
    if loaded.cases_sha256 != recipe.cases_sha256 or not same_space:
        what = "prompt files" if loaded.cases_sha256 == recipe.cases_sha256 else "test cases"
        raise ResumeError(
            f"a worker of run {recipe.label} finds other {what} in {recipe.base_dir} than the run. "
            "Give all workers the same files, e.g. on a shared folder."
        )
    return loaded


_WORKER = Worker()
"""The one of this process."""


def execute(data: bytes) -> bytes:
    """Fulfil a packed order in this process; what clusters call."""
    return _WORKER.execute(data)


def stop(opening: str) -> None:
    """Let no further call of a run start in this process."""
    _WORKER.stop(opening)


def close() -> None:
    """Close what this process holds open of a run."""
    _WORKER.close()
