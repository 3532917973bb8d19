"""Assembly of a run: targets, metrics, samplers, learners and earlier evidence."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeAlias, TypedDict
from uuid import uuid4

from convergence_core.budget.limits import Budget, Spent
from convergence_core.config import Configuration
from convergence_core.config.problems import listing
from convergence_core.events import (
    BudgetWarned,
    CellEvaluated,
    Listener,
    RunNotice,
    ThinkingStopped,
)
from convergence_core.ports import Checkpoint, RunRecord, SessionTarget
from convergence_core.records import Candidate, Evaluation, fields_of
from convergence_core.search.learner import Learner
from convergence_core.search.samplers import RACING
from convergence_core.search.schedule import Schedule
from convergence_core.search.study import Study
from convergence_core.search.study_state import StudyState
from convergence_core.space import same_params
from convergence_core.space.builder import widened
from tasks.games.game_cases import with_used_cases
from tasks.inputs.environment import Environment, check_priced
from tasks.inputs.loader import Loaded
from tasks.inputs.storage import store_path
from tasks.metrics.judge.judge import call_count
from tasks.prompts.factory import make_prompts
from tasks.rlp.factory import make_rlp
from tasks.rlp.learner_calls import LearnerParts
from tasks.run.adoption import tagged_champion
from tasks.run.prior_runs import read_past
from tasks.run.run import Run, RunResources, register
from tasks.runners import WorkerPool, check_runner, make_runner, n_workers_of
from tasks.runners.evaluation_deps import EvaluationDeps, open_session
from tasks.runners.work_items import RunSpec
from tasks.sao.factory import make_sao
from tasks.secrets.redaction import journal_url
from tasks.store.journal.lease import Lease
from tasks.store.journal.sqlite_journal import open_journal
from tasks.store.tables import lineage
from tasks.store.tables.interrupted_runs import mark_interrupted
from tasks.store.tables.lineage import inherit, spent_before
from tasks.store.tables.parquet_store import ParquetStore
from tasks.telemetry.listeners import ListenerThreads, open_listeners, remote_exports

OnNotice: TypeAlias = Callable[[RunNotice], None]


AGENT_CALLS: Final = 4
"""Typical model calls of an agent: two or three sequential tool calls and the answer."""


LEARNERS: Final[tuple[Callable[[LearnerParts], Learner | None], ...]] = (
    make_sao,
    make_prompts,
    make_rlp,
)
"""Factories of learners. Each learner adds to the advice of those before it: prompts first, then
thoughts.
"""


class Caller(TypedDict, total=False):
    """Listeners and replacements of configured parts, from the program that opens a run."""

    mock_url: str | None
    """URL of a server that answers in place of all chat models."""
    local_function: Callable[..., Any] | None
    evaluator: Callable[..., Any] | None
    on_event: Listener | None
    on_notice: OnNotice | None
    """Listener to notices of budget and providers only; ``None`` means ``on_event``."""


def notify_of(caller: Caller) -> OnNotice | None:
    """Return the listener to notices of budget and providers."""
    return caller.get("on_notice") or caller.get("on_event")


def _on_cell_of(caller: Caller) -> Callable[[Evaluation], None] | None:
    """Return a function that emits an event per evaluation; ``None`` without a listener."""
    tell = caller.get("on_event")
    if tell is None:
        return None
    return lambda done: tell(
        CellEvaluated(generation=done.generation, reward=done.reward, cached=done.cached)
    )


def assemble(
    record: RunRecord,
    loaded: Loaded,
    caller: Caller,
    *,
    retry_missing: bool = False,
    is_raised: bool = False,
) -> Run:
    """Take the lease of a run's system, open store and journal, and return the run.

    Args:
        record: row of a new run, or of one that continues.
        loaded: the configuration and its files.
        caller: functions and listeners.
        retry_missing: whether to repeat the cells without a reward first.
        is_raised: whether the limit that ended the run was raised.

    Raises:
        ConfigurationError: an object that the configuration names cannot be used.
        LeaseHeldError: another process optimizes this system.
        StoreError: the store cannot be used.
    """
    # Check what the user has to fix before taking the lease.
    deps = _deps(loaded, caller)
    price_warning = check_priced(loaded, deps.target, deps.environment.prices)
    store = ParquetStore(store_path(loaded))
    loaded = _with_variants(
        with_used_cases(loaded, record), lineage.last_checkpoint(store, record)
    )
    schedule = schedule_of(loaded, tagged_champion(record.tags, loaded.space))
    past = read_past(store, record, loaded)
    study = past.study(loaded, schedule)
    with ExitStack() as held:
        caller = _heard(caller, _listeners(record, deps, held))
        resources = open_resources(held, record, deps, store, caller)
        run = Run(
            record=record,
            loaded=loaded,
            past=past,
            study=study,
            state=_opening_state(
                study, record, resources, is_raised=is_raised, retry_missing=retry_missing
            ),
            resources=resources,
            held=held,
            on_event=caller.get("on_event"),
        )
        _add_learners(run, deps, caller)
    register(run)
    _warn(notify_of(caller), [price_warning, _unsent(loaded, deps)], study, record)
    return run


def _add_learners(run: Run, deps: EvaluationDeps, caller: Caller) -> None:
    """Add the learners in the order of ``LEARNERS``; the run then owns its resources."""
    notify = notify_of(caller)
    parts = LearnerParts(
        **fields_of(run, "record", "loaded", "session", "store", "state"),
        **fields_of(deps, "redact", "target"),
        world=deps.environment,
        attempts=cache(lambda: lineage.attempts(run.journal, run.record)),
        on_notice=None if notify is None else lambda text: notify(ThinkingStopped(text=text)),
    )
    for make in LEARNERS:
        learner = make(parts)
        if learner is not None:
            run.held.callback(learner.close)
            run.learners[learner.name] = learner
    run.held = run.held.pop_all()


def _listeners(record: RunRecord, deps: EvaluationDeps, held: ExitStack) -> ListenerThreads | None:
    """Return the configuration's listeners to a search; ``None`` for other runs."""
    if not deps.telemetry.listeners or lineage.PARTS & {*record.tags}:
        return None
    listeners = open_listeners(deps.telemetry, deps.loaded.base_dir, redact=deps.redact)
    held.callback(listeners.close)
    return listeners


def _heard(caller: Caller, listeners: ListenerThreads | None) -> Caller:
    """Return a caller whose events and notices also reach the listeners."""
    if listeners is None:
        return caller
    on_event, on_notice = caller.get("on_event"), notify_of(caller)
    return {
        **caller,
        "on_event": listeners.beside(on_event),
        "on_notice": listeners.beside(on_notice),
    }


def _unsent(loaded: Loaded, deps: EvaluationDeps) -> str | None:
    """Return a sentence on exports left out offline; ``None`` if there are none."""
    keys = remote_exports(loaded.configuration.telemetry)
    if deps.environment.mock_url is None or not keys:
        return None
    return f"Offline nothing is sent to other machines: {listing(keys)} {'is' if len(keys) == 1 else 'are'} left out."


def _warn(
    notify: OnNotice | None, warnings: Sequence[str | None], study: Study, record: RunRecord
) -> None:
    """Send the user's warnings before the run begins."""
    is_search = not lineage.PARTS & {*record.tags}
    shortage = study.schedule.final_shortage() if is_search else None
    for text in (*warnings, shortage):
        if notify is not None and text is not None:
            notify(BudgetWarned(text=text))


def _deps(loaded: Loaded, caller: Caller) -> EvaluationDeps:
    """Return the target and the metrics."""
    function, evaluator = caller.get("local_function"), caller.get("evaluator")
    environment = Environment.of(loaded.configuration, mock_url=caller.get("mock_url"))
    check_runner(loaded.configuration, is_by_name=function is None and evaluator is None)
    return EvaluationDeps.of(loaded, environment, local_function=function, evaluator=evaluator)


def _with_variants(loaded: Loaded, checkpoint: Checkpoint | None) -> Loaded:
    """Return the configuration with the prompts that learners had added by a checkpoint."""
    if checkpoint is None:
        return loaded
    variants = StudyState.from_checkpoint(checkpoint).variants
    return replace(loaded, space=widened(loaded.space, variants))


def _opening_state(
    study: Study,
    record: RunRecord,
    resources: RunResources,
    *,
    is_raised: bool,
    retry_missing: bool,
) -> StudyState:
    """Return the state after the last committed generation, and the plan of the next."""
    checkpoint = resources.store.checkpoint(record.run_id)
    state = study.start() if checkpoint is None else StudyState.from_checkpoint(checkpoint)
    is_freed = is_raised or lineage.begins_at(record, state.next_generation)
    is_cut = (
        is_freed and state.limit is not None
    )  # evaluate the cells that the limit had cut first
    return replace(
        state,
        limit=None if is_freed else state.limit,
        n_calls=max(state.n_calls, resources.spent_before.calls),
        repairs_next=is_cut or retry_missing or lineage.retries(record, state.next_generation),
    )


def open_resources(
    held: ExitStack,
    record: RunRecord,
    deps: EvaluationDeps,
    store: ParquetStore,
    caller: Caller,
) -> RunResources:
    """Take the lease of a run's system and open the run's resources.

    Args:
        held: closes the resources.
        record: the run's row.
        deps: target and metrics.
        store: store of the run.
        caller: listeners.

    Raises:
        LeaseHeldError: another process optimizes this system.
        StoreError: the store cannot be used.
    """
    configuration = deps.loaded.configuration
    lease = Lease(store.path, record.name)
    lease.acquire()
    held.callback(lease.close)
    held.callback(store.close)
    _sweep(held, record, deps, mark_interrupted(store, record))
    journal = open_journal(store.path, journal_url(configuration))
    held.callback(journal.close)
    maybe_paid = tuple(journal.abandon(record.run_id))
    runner = make_runner(configuration.optimization.execution)
    if runner is not None:
        held.callback(runner.close)
    spec = _spec(record, deps, store)
    inherit(store, record)
    before = spent_before(journal, record)
    spent = before + Spent.of(journal.totals(record.run_id))
    budget = Budget(configuration.budget, spent, threading.Lock())
    on_cell, notify = _on_cell_of(caller), notify_of(caller)
    session = open_session(
        deps,
        spec,
        journal=journal,
        budget=budget,
        on_cell=on_cell,
        on_notice=notify,
    )
    held.callback(session.close)
    pool = None
    if runner is not None:
        pool = WorkerPool(
            runner,
            spec,
            budget=budget,
            journal=journal,
            before=before,
            on_cell=on_cell,
            on_warning=notify,
        )
    return RunResources(
        store=store,
        lease=lease,
        journal=journal,
        budget=budget,
        spent_before=before,
        maybe_paid=maybe_paid,
        session=session,
        pool=pool,
    )


def _sweep(
    held: ExitStack, record: RunRecord, deps: EvaluationDeps, interrupted: Sequence[str]
) -> None:
    """Release sessions left open by killed processes, now and at the end."""
    if isinstance(deps.target, SessionTarget):
        deps.target.sweep((record.run_id, *interrupted))
        held.callback(deps.target.sweep, (record.run_id,))


def _spec(record: RunRecord, deps: EvaluationDeps, store: ParquetStore) -> RunSpec:
    return RunSpec(
        record=record,
        session_id=uuid4().hex,
        store_path=str(store.path.resolve()),
        mock_url=deps.environment.mock_url,
        n_workers=n_workers_of(deps.loaded.configuration.optimization.execution),
    )


def _champions(configuration: Configuration) -> tuple[int, int]:
    """Return the number of champions of pairwise judges, and of those other than the defaults."""
    pairwise = [m for m in configuration.evaluation.judges.values() if m.mode == "pairwise"]
    written = [m.champion for m in pairwise if isinstance(m.champion, dict)]
    n_apart = sum(params not in written[:i] for i, params in enumerate(written))
    return n_apart + any(not isinstance(m.champion, dict) for m in pairwise), n_apart


def schedule_of(loaded: Loaded, champion: Candidate | None = None) -> Schedule:
    """Return the schedule of a run of this configuration, in cells.

    Args:
        loaded: the configuration with its files.
        champion: candidate in production, which the final test compares with winner and defaults.
    """
    configuration = loaded.configuration
    n_champions, n_apart = _champions(configuration)
    # Without retries. The champion's answers are additional, one per case.
    n_judge_calls = sum(call_count(metric) for metric in configuration.evaluation.judges.values())
    is_agent, most = configuration.api.kind == "agno", configuration.api.agent.max_model_calls
    n_agent_calls = (
        min(AGENT_CALLS, most) if is_agent else 0
    )  # the agent decides on the exact number
    baseline = loaded.space.baseline()
    return Schedule(
        n_generations=configuration.optimization.evolution.generations,
        population_size=configuration.optimization.evolution.population_size,
        n_search_cases=len(loaded.search_cases),
        n_holdout_cases=len(loaded.holdout_cases),
        **fields_of(configuration.evaluation, "repeats", "deterministic", "cases_per_candidate"),
        max_calls=configuration.budget.max_calls,
        one_by_one=configuration.optimization.execution.parallel_workers == 1
        and len(loaded.search_cases) == 1
        and configuration.evaluation.objective == "reward"
        and configuration.optimization.algorithm in RACING,
        calls_per_cell=1 + n_judge_calls + n_agent_calls,
        n_champions=n_champions,
        n_champions_apart=n_apart,
        has_baseline=baseline is not None,
        has_champion=champion is not None
        and (baseline is None or not same_params(champion.params, baseline)),
    )
