"""Open run: a study connected to its store, journal, calls and learners.

``convergence_core.search.study`` decides; this module executes the decisions and makes them
durable. Flows and tasks receive only a run's id (``run_of``), so that Prefect gets no large object
and no secret. ``tasks.run.opener`` opens runs.
"""

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from convergence_core.budget.limits import Budget, Spent
from convergence_core.config import Configuration
from convergence_core.errors import LeaseHeldError, RunInterruptedError, RunNotFoundError
from convergence_core.events import Event, Listener, RunFinished, RunStarted
from convergence_core.ports import LostCall, Row, RunRecord, RunStatus
from convergence_core.records import Assignment, Evaluation, Trial, fields_of
from convergence_core.search.learner import Learner, LearnerStep
from convergence_core.search.recommend import Recommendation
from convergence_core.search.sampler import Advice, Plan
from convergence_core.search.schedule import FINAL_SHARE
from convergence_core.search.study import PlannedGeneration, Study
from convergence_core.search.study_state import StudyState
from convergence_core.space.builder import widened
from tasks.calls.session import EvaluationSession
from tasks.inputs.loader import Loaded
from tasks.run.prior_runs import PriorRuns, read_past
from tasks.runners import WorkerPool
from tasks.secrets.process_redaction import redacted_text
from tasks.store.clock import end_us, wall_clock_us
from tasks.store.journal.lease import Lease
from tasks.store.journal.sql_journal import Journal
from tasks.store.tables.lineage import describe_lineage
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.rows import evaluation_row

FLOW_RUN_TAG = "prefect_flow_run"
"""Tag of a run with the last flow run that worked on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Result of learning from a generation, not yet stored."""

    trials: tuple[Trial, ...]
    state: StudyState
    recommendation: Recommendation | None
    """Recommendation from the evidence so far; ``None`` before the first reward."""
    learners: Mapping[str, LearnerStep] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResources:
    """Resources of an open run."""

    store: ParquetStore
    lease: Lease
    journal: Journal
    budget: Budget
    spent_before: Spent
    """Spending of the finished runs that this run continues."""
    maybe_paid: tuple[LostCall, ...]
    """Calls in flight when an earlier process died."""
    session: EvaluationSession
    pool: WorkerPool | None
    """Processes that evaluate candidates; ``None`` to evaluate in this process."""


_NO_SIGNALS = (asyncio.CancelledError, GeneratorExit, SystemExit)
"""Contexts of an error that do not mean a signal."""


@dataclass(eq=False, repr=False, kw_only=True)
class Run:
    """One optimization in progress.

    A context manager, which frees the resources. A ``RunInterruptedError`` or a signal (Ctrl-C, a
    cancelled flow run, a terminated worker) marks the run ``stopped``, any other exception
    ``failed``; both can resume.

    Args:
        record: the run's row.
        loaded: its configuration and files.
        past: evidence of earlier runs.
        study: decides on candidates and stopping.
        state: state after the last committed generation.
        resources: store, journal, budget and the like.
        held: frees the resources, and everything pushed onto it later.
        on_event: listener.

    Example:
        >>> with prepare_run(loaded) as run:
        ...     plan = run.ask()
        ...     trials = [run.evaluate(assignment, 0) for assignment in plan.assignments]
        ...     step = run.learn(trials)
    """

    record: RunRecord
    loaded: Loaded
    past: PriorRuns
    study: Study
    state: StudyState
    resources: RunResources
    held: ExitStack
    on_event: Listener | None

    def __post_init__(self) -> None:
        """Take over the opened parts, and keep budget back for the final evaluation."""
        self.learners: dict[str, Learner] = {}
        """Learners by name, in order; each adds to the advice of the previous ones."""
        self.store = self.resources.store
        self.journal = self.resources.journal
        self.session = self.resources.session
        self.resumed_from = self.state.next_generation
        self.has_begun = False
        """Whether work has started; before that, no state needs saving."""
        final_calls = self.study.schedule.final_calls
        self.resources.budget.keep_back(share=FINAL_SHARE, calls=final_calls)
        self._stopping = threading.Event()
        self._planned: PlannedGeneration | None = None
        self._steps: dict[str, LearnerStep] = {}
        """Steps of learners on the planned generation, taken before the posterior's."""

    @property
    def run_id(self) -> str:
        """The run's ULID."""
        return self.record.run_id

    @property
    def label(self) -> str:
        """Short display name, e.g. ``support_bot-7f3a``."""
        return self.record.label

    @property
    def tag(self) -> str:
        """Tag of everything that Prefect shows of this system."""
        return f"system:{self.record.name}"

    def tags_of_generation(self) -> tuple[str, str]:
        """Return the tags of the next generation."""
        return self.tag, f"generation:{self.next_generation:02d}"

    @property
    def configuration(self) -> Configuration:
        """Configuration with this run's overrides."""
        return self.loaded.configuration

    @property
    def next_generation(self) -> int:
        """Number of the next generation, from 0."""
        return self.state.next_generation

    @property
    def spent(self) -> Spent:
        """Spending that counts against the limits: of this run and of those that it continues."""
        return self.resources.spent_before + Spent.of(self.journal.totals(self.run_id))

    def emit(self, event: Event) -> None:
        """Send an event to the listener, if any."""
        if self.on_event is not None:
            self.on_event(event)

    def evaluation_rows(self, evaluations: Iterable[Evaluation]) -> list[Row]:
        """Return rows of ``evaluations``, each with its case's weight."""
        weights = {case.case_id: case.weight for case in self.loaded.cases}
        return [
            evaluation_row(self.run_id, evaluation, weight=weights.get(evaluation.cell.case_id))
            for evaluation in evaluations
        ]

    # -- the course of a generation

    def should_continue(self) -> bool:
        """Return whether to run another generation.

        Raises:
            RunInterruptedError: ``stop`` was called.
        """
        self.check_stop()
        return self.study.should_continue(self.state)

    def is_due(self, name: str) -> bool:
        """Return whether a learner has work before the next generation."""
        learner = self.learners.get(name)
        if learner is None or self.study.repair(self.state) is not None:
            return False
        return learner.is_due(self.state)

    def think(self, name: str) -> int:
        """Run a learner before the next generation and return the number of its products."""
        learner = self.learners.get(name)
        if learner is None or self.study.repair(self.state) is not None:
            return 0
        n_made = learner.think(self.study, self.state, self._advice(before=learner))
        self.widen(learner.variants)
        return n_made

    def widen(self, variants: Mapping[str, Sequence[str]]) -> None:
        """Add prompts to the search space; evaluated candidates keep their identity.

        Args:
            variants: text parameter → new prompts.
        """
        space = widened(self.study.space, variants)
        if space.to_json() != self.study.space.to_json():
            self.loaded = replace(self.loaded, space=space)
            self.past = read_past(self.store, self.record, self.loaded)
            self.study = self.past.study(self.loaded, self.study.schedule)

    def ask(self) -> Plan:
        """Plan the next generation; a second call before a commit returns the same plan."""
        advice = self._advice() if self.learners else None
        self._planned = self.study.ask(self.state, advice)
        return self._planned.plan

    @property
    def n_cells_planned(self) -> int:
        """Cells of the planned generation, including later batches."""
        planned = self._planned
        return 0 if planned is None else planned.plan.n_cells + planned.n_left

    def ask_further(self, trials: Sequence[Trial]) -> tuple[Assignment, ...]:
        """Plan the generation's next batch; return its assignments, empty after the last.

        Args:
            trials: trials of the generation so far, in the order of its batches.

        Raises:
            RunInterruptedError: ``stop`` was called.
        """
        assert self._planned is not None  # noqa: S101 - its trials exist
        if self._planned.is_repair:
            return ()
        self.check_stop()
        further = self.study.ask_further(self.state, self._planned, trials)
        if further is None:
            return ()
        self._planned = further
        return further.plan.assignments

    def look_first(self) -> list[Trial]:
        """Evaluate the defaults before a first generation if they may leave nothing to gain.

        Returns:
            Their trial; empty if there is no reason to evaluate them first.
        """
        if self._planned is None or self.next_generation or self._planned.is_repair:
            return []
        trial: Trial | None = None
        while (look := self.study.first_look(self._planned.plan, trial)) is not None:
            more = self.evaluate(look, 0)
            known = () if trial is None else trial.evaluations
            trial = replace(more, evaluations=(*known, *more.evaluations))
        return [] if trial is None else [trial]

    def remaining_assignments(self, plan: Plan, trials: Sequence[Trial]) -> list[Assignment]:
        """Return the assignments that remain after a first look; empty if no gain is possible."""
        looked = {trial.candidate.candidate_id for trial in trials}
        archive = self.state.search.archive.tell(trials, 0)
        if looked and self.study.has_perfect_defaults(archive):
            return []
        return [a for a in plan.assignments if a.candidate.candidate_id not in looked]

    def _advice(self, *, before: Learner | None = None) -> Advice:
        """Return the advice of the learners; with ``before``, only of those listed before it."""
        advice = Advice()
        for learner in self.learners.values():
            if learner is before:
                break
            advice = learner.advise(self.study, self.state, advice)
        return advice

    def evaluate(self, assignment: Assignment, generation: int | None) -> Trial:
        """Evaluate a candidate, here or in a worker process; see ``EvaluationSession``."""
        return (self.resources.pool or self.session).evaluate(assignment, generation)

    def learn_of(self, name: str, trials: Sequence[Trial]) -> LearnerStep | None:
        """Return a learner's step on the planned generation without storing it.

        ``None`` if there is no such learner, or the generation only repairs earlier ones.
        """
        planned, learner = self._planned, self.learners.get(name)
        assert planned is not None  # noqa: S101 - its trials exist
        if learner is None or planned.is_repair:
            return None
        self._steps[name] = learner.learn(self.study, self.state, planned, trials)
        return self._steps[name]

    def learner_step(self, name: str) -> LearnerStep | None:
        """Return a learner's step on the planned generation; ``None`` before ``learn_of``."""
        return self._steps.get(name)

    def learn(self, trials: Sequence[Trial]) -> StepResult:
        """Return the result of learning from the planned generation without storing it."""
        planned = self._planned
        assert planned is not None  # noqa: S101 - its trials exist
        number = self.next_generation + 1
        totals = self.journal.totals(self.run_id, before_generation=number)
        state, recommendation = self.study.learn(
            self.state,
            planned,
            trials,
            n_calls=self.resources.spent_before.calls + totals.n_attempts,
        )
        for name in self.learners:
            if name not in self._steps:
                self.learn_of(name, trials)
        steps, self._steps = self._steps, {}
        learned = {**state.learned, **{name: step.learned for name, step in steps.items()}}
        return StepResult(
            trials=tuple(trials),
            state=replace(state, learned=learned),
            recommendation=recommendation,
            learners=steps,
        )

    def commit(self, step: StepResult) -> None:
        """Advance to the state that the store has made durable."""
        for name in step.learners:
            self.learners[name].commit()
        self.state = step.state
        self._planned = None

    def begin_final(self) -> None:
        """Release the reserve of the budget to the final re-estimation."""
        self.resources.budget.keep_back()

    # -- start and end

    def stop(self) -> None:
        """Request an early end: no new call starts, paid answers are kept. Thread-safe."""
        self._stopping.set()
        self.session.stop()
        if (pool := self.resources.pool) is not None:
            pool.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopping.is_set()

    def check_stop(self) -> None:
        """Raise if the run must stop.

        Raises:
            RunInterruptedError: ``stop`` was called.
            LeaseHeldError: another process took the lease, e.g. while this machine slept.
        """
        if self.resources.lease.lost:
            raise LeaseHeldError(
                f"another process optimizes `{self.record.name}` since this one lost its lease. "
                f"See `convergence runs`; `convergence resume {self.label}` continues later."
            )
        if self._stopping.is_set():
            raise RunInterruptedError(
                f"run {self.label} was stopped in generation {self.next_generation:02d}. "
                f"Paid answers are kept; `convergence resume {self.label}` continues."
            )

    def save(self, status: RunStatus, reason: str | None = None) -> None:
        """Write the run's row."""
        self._set(status, reason)
        self.store.save_run(self.record)

    def finish(self, reason: str, summary_json: str) -> None:
        """Mark the run as done and compact its tables."""
        self._set("done", reason, summary_json)
        self.store.finish_run(self.record)

    def _set(self, status: RunStatus, reason: str | None, summary_json: str | None = None) -> None:
        self.record = replace(
            self.record,
            status=status,
            reason=reason,
            ended_us=None if status == "running" else end_us(self.record.started_us),
            n_generations=self.next_generation,
            summary_json=summary_json or self.record.summary_json,
        )

    def close(self) -> None:
        """Free the target, the journal and the lease; safe to call twice."""
        self.held.close()

    def __enter__(self) -> Self:
        """Mark the run as running, start its clock, and notify the listener.

        The clock excludes the time since opening, in which Prefect may have started a server.
        """
        self.has_begun = True
        self.save("running")
        self.resources.budget.start(wall_clock_us() / 1e6)
        schedule = self.study.schedule
        self.emit(
            RunStarted(
                **fields_of(self.record, "run_id", "label", "seed"),
                system=self.record.name,
                algorithm=self.study.sampler.name,
                **fields_of(schedule, "n_generations", "n_search_cases", "n_holdout_cases"),
                resumed_from=self.resumed_from,
                maybe_paid=self.resources.maybe_paid,
                n_cells_planned=schedule.planned_cells(),
                warm_start=self.past.describe(),
                continues=describe_lineage(self.record, self.resources.spent_before),
            )
        )
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Record how the run ended and free its resources."""
        try:
            if error is not None:
                by_signal = _is_by_signal(error)
                interrupted = by_signal or isinstance(error, RunInterruptedError)
                status: Literal["stopped", "failed"] = "stopped" if interrupted else "failed"
                reason = redacted_text(str(error)) or type(error).__name__
                if by_signal:
                    self.stop()
                    self.session.drain()  # keeps paid answers
                    reason = "ended from outside: cancelled, or its process was terminated"
                self.save(status, reason)
                self.emit(RunFinished(run_id=self.run_id, status=status, reason=reason))
        finally:
            self.close()


def _is_by_signal(error: BaseException) -> bool:
    """Return whether a signal ended the run, even if reporting it to Prefect failed too.

    A server that fails while a cancelled flow run reports its end raises another error, whose
    context is the signal. Time-outs have a cancelled coroutine as context, and faults of a user's
    function may have ``SystemExit``; these are not signals.
    """
    if not isinstance(error, Exception):
        return True
    seen: list[BaseException] = [error]
    while (earlier := seen[-1].__cause__ or seen[-1].__context__) not in (None, *seen):
        assert earlier is not None  # noqa: S101 - as the loop says
        if not isinstance(earlier, (Exception, *_NO_SIGNALS)):
            return True
        seen.append(earlier)
    return False


_ACTIVE: dict[str, Run] = {}


def register(run: Run) -> None:
    """Register a run by its id until it is closed."""
    _ACTIVE[run.run_id] = run
    run.held.callback(_ACTIVE.pop, run.run_id, None)


def run_of(run_id: str) -> Run:
    """Return an open run of this process.

    Raises:
        RunNotFoundError: this process holds no such run.
    """
    run = _ACTIVE.get(run_id)
    if run is None:
        raise RunNotFoundError(
            f"run {run_id} is not open in this process. "
            f"Open it with `convergence resume {run_id}`."
        )
    return run


def is_open(run_id: str) -> bool:
    """Return whether this process holds the run."""
    return run_id in _ACTIVE
