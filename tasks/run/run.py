"""A run while it goes on: what its flow, its tasks and the front door share in one process.

Flow and task parameters carry a run's id only, so that nothing heavy and no secret reaches
Prefect; ``run_of`` finds the living ``Run`` behind the id. ``tasks.run.opener`` makes runs.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from convergence_core.budget.limits import Budget, Spent
from convergence_core.config import Configuration
from convergence_core.errors import LeaseHeldError, RunInterruptedError
from convergence_core.events import Event, Listener, RunFinished, RunStarted
from convergence_core.objective.goals import FittedGoals, Goals
from convergence_core.ports import (
    Journal,
    LostCall,
    Row,
    RunRecord,
    RunStatus,
)
from convergence_core.records import (
    Assignment,
    Candidate,
    Cell,
    Evaluation,
    Trial,
)
from convergence_core.result import ResultStatus
from convergence_core.rlp.commitments import Commitment, Thought
from convergence_core.sao.state import SaoState
from convergence_core.search.recommend import Recommendation, recommend
from convergence_core.search.sampler import Advice, AskRequest, Plan, Sampler, SearchState
from convergence_core.search.schedule import FINAL_SHARE, Schedule
from convergence_core.search.stopper import Stopper
from tasks.calls.session import EvaluationSession
from tasks.inputs.loader import Loaded
from tasks.rlp.run_rlp import RlpStep, Thinking
from tasks.run import active_runs
from tasks.run.prior_runs import PriorRuns
from tasks.run.progress import RunProgress, StepResult, limit_reached
from tasks.run.text_variants import widen
from tasks.runners.worker_pool import WorkerPool
from tasks.sao.round_result import Round
from tasks.sao.run_sao import Preferring
from tasks.secrets.process_redaction import redacted_text
from tasks.store import Lease, ParquetStore
from tasks.store.clock import wall_clock_us
from tasks.store.tables.lineage import told
from tasks.store.tables.rows import evaluation_row

FLOW_RUN_TAG = "prefect_flow_run"
"""Tag of a run that remembers which flow run worked on it last."""


class Run:
    """One optimization in progress. A context manager: leaving it closes what it holds.

    Leaving by ``RunInterruptedError`` or by a signal (Ctrl-C, a cancelled flow run, a worker that
    ends) marks the run ``stopped``, by any other exception ``failed``; both can be resumed.
    """

    def __init__(
        self,
        *,
        record: RunRecord,
        loaded: Loaded,
        schedule: Schedule,
        sampler: Sampler,
        past: PriorRuns,
        stopper: Stopper,
        progress: RunProgress,
        session: EvaluationSession,
        places: WorkerPool | None = None,
        store: ParquetStore,
        journal: Journal,
        lease: Lease,
        listener: Listener | None,
        maybe_paid: Sequence[LostCall],
        retries_missing: bool = False,
        budget: Budget,
        spent_before: Spent | None = None,
        thinking: Thinking | None = None,
        preferring: Preferring | None = None,
    ) -> None:
        self.record = record
        self.loaded = loaded
        self.schedule = schedule
        self.goals = Goals.of(loaded.configuration)
        self.sampler = sampler
        self.past = past
        self.stopper = stopper
        self.progress = progress
        self.session = session
        self.places = places
        """Where a runner takes the candidates; ``None``: they are evaluated here."""
        self.store = store
        self.journal = journal
        self.maybe_paid = tuple(maybe_paid)
        self.thinking = thinking
        """``None``: nobody thinks."""
        self.preferring = preferring
        """``None``: there are no preferences."""
        self._exogenous: frozenset[Cell] = frozenset()
        self._retries_missing = retries_missing
        self._budget = budget
        self.spent_before = spent_before or Spent()
        """What the finished runs have spent that this one goes on from."""
        budget.keep_back(share=FINAL_SHARE, calls=schedule.final_calls)
        self.resumed_from = progress.next_generation
        self._lease = lease
        self._listener = listener
        self._stopping = threading.Event()
        self.has_begun = False
        """Whether its work has begun: until then there is nothing to keep."""
        self._closed = False
        self._rng_state = progress.rng_state
        active_runs.register(self)

    @property
    def run_id(self) -> str:
        """The run's ULID."""
        return self.record.run_id

    @property
    def label(self) -> str:
        """Short name for people, e.g. ``support_bot-7f3a``."""
        return self.record.label

    @property
    def tag(self) -> str:
        """Tag of everything that Prefect shows of this optimized system."""
        return f"system:{self.record.name}"

    def tags_of_generation(self) -> tuple[str, str]:
        """Return the tags of what belongs to the next generation."""
        return self.tag, f"generation:{self.next_generation:02d}"

    @property
    def configuration(self) -> Configuration:
        """The configuration with this run's overrides."""
        return self.loaded.configuration

    @property
    def next_generation(self) -> int:
        """Number of the generation to run next, from 0."""
        return self.progress.next_generation

    @property
    def case_order(self) -> tuple[str, ...]:
        """Search cases in the order in which candidates meet them: shuffled once per seed."""
        cases = sorted(case.case_id for case in self.loaded.search_cases)
        rng = np.random.default_rng(np.random.SeedSequence(self.record.seed).spawn(2)[0])
        return tuple(cases[int(i)] for i in rng.permutation(len(cases)))

    @property
    def spent(self) -> Spent:
        """What counts against the limits: of this run, and of those that it goes on from."""
        return self.spent_before + Spent.of(self.journal.totals(self.run_id))

    def emit(self, event: Event) -> None:
        """Tell the listener, if there is one."""
        if self._listener is not None:
            self._listener(event)

    def announce(self) -> None:
        """Tell the listener that the run has begun."""
        self.emit(
            RunStarted(
                run_id=self.run_id,
                label=self.label,
                algorithm=self.sampler.name,
                n_generations=self.schedule.n_generations,
                n_search_cases=self.schedule.n_search_cases,
                n_holdout_cases=self.schedule.n_holdout_cases,
                resumed_from=self.resumed_from,
                maybe_paid=self.maybe_paid,
                n_cells_planned=self.schedule.planned_cells(),
                warm_start=self.past.told(),
                continues=told(self.record, self.spent_before),
            )
        )

    # -- the course of the search

    def should_continue(self) -> bool:
        """Whether another generation is to be run.

        Raises:
            RunInterruptedError: the run was asked to stop.
        """
        self.check_stop()
        return self.stop_reason() is None

    def stop_reason(self) -> tuple[ResultStatus, str] | None:
        """Return (status, reason in words) when the search has ended, else ``None``."""
        if self._repair() is not None:
            return None
        progress = self.progress
        if progress.spent is not None:
            return "budget", progress.spent
        if progress.exhausted:
            return "done", "the search space holds nothing that was not asked"
        if self.has_run_all_generations:
            n_planned = self.schedule.n_generations
            planned = "its one generation" if n_planned == 1 else f"all {n_planned} generations"
            return "done", f"{planned} {'was' if n_planned == 1 else 'were'} run"
        ended = self._stopped_early()
        capacity = self.schedule.capacity(progress.next_generation, progress.n_calls)
        if ended is None and capacity < 1:
            return "budget", f"budget.max_calls={self.schedule.max_calls} is spent"
        return ended

    @property
    def has_run_all_generations(self) -> bool:
        """Whether as many generations as planned are committed."""
        n_run = self.progress.next_generation - self.progress.n_repairs
        return n_run >= self.schedule.n_generations

    def _stopped_early(self) -> tuple[ResultStatus, str] | None:
        reason = self.stopper.why(self.progress.stopper)
        return None if reason is None else ("done", f"early stopping: {reason}")

    def ask(self) -> Plan:
        """Plan the next generation; asking twice before a commit gives the same plan."""
        repair = self._repair()
        if repair is not None:
            self._rng_state = self.progress.rng_state
            return repair
        advice = Advice()
        if self.thinking is not None:
            advice = self.thinking.advice(self.next_generation)
        plan, self._rng_state = self._ask(self._preferred(advice))
        self._exogenous = plan.exogenous
        return plan

    def think(self) -> tuple[Thought, ...]:
        """Write the thoughts of the next generation; they are durable when this returns."""
        if self.thinking is None or self._repair() is not None:
            return ()
        return self.thinking.think(self.next_generation, self._share_left(self.next_generation))

    def predict(self) -> Commitment | None:
        """Read what the thoughts predict of candidates that are chosen without them."""
        if self.thinking is None or self.thinking.commitment(self.next_generation) is None:
            return None
        preferred = self._preferred(Advice()).preferred
        plan, _ = self._ask(Advice(reserves=True, preferred=preferred))
        own = {cell.candidate_id for cell in plan.exogenous}
        reserved = [a.candidate for a in plan.assignments if a.candidate.candidate_id in own]
        most = -(-len(plan.assignments) // 2)
        return self.thinking.predict(
            self.next_generation,
            reserved[:most],
            self.progress.search,
            case_ids=self.case_order,
        )

    def prefer(self) -> Round | None:
        """Play the round of preferences before the next generation; ``None``: there is none."""
        if self.preferring is None or self._repair() is not None:
            return None
        found = self.preferring.play(self.next_generation, self.progress.search, self.leader())
        if found is not None:
            widen(self, found.state.variants)
        return found

    def leader(self) -> Candidate | None:
        """Return whom the evidence so far would hand over; ``None`` before the first reward."""
        found = self.recommend(self.progress.search)
        members = self.progress.search.archive.members
        return None if found is None else members[found.candidate_id].candidate

    def _preferred(self, advice: Advice) -> Advice:
        """Return advice with what preferences add to it."""
        if self.preferring is None:
            return advice
        leader = self.leader() if self.preferring.now.variants else None
        return self.preferring.advice(advice, leader)

    def _share_left(self, generation: int) -> float:
        return max(0.0, 1.0 - generation / self.schedule.n_generations)

    def _ask(self, advice: Advice) -> tuple[Plan, Mapping[str, Any]]:
        """Return the sampler's plan and the state of its generator after it."""
        rng = np.random.default_rng()
        rng.bit_generator.state = dict(self.progress.rng_state)
        plan = self.sampler.ask(
            self.progress.search,
            rng,
            AskRequest(
                generation=self.next_generation,
                n_generations=self.schedule.n_generations,
                n_candidates=self.schedule.population_size,
                n_cells=self.schedule.capacity(self.next_generation, self.progress.n_calls),
                case_ids=self.case_order,
                repeats=self.schedule.repeats,
                n_again=self.schedule.n_again,
                baseline=self.loaded.space.baseline(),
                advice=replace(
                    advice,
                    winners=() if self.next_generation else self.past.start.winners,
                ),
            ),
        )
        return plan, rng.bit_generator.state

    def _repair(self) -> Plan | None:
        """Return the plan that asks missing cells once more; ``None``: none is wanted."""
        if not self._retries_missing:
            return None
        assignments = []
        for member in self.progress.search.archive:
            cells = sorted(member.missing)
            if cells:
                candidate = member.candidate
                assignments.append(
                    Assignment(
                        candidate=candidate,
                        cells=tuple(
                            Cell(
                                candidate_id=candidate.candidate_id,
                                case_id=case_id,
                                repeat=repeat,
                            )
                            for case_id, repeat in cells
                        ),
                        label=f"again {self.loaded.space.label(candidate.params, n=3)}",
                    )
                )
        return Plan(assignments=tuple(assignments)) if assignments else None

    def evaluate(self, assignment: Assignment, generation: int | None) -> Trial:
        """Evaluate a candidate, here or where the runner takes it; see ``EvaluationSession``."""
        if self.places is None:
            return self.session.evaluate(assignment, generation)
        return self.places.evaluate(assignment, generation)

    def begin_final(self) -> None:
        """Let the final re-estimation have what was kept back for it."""
        self._budget.keep_back()

    def learn(self, trials: Sequence[Trial]) -> StepResult:
        """Return the progress after these trials; nothing is kept until it is committed."""
        is_repair = self._repair() is not None
        search = self.progress.search
        if is_repair:  # no choice of the sampler's: evidence alone
            generation = self.next_generation
            measures = None if self.goals is None else self.goals.measures
            archive = search.archive.tell(trials, generation, measures)
            search = replace(search, archive=archive)
        else:
            search = self.sampler.tell(search, trials)
        recommendation = self.recommend(search, rival_id=self.progress.stopper.leader)
        taught = None
        if self.thinking is not None and not is_repair:
            taught = self.thinking.learn(
                self.next_generation,
                trials,
                self._exogenous,
                self._share_left(self.next_generation + 1),
            )
        preferred = None if self.preferring is None else self.preferring.now
        progress = replace(
            self.progress,
            next_generation=self.next_generation + 1,
            search=search,
            rng_state=self._rng_state,
            stopper=self.stopper.update(
                self.progress.stopper, recommendation, regret_upper_bound=search.regret_upper_bound
            ),
            n_calls=self.spent_before.calls
            + self.journal.totals(
                self.run_id, before_generation=self.next_generation + 1
            ).n_attempts,
            exhausted=self.progress.exhausted if is_repair else not trials,
            n_repairs=self.progress.n_repairs + is_repair,
            spent=limit_reached(trials),
            thoughts=self.progress.thoughts if taught is None else taught.after.to_json(),
            preferences=self.progress.preferences if preferred is None else preferred.to_json(),
        )
        return StepResult(
            trials=tuple(trials),
            progress=progress,
            recommendation=recommendation,
            taught=taught,
            preferred=preferred,
        )

    def recommend(
        self, search: SearchState, *, rival_id: str | None = None
    ) -> Recommendation | None:
        """Return whom this evidence would hand over; ``None`` before the first reward."""
        stream = np.random.SeedSequence(self.record.seed).spawn(3)[2]
        return recommend(
            search,
            rng=np.random.default_rng(stream),
            level=self.configuration.optimization.mab.confidence_level,
            case_weights=self.past.case_weights,
            surrogate=self.past.surrogate,
            rival_id=rival_id,
            goals=self.fit_goals(search),
        )

    def fit_goals(self, search: SearchState) -> FittedGoals | None:
        """Return what this evidence says of constraints and metrics; ``None``: neither counts."""
        goals = self.goals
        return None if goals is None else goals.fit(search.archive, self.loaded.space)

    def evaluation_rows(self, evaluations: Iterable[Evaluation]) -> list[Row]:
        """Return rows of ``evaluations``, each with its case's weight."""
        weights = {case.case_id: case.weight for case in self.loaded.cases}
        return [
            evaluation_row(self.run_id, evaluation, weight=weights.get(evaluation.cell.case_id))
            for evaluation in evaluations
        ]

    def commit(
        self,
        progress: RunProgress,
        taught: RlpStep | None = None,
        preferred: SaoState | None = None,
    ) -> None:
        """Move on to this progress, which the store has made durable."""
        if self.preferring is not None and preferred is not None:
            self.preferring.commit(preferred)
        if self.thinking is not None and taught is not None:
            self.thinking.commit(taught)
        if progress.n_repairs > self.progress.n_repairs:
            self._retries_missing = False  # once: what is still missing stays so
        self.progress = progress

    # -- ends

    def stop(self) -> None:
        """Ask the run to end soon: no new call starts, paid answers are kept. Thread-safe."""
        self._stopping.set()
        self.session.stop()
        if self.places is not None:
            self.places.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether the run was asked to end."""
        return self._stopping.is_set()

    def check_stop(self) -> None:
        """Raise if the run must not go on.

        Raises:
            RunInterruptedError: ``stop`` was called.
            LeaseHeldError: another process took the lease, e.g. after this machine slept.
        """
        if self._lease.lost:
            raise LeaseHeldError(
                f"another process optimizes `{self.record.name}` since this one lost its lease. "
                f"Look at `convergence runs`; `convergence resume {self.label}` goes on later."
            )
        if self._stopping.is_set():
            raise RunInterruptedError(
                f"run {self.label} was stopped in generation {self.next_generation:02d}. "
                f"Nothing paid is lost: `convergence resume {self.label}` goes on."
            )

    def save(self, status: RunStatus, reason: str | None = None) -> None:
        """Write the run's row."""
        self.record = replace(
            self.record,
            status=status,
            reason=reason,
            ended_us=None if status == "running" else wall_clock_us(),
            n_generations=self.next_generation,
        )
        self.store.save_run(self.record)

    def finish(self, reason: str, summary_json: str) -> None:
        """Mark the run as done and compact its tables."""
        self.record = replace(
            self.record,
            status="done",
            reason=reason,
            ended_us=wall_clock_us(),
            n_generations=self.next_generation,
            summary_json=summary_json,
        )
        self.store.finish_run(self.record)

    def close(self) -> None:
        """Free the target, the journal and the lease; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        active_runs.unregister(self.run_id)
        for part in (self.thinking, self.preferring):
            if part is not None:
                part.close()
        if self.places is not None:
            self.places.close()
        self.session.close()
        self.journal.close()
        self.store.close()
        self._lease.release()

    def __enter__(self) -> Self:
        """Mark the run as running, begin to count its minutes, and tell the listener.

        Between opening and this, Prefect may have started a server: no work of the run's.
        """
        self.has_begun = True
        self.save("running")
        self._budget.start(wall_clock_us() / 1e6)
        self.announce()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record how the run ended and free what it holds."""
        try:
            if error is not None:
                by_signal = not isinstance(error, Exception)
                interrupted = by_signal or isinstance(error, RunInterruptedError)
                status: Literal["stopped", "failed"] = "stopped" if interrupted else "failed"
                reason = redacted_text(str(error)) or type(error).__name__
                if by_signal:
                    self.stop()
                    self.session.drain()  # what is paid for is kept
                    reason = "ended from outside: cancelled, or its process was told to end"
                self.save(status, reason)
                self.emit(RunFinished(run_id=self.run_id, status=status, reason=reason))
        finally:
            self.close()


_ANSWERED = "SELECT eval_id FROM evaluations WHERE run_id = $run AND status = 'ok' LIMIT 1"


def has_answers(run: Run, evaluations: Iterable[Evaluation] = ()) -> bool:
    """Whether a candidate answered, among these evaluations or committed ones.

    Rewards of failures alone recommend nobody.
    """
    if any(evaluation.status == "ok" for evaluation in evaluations):
        return True
    return bool(run.store.rows(_ANSWERED, {"run": run.run_id}))


def recommended(run: Run) -> Recommendation | None:
    """Return whom the committed evidence hands over; ``None``: nobody answered."""
    return run.recommend(run.progress.search) if has_answers(run) else None


def baseline_of(run: Run) -> Candidate | None:
    """Return the user's defaults as a candidate; ``None``: the configuration gives none."""
    params = run.loaded.space.baseline()
    return None if params is None else run.loaded.space.candidate(params, origin="default")
