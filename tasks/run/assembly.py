"""Assembly of a run: what evaluates, what decides, and what is known so far."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Final

from convergence_core.config.problems import listing
from convergence_core.events import BudgetWarned, ThinkingStopped
from convergence_core.ports import Checkpoint, RunRecord
from convergence_core.search.learner import Learner
from convergence_core.search.study import Study
from convergence_core.search.study_state import StudyState
from convergence_core.space.text_variants import widened
from tasks.games.games_learner import make_games
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.inputs.prices import check_priced
from tasks.inputs.storage import store_path
from tasks.prompts.factory import make_prompts
from tasks.rlp.factory import make_rlp
from tasks.rlp.learner_calls import LearnerParts
from tasks.run.active_runs import register
from tasks.run.champions import tagged_champion
from tasks.run.prior_runs import read_past
from tasks.run.resources import Caller, OnNotice, RunResources, notify_of, open_resources
from tasks.run.run import Run
from tasks.run.run_size import schedule_of
from tasks.runners import check_runner
from tasks.runners.evaluation_deps import EvaluationDeps
from tasks.sao.factory import make_sao
from tasks.store import ParquetStore
from tasks.store.tables import lineage
from tasks.telemetry.listeners import ListenerThreads, open_listeners, remote_exports

LEARNERS: Final[tuple[Callable[[LearnerParts], Learner | None], ...]] = (
    make_sao,
    make_prompts,
    make_rlp,
    make_games,
)
"""Each advises upon those before it: texts of preferences and prompts first, then thoughts."""


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
        record: the run's row, new or of a run that goes on.
        loaded: the configuration and its files.
        caller: gives functions, and listens.
        retry_missing: ask the cells without a reward once more before anything else.
        is_raised: whether a limit that had ended the run was raised.

    Raises:
        ConfigurationError: something that the configuration names cannot be used.
        LeaseHeldError: another process optimizes this system.
        StoreError: the store cannot be used.
    """
    # First what fails for reasons that the user has to mend, then the lease.
    deps = _deps(loaded, caller)
    price_warning = check_priced(loaded, deps.target, deps.environment.prices)
    store = ParquetStore(store_path(loaded))
    loaded = _with_variants(loaded, lineage.last_checkpoint(store, record))
    past = read_past(store, record, loaded)
    study = past.study(loaded, schedule_of(loaded, tagged_champion(record.tags, loaded.space)))
    with ExitStack() as held:
        caller = _heard(caller, _listeners(record, deps, held))
        resources = open_resources(held, record, deps, store, caller)
        state = _opening_state(
            study, record, resources, is_raised=is_raised, retry_missing=retry_missing
        )
        run = Run(
            record=record,
            loaded=loaded,
            past=past,
            study=study,
            state=state,
            learners=_learners(record, loaded, deps, resources, state, caller, held),
            resources=resources,
            held=held.pop_all(),
            on_event=caller.get("on_event"),
        )
    register(run)
    _warn(notify_of(caller), [price_warning, _unsent(loaded, deps)], study, record)
    return run


def _learners(  # noqa: PLR0917 - of one place
    record: RunRecord,
    loaded: Loaded,
    deps: EvaluationDeps,
    resources: RunResources,
    state: StudyState,
    caller: Caller,
    held: ExitStack,
) -> list[Learner]:
    """Return who advises the sampler, in the order of ``LEARNERS``."""
    notify = notify_of(caller)
    parts = LearnerParts(
        record=record,
        loaded=loaded,
        world=deps.environment,
        redact=deps.redact,
        target=deps.target,
        session=resources.session,
        store=resources.store,
        attempts=cache(lambda: lineage.attempts(resources.journal, record)),
        state=state,
        held=held,
        on_notice=None if notify is None else lambda text: notify(ThinkingStopped(text=text)),
    )
    learners = []
    for make in LEARNERS:
        learner = make(parts)
        if learner is not None:
            held.callback(learner.close)
            learners.append(learner)
    return learners


def _listeners(record: RunRecord, deps: EvaluationDeps, held: ExitStack) -> ListenerThreads | None:
    """Return the configuration's listeners to a search; other kinds of runs have none."""
    if not deps.telemetry.listeners or lineage.PARTS & {*record.tags}:
        return None
    listeners = open_listeners(deps.telemetry, deps.loaded.base_dir, redact=deps.redact)
    held.callback(listeners.close)
    return listeners


def _heard(caller: Caller, listeners: ListenerThreads | None) -> Caller:
    """Return a caller whose events and notices the listeners hear as well."""
    if listeners is None:
        return caller
    on_event, on_notice = caller.get("on_event"), notify_of(caller)
    return {
        **caller,
        "on_event": listeners.beside(on_event),
        "on_notice": listeners.beside(on_notice),
    }


def _unsent(loaded: Loaded, deps: EvaluationDeps) -> str | None:
    """Return what is not sent because the run is offline, in words; ``None``: nothing is left out."""
    keys = remote_exports(loaded.configuration.telemetry)
    if deps.environment.mock_url is None or not keys:
        return None
    return f"Offline nothing is sent to other machines: {listing(keys)} {'is' if len(keys) == 1 else 'are'} left out."


def _warn(
    notify: OnNotice | None, warnings: Sequence[str | None], study: Study, record: RunRecord
) -> None:
    """Tell what the user should know before the run begins."""
    is_search = not lineage.PARTS & {*record.tags}
    shortage = study.schedule.final_shortage() if is_search else None
    for text in (*warnings, shortage):
        if notify is not None and text is not None:
            notify(BudgetWarned(text=text))


def _deps(loaded: Loaded, caller: Caller) -> EvaluationDeps:
    """Return what is asked, and how answers are measured."""
    function, evaluator = caller.get("local_function"), caller.get("evaluator")
    environment = Environment.of(loaded.configuration, mock_url=caller.get("mock_url"))
    check_runner(loaded.configuration, is_by_name=function is None and evaluator is None)
    return EvaluationDeps.of(loaded, environment, local_function=function, evaluator=evaluator)


def _with_variants(loaded: Loaded, checkpoint: Checkpoint | None) -> Loaded:
    """Return the files with the texts that learners had added by a checkpoint."""
    if checkpoint is None:
        return loaded
    state = StudyState.from_checkpoint(checkpoint)
    return replace(loaded, space=widened(loaded.space, state.variants, state.vectors))


def _opening_state(
    study: Study,
    record: RunRecord,
    resources: RunResources,
    *,
    is_raised: bool,
    retry_missing: bool,
) -> StudyState:
    """Return what is known after the last committed generation, and what is asked of the next."""
    checkpoint = resources.store.checkpoint(record.run_id)
    state = study.start() if checkpoint is None else StudyState.from_checkpoint(checkpoint)
    begins = lineage.begins_at(record, state.next_generation)
    return replace(
        state,
        limit=None if is_raised or begins else state.limit,
        n_calls=max(state.n_calls, resources.spent_before.calls),
        repairs_next=retry_missing or lineage.retries(record, state.next_generation),
    )
