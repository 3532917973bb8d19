"""A run put together: its target and metrics, the lease, store and journal, and where it stands."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np

from convergence_core.budget.limits import Budget, Limits, Spent
from convergence_core.config import Configuration
from convergence_core.events import (
    BudgetWarned,
    CellEvaluated,
    Listener,
    ThinkingStopped,
    TrafficChanged,
)
from convergence_core.ports import RunRecord
from convergence_core.records import Evaluation
from convergence_core.search.sampler import Sampler
from convergence_core.search.samplers import make_sampler, make_surrogate
from convergence_core.search.stopper import Stopper, StopperState as StopperProgress
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.inputs.prices import check_priced
from tasks.inputs.storage import store_path
from tasks.rlp.factory import make_thinker, make_thinking
from tasks.run.champions import tagged_champion
from tasks.run.destinations import check_destinations
from tasks.run.prior_runs import read_past
from tasks.run.progress import RunProgress
from tasks.run.run import Run
from tasks.run.run_size import schedule_of
from tasks.run.text_variants import widened_by
from tasks.runners import WorkerPool, check_runner, make_runner, places_of
from tasks.runners.evaluation_deps import EvaluationDeps, open_session
from tasks.runners.work_items import RunSpec
from tasks.sao.factory import make_preferring, make_writer
from tasks.store import Lease, ParquetStore, open_journal
from tasks.store.tables.interrupted_runs import mark_interrupted
from tasks.store.tables.lineage import (
    begins_at,
    inherit,
    payer,
    retries,
    spent_before,
    standing,
)

Notify: TypeAlias = Callable[[BudgetWarned | TrafficChanged | ThinkingStopped], None]
OFFLINE = "offline"
"""Tag, and end of the system's name, of runs whose answers come from the mock."""


def assemble(
    record: RunRecord,
    loaded: Loaded,
    local_function: Callable[..., Any] | None,
    evaluator: Callable[..., Any] | None,
    on_event: Listener | None,
    *,
    mock_url: str | None = None,
    on_notice: Notify | None = None,
    retry_missing: bool = False,
    is_raised: bool = False,
) -> Run:
    """Take the lease of a run's system, open store and journal, and return the run.

    Args:
        record: the run's row, new or of a run that goes on.
        loaded: the configuration and its files.
        local_function: the target, in place of ``api.function``.
        evaluator: the user's evaluator.
        on_event: listener.
        mock_url: server that answers in place of all chat models.
        on_notice: told of budget and providers alone.
        retry_missing: ask the cells without a reward once more before anything else.
        is_raised: whether a limit that had ended the run was raised.

    Raises:
        ConfigurationError: something that the configuration names cannot be used.
        LeaseHeldError: another process optimizes this system.
        StoreError: the store cannot be used.
    """
    configuration = loaded.configuration
    # Before the lease, since these fail for reasons that the user has to mend.
    check_destinations(configuration, loaded.base_dir)
    world = Environment.of(configuration, mock_url=mock_url)
    check_runner(configuration, is_by_name=local_function is None and evaluator is None)
    equipment = EvaluationDeps.of(
        loaded, world, local_function=local_function, evaluator=evaluator
    )
    target = equipment.target
    warning = check_priced(loaded, target, world.prices)
    store = ParquetStore(store_path(loaded))
    loaded = _as_widened(store, record, loaded)
    thinker = make_thinker(configuration, loaded.space, world)
    writer = make_writer(configuration, world)
    weights = {case.case_id: case.weight for case in loaded.search_cases}
    surrogate = make_surrogate(loaded.space, deterministic=configuration.evaluation.deterministic)
    past = read_past(store, record, loaded, surrogate)
    sampler = make_sampler(
        configuration, loaded.space, case_weights=weights, surrogate=past.surrogate
    )
    notify = on_notice or on_event
    on_cell = None if on_event is None else _cell_listener(on_event)
    world_name = OFFLINE if OFFLINE in record.tags else ""
    with contextlib.ExitStack() as held:
        lease = Lease(store.path, record.name)
        lease.acquire()
        held.callback(lease.release)
        mark_interrupted(store, record)
        journal = open_journal(store.path, world.journal_url(configuration))
        held.callback(journal.close)
        maybe_paid = journal.abandon(record.run_id)
        runner = make_runner(configuration.optimization.execution)
        if runner is not None:
            held.callback(runner.close)
        inherit(store, record)
        before = spent_before(journal, record)
        progress = _progress(store, sampler, record, before, is_raised=is_raised)
        spent = before + Spent.of(journal.totals(record.run_id))
        spending = Budget(Limits.of(configuration.budget), spent, threading.Lock())
        session = open_session(
            equipment,
            run_id=record.run_id,
            label=record.label,
            payer=payer(record),
            world_name=world_name,
            store_path=store.path,
            journal=journal,
            budget=spending,
            on_cell=on_cell,
            on_notice=notify,
        )
        held.callback(session.close)
        places = None
        if runner is not None:
            places = WorkerPool(
                runner,
                _recipe(record, loaded, store, world_name=world_name, mock_url=mock_url),
                budget=spending,
                journal=journal,
                before=before,
                on_cell=on_cell,
                on_warning=notify,
            )
        members = progress.search.archive.members
        tell = None if notify is None else lambda text: notify(ThinkingStopped(text=text))
        thinking = make_thinking(
            thinker,
            configuration,
            record=record,
            session=session,
            store=store,
            journal=journal,
            learned=progress.thoughts,
            params_of={name: member.candidate.params for name, member in members.items()},
            next_generation=progress.next_generation,
            redact=world.redactor(configuration),
            on_notice=tell,
        )
        preferring = make_preferring(
            writer,
            loaded,
            world,
            target,
            record=record,
            session=session,
            store=store,
            journal=journal,
            learned=progress.preferences,
            next_generation=progress.next_generation,
            on_notice=tell,
        )
        held.pop_all()  # from here on they are the run's
    schedule = schedule_of(loaded, tagged_champion(record.tags, loaded.space))
    for text in (warning, schedule.final_shortage()):
        if notify is not None and text is not None:
            notify(BudgetWarned(text=text))
    return Run(
        record=record,
        loaded=loaded,
        schedule=schedule,
        sampler=sampler,
        past=past,
        stopper=_stopper(configuration),
        progress=progress,
        session=session,
        places=places,
        store=store,
        journal=journal,
        lease=lease,
        listener=on_event,
        maybe_paid=maybe_paid,
        retries_missing=retry_missing or retries(record, progress.next_generation),
        budget=spending,
        spent_before=before,
        thinking=thinking,
        preferring=preferring,
    )


def _recipe(
    record: RunRecord,
    loaded: Loaded,
    store: ParquetStore,
    *,
    world_name: str,
    mock_url: str | None,
) -> RunSpec:
    return RunSpec(
        run_id=record.run_id,
        opening=uuid4().hex,
        label=record.label,
        payer=payer(record),
        world=world_name,
        config_json=record.config_json,
        base_dir=record.base_dir,
        cases_sha256=record.cases_sha256,
        search_space_json=record.search_space_json,
        store_path=str(store.path.resolve()),
        mock_url=mock_url,
        n_places=places_of(loaded.configuration.optimization.execution),
    )


def _stopper(configuration: Configuration) -> Stopper:
    """Return the rule of early stopping; the mean reward says nothing of when a front is found."""
    config = configuration.optimization.execution.early_stopping
    return Stopper(
        enabled=config.enabled and configuration.evaluation.objective == "reward",
        patience=config.patience,
        min_improvement=config.min_improvement,
    )


def _as_widened(store: ParquetStore, record: RunRecord, loaded: Loaded) -> Loaded:
    """Return the files with the texts that were distilled before the last committed generation."""
    checkpoint = standing(store, record)
    if checkpoint is None:
        return loaded
    return widened_by(loaded, RunProgress.from_checkpoint(checkpoint).preferences)


def _progress(
    store: ParquetStore, sampler: Sampler, record: RunRecord, before: Spent, *, is_raised: bool
) -> RunProgress:
    """Return where the run stands: at its last committed generation, or at its beginning.

    Args:
        store: holds the run.
        sampler: of the run.
        record: of the run.
        before: what finished runs have spent that it goes on from, outside generations too.
        is_raised: whether a limit that had ended the run was raised.
    """
    checkpoint = store.checkpoint(record.run_id)
    progress = RunProgress(
        search=sampler.start(),
        rng_state=_first_rng_state(record.seed),
        stopper=StopperProgress(),
    )
    if checkpoint is not None:
        progress = RunProgress.from_checkpoint(checkpoint)
    if is_raised or begins_at(record, progress.next_generation):
        progress = replace(progress, spent=None)
    return replace(progress, n_calls=max(progress.n_calls, before.calls))


def _cell_listener(on_event: Listener) -> Callable[[Evaluation], None]:
    """Return a listener that turns each evaluation into an event."""

    def on_cell(evaluation: Evaluation) -> None:
        on_event(
            CellEvaluated(
                generation=evaluation.generation,
                reward=evaluation.reward,
                cached=evaluation.cached,
            )
        )

    return on_cell


def _first_rng_state(seed: int) -> Mapping[str, Any]:
    stream = np.random.SeedSequence(seed).spawn(2)[1]
    state: Mapping[str, Any] = np.random.default_rng(stream).bit_generator.state
    return state
