"""A run put together: what evaluates, what decides, and what is known so far."""

from contextlib import ExitStack
from dataclasses import dataclass, replace

from convergence_core.events import BudgetWarned, ThinkingStopped
from convergence_core.ports import RunRecord
from convergence_core.search.learner import Learner
from convergence_core.search.study import Study, StudyState
from convergence_core.space.text_variants import widened
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.inputs.prices import check_priced
from tasks.inputs.storage import store_path
from tasks.rlp.factory import make_rlp, make_thought_writer
from tasks.rlp.thought_writer import ThoughtWriter
from tasks.run.active_runs import register
from tasks.run.champions import tagged_champion
from tasks.run.destinations import check_destinations
from tasks.run.prior_runs import PriorRuns, read_past
from tasks.run.resources import Caller, RunResources, notify_of, open_resources
from tasks.run.run import Run
from tasks.run.run_size import schedule_of
from tasks.runners import check_runner
from tasks.runners.evaluation_deps import EvaluationDeps
from tasks.sao.factory import make_sao, make_writer
from tasks.sao.writer import Writer
from tasks.store import ParquetStore
from tasks.store.tables import lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a run needs that fails for reasons that the user has to mend; made before its lease."""

    loaded: Loaded
    """With the texts that learners have added."""
    deps: EvaluationDeps
    store: ParquetStore
    past: PriorRuns
    study: Study
    thought_writer: ThoughtWriter | None
    sao_writer: Writer | None
    price_warning: str | None


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
    parts = _parts(record, loaded, caller)
    with ExitStack() as held:
        resources = open_resources(held, record, parts.deps, parts.store, caller)
        state = _last_state(parts, record)
        begins = lineage.begins_at(record, state.next_generation)
        state = replace(
            state,
            limit=None if is_raised or begins else state.limit,
            n_calls=max(state.n_calls, resources.spent_before.calls),
            repairs_next=retry_missing or lineage.retries(record, state.next_generation),
        )
        learners = _learners(parts, record, resources, state, caller)
        for learner in learners:
            held.callback(learner.close)
        run = Run(
            record=record,
            loaded=parts.loaded,
            past=parts.past,
            study=parts.study,
            state=state,
            learners=learners,
            resources=resources,
            held=held.pop_all(),
            on_event=caller.get("on_event"),
        )
    register(run)
    notify = notify_of(caller)
    for text in (parts.price_warning, parts.study.schedule.final_shortage()):
        if notify is not None and text is not None:
            notify(BudgetWarned(text=text))
    return run


def _parts(record: RunRecord, loaded: Loaded, caller: Caller) -> _Parts:
    configuration = loaded.configuration
    check_destinations(configuration, loaded.base_dir)
    environment = Environment.of(configuration, mock_url=caller.get("mock_url"))
    is_by_name = caller.get("local_function") is None and caller.get("evaluator") is None
    check_runner(configuration, is_by_name=is_by_name)
    deps = EvaluationDeps.of(
        loaded,
        environment,
        local_function=caller.get("local_function"),
        evaluator=caller.get("evaluator"),
    )
    price_warning = check_priced(loaded, deps.target, environment.prices)
    store = ParquetStore(store_path(loaded))
    checkpoint = lineage.last_checkpoint(store, record)
    if checkpoint is not None:
        variants = StudyState.from_checkpoint(checkpoint).variants
        loaded = replace(loaded, space=widened(loaded.space, variants))
    past = read_past(store, record, loaded)
    return _Parts(
        loaded=loaded,
        deps=deps,
        store=store,
        past=past,
        study=past.study(loaded, schedule_of(loaded, tagged_champion(record.tags, loaded.space))),
        thought_writer=make_thought_writer(configuration, environment),
        sao_writer=make_writer(configuration, environment),
        price_warning=price_warning,
    )


def _last_state(parts: _Parts, record: RunRecord) -> StudyState:
    """Return what was known after the last committed generation; at first, what a run begins with."""
    checkpoint = parts.store.checkpoint(record.run_id)
    return parts.study.start() if checkpoint is None else StudyState.from_checkpoint(checkpoint)


def _learners(
    parts: _Parts, record: RunRecord, resources: RunResources, state: StudyState, caller: Caller
) -> list[Learner]:
    """Return who advises the sampler: texts of preferences first, then thoughts."""
    notify = notify_of(caller)
    tell = None if notify is None else lambda text: notify(ThinkingStopped(text=text))
    is_off = parts.thought_writer is None and parts.sao_writer is None
    attempts = () if is_off else lineage.attempts(resources.journal, record)
    environment, configuration = parts.deps.environment, parts.loaded.configuration
    rlp = make_rlp(
        parts.thought_writer,
        configuration,
        record=record,
        session=resources.session,
        store=parts.store,
        attempts=attempts,
        state=state,
        redact=environment.redactor(configuration),
        on_notice=tell,
    )
    sao = make_sao(
        parts.sao_writer,
        parts.loaded,
        environment,
        parts.deps.target,
        record=record,
        session=resources.session,
        store=parts.store,
        attempts=attempts,
        state=state,
        on_notice=tell,
    )
    return [learner for learner in (sao, rlp) if learner is not None]
