"""Worker: a session for each run, reused between work items.

It equals the session of the run's process, with an equal part of its limits and the same call log.
A process executes its work items one at a time.
"""

import json
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from convergence_core.budget.limits import Budget, Spent
from convergence_core.errors import ResumeError
from convergence_core.ports import RunRecord
from convergence_core.records import canonical_json
from tasks.calls.session import EvaluationSession
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded, load_mapping
from tasks.runners.evaluation_deps import EvaluationDeps, open_session
from tasks.runners.work_items import RunSpec, WorkItem, WorkResult, packed, portable, unpacked
from tasks.secrets.process_redaction import redacted_errors
from tasks.secrets.redaction import journal_url
from tasks.store.journal.sqlite_journal import open_journal


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenSession:
    """Session of a run in this process."""

    spec: RunSpec
    budget: Budget
    session: EvaluationSession
    held: ExitStack
    """Exit stack that closes session and call log."""


class Worker:
    """Executor of work items, for one run at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: _OpenSession | None = None
        self._stopped: set[str] = set()

    def execute(self, data: bytes) -> bytes:
        """Evaluate the candidate of a packed work item; return the packed result or error."""
        item = unpacked(data)
        assert isinstance(item, WorkItem)  # noqa: S101 - nothing else is sent here
        with self._lock:
            try:
                with redacted_errors():
                    return packed(self._execute(item))
            except BaseException as error:  # noqa: BLE001 - raised in the item's process
                return packed(WorkResult(trial=None, used=self._used(item), error=portable(error)))

    def stop(self, session_id: str) -> None:
        """Start no further call of a session; those in flight get a few seconds to end."""
        self._stopped.add(session_id)
        current = self._open
        if current is not None and current.spec.session_id == session_id:
            current.session.stop()

    def close(self) -> None:
        """Close the open session."""
        with self._lock:
            self._close()

    def _execute(self, item: WorkItem) -> WorkResult:
        evaluator = self._opened(item.spec)
        evaluator.budget.restart(item.start, time.time())
        evaluator.budget.keep_back(share=item.kept[0], calls=item.kept[1])
        if item.spec.session_id in self._stopped:
            evaluator.session.stop()
        trial = evaluator.session.evaluate(item.assignment, item.generation)
        return WorkResult(trial=trial, used=self._used(item))

    def _used(self, item: WorkItem) -> Spent:
        current = self._open
        if current is None or current.spec != item.spec:
            return Spent()
        now, start = current.budget.spent, item.start
        return Spent(
            usd=max(0.0, now.usd - start.usd),
            calls=now.calls - start.calls,
            tokens=now.tokens - start.tokens,
            n_unpriced=now.n_unpriced - start.n_unpriced,
        )

    def _opened(self, spec: RunSpec) -> _OpenSession:
        if self._open is not None and self._open.spec == spec:
            return self._open
        self._close()
        loaded = _loaded(spec.record)
        configuration = loaded.configuration
        environment = Environment.of(configuration, mock_url=spec.mock_url)
        budget = Budget(configuration.budget, lock=threading.Lock())
        deps = EvaluationDeps.of(loaded, environment)
        with ExitStack() as held:
            journal = open_journal(spec.store_path, journal_url(configuration))
            held.callback(journal.close)
            session = open_session(
                deps, spec, journal=journal, budget=budget, n_sessions=spec.n_workers
            )
            held.callback(session.close)
            self._open = _OpenSession(
                spec=spec, budget=budget, session=session, held=held.pop_all()
            )
        return self._open

    def _close(self) -> None:
        current, self._open = self._open, None
        if current is not None:
            current.held.close()


def _loaded(record: RunRecord) -> Loaded:
    """Load the files of a run, which must be identical to the run's.

    Raises:
        ResumeError: they differ.
    """
    loaded = load_mapping(json.loads(record.config_json), Path(record.base_dir))
    same_space = canonical_json(loaded.space.to_json()) == record.search_space_json
    if loaded.cases_sha256 != record.cases_sha256 or not same_space:
        difference = "prompt files" if loaded.cases_sha256 == record.cases_sha256 else "test cases"
        raise ResumeError(
            f"a worker of run {record.label} finds other {difference} in {record.base_dir} than the run. "
            "Give all workers the same files, e.g. on a shared folder."
        )
    return loaded
