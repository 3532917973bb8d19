"""Resources of an open run: lease, store, journal, budget, sessions."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict
from uuid import uuid4

from convergence_core.budget.limits import Budget
from convergence_core.budget.terms import Limits, Spent
from convergence_core.events import CellEvaluated, Listener, RunNotice
from convergence_core.ports import Journal, LostCall, RunRecord, SessionTarget
from convergence_core.records import Evaluation
from tasks.calls.session import EvaluationSession
from tasks.runners import WorkerPool, make_runner, n_workers_of
from tasks.runners.evaluation_deps import EvaluationDeps, open_session
from tasks.runners.work_items import RunSpec
from tasks.store import Lease, ParquetStore, open_journal
from tasks.store.tables.interrupted_runs import mark_interrupted
from tasks.store.tables.lineage import OFFLINE, inherit, payer, spent_before

OnNotice: TypeAlias = Callable[[RunNotice], None]


class Caller(TypedDict, total=False):
    """What the program that opens a run puts in place of parts of its configuration; its listeners."""

    mock_url: str | None
    """Server that answers in place of all chat models."""
    local_function: Callable[..., Any] | None
    """The target, in place of ``api.function``."""
    evaluator: Callable[..., Any] | None
    """The user's evaluator."""
    on_event: Listener | None
    on_notice: OnNotice | None
    """Listens to notices of budget and providers alone; ``None``: ``on_event`` does."""


def notify_of(caller: Caller) -> OnNotice | None:
    """Return the listener to notices of budget and providers."""
    return caller.get("on_notice") or caller.get("on_event")


def _on_cell_of(caller: Caller) -> Callable[[Evaluation], None] | None:
    """Return what turns each evaluation into an event."""
    tell = caller.get("on_event")
    if tell is None:
        return None
    return lambda done: tell(
        CellEvaluated(generation=done.generation, reward=done.reward, cached=done.cached)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResources:
    """What an open run works with."""

    store: ParquetStore
    lease: Lease
    """Held for the run's system."""
    journal: Journal
    budget: Budget
    spent_before: Spent
    """What the finished runs have spent that this one goes on from."""
    maybe_paid: tuple[LostCall, ...]
    """Calls in flight when an earlier process died."""
    session: EvaluationSession
    pool: WorkerPool | None
    """Where a runner takes the candidates; ``None``: they are evaluated here."""


def open_resources(
    held: ExitStack,
    record: RunRecord,
    deps: EvaluationDeps,
    store: ParquetStore,
    caller: Caller,
) -> RunResources:
    """Take the lease of a run's system, and open what the run works with.

    Args:
        held: frees what is opened.
        record: the run's row.
        deps: target and metrics.
        store: of the run.
        caller: listens.

    Raises:
        LeaseHeldError: another process optimizes this system.
        StoreError: the store cannot be used.
    """
    configuration = deps.loaded.configuration
    lease = Lease(store.path, record.name)
    lease.acquire()
    held.callback(lease.release)
    held.callback(store.close)
    _sweep(held, record, deps, mark_interrupted(store, record))
    journal = open_journal(store.path, deps.environment.journal_url(configuration))
    held.callback(journal.close)
    maybe_paid = tuple(journal.abandon(record.run_id))
    runner = make_runner(configuration.optimization.execution)
    if runner is not None:
        held.callback(runner.close)
    inherit(store, record)
    before = spent_before(journal, record)
    spent = before + Spent.of(journal.totals(record.run_id))
    budget = Budget(Limits.of(configuration.budget), spent, threading.Lock())
    on_cell, notify = _on_cell_of(caller), notify_of(caller)
    spec = _spec(record, deps, store)
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
    """Release sessions that killed processes left open: before the first call, and after the last."""
    if isinstance(deps.target, SessionTarget):
        deps.target.sweep((record.run_id, *interrupted))
        held.callback(deps.target.sweep, (record.run_id,))


def _spec(record: RunRecord, deps: EvaluationDeps, store: ParquetStore) -> RunSpec:
    return RunSpec(
        run_id=record.run_id,
        session_id=uuid4().hex,
        label=record.label,
        payer=payer(record),
        world=OFFLINE if OFFLINE in record.tags else "",
        config_json=record.config_json,
        base_dir=record.base_dir,
        cases_sha256=record.cases_sha256,
        search_space_json=record.search_space_json,
        store_path=str(store.path.resolve()),
        mock_url=deps.environment.mock_url,
        n_workers=n_workers_of(deps.loaded.configuration.optimization.execution),
    )
