"""Rounds of preferences without an optimization.

They need a system that earlier runs have evaluated. Such a run belongs to the system in the store,
has a tag, and holds rounds only: each is stored as a generation without evaluations. It takes the
evidence of the newest run with any, and continues the trust, alarms and drift of the system's last
rounds.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from convergence_core.errors import ConfigurationError
from convergence_core.events import RunFinished
from convergence_core.ports import RunRecord
from convergence_core.records import canonical_json
from convergence_core.sao.state import SaoState
from convergence_core.search.sampler import Plan
from convergence_core.search.study import PlannedGeneration
from convergence_core.search.study_state import StudyState
from tasks.inputs.loader import Loaded
from tasks.run.opener import Notices, open_config, prepare_run, resume_run, started_by
from tasks.run.publication import generation_tables
from tasks.run.run import FLOW_RUN_TAG, Run, StepResult
from tasks.sao.factory import grounded_answers
from tasks.sao.learner import SAO, SaoLearner
from tasks.store.tables.lineage import ROUNDS_TAG
from tasks.store.tables.parquet_store import ParquetStore

SOURCE_TAG: Final = "evidence_of"
"""Tag with the run whose evidence is used."""
ANSWERS_TAG: Final = "answers_of"
"""Tag with the run whose answers audit the judge."""


def open_rounds(
    config: str | None, *, flow_run_id: str | None = None, notices: Notices | None = None
) -> Run:
    """Return a run that holds rounds only; Prefect's retry of a flow run continues its own.

    Args:
        config: path of the configuration.
        flow_run_id: id of the flow run, stored as a tag.
        notices: returns the listener to notices of budget, providers and disabled learners.

    Raises:
        ConfigurationError: no configuration is named, it is wrong, or it enables no preferences.
        LeaseHeldError: another process optimizes this system.
    """
    loaded, path, on_notice = open_config(config, notices)
    if not loaded.configuration.society.prefers:
        key, rule = "society.learning.sao_enabled", "must be true to write preferences"
        fix = "Write `society: {enabled: true, learning: {sao_enabled: true}}`."
        raise ConfigurationError.of(key, rule, fix)
    known = started_by(path, flow_run_id)
    if known is not None:
        run = resume_run(path, known, rounds=True, on_notice=on_notice)
    else:
        source = _source(ParquetStore(path), loaded)
        tags = {ROUNDS_TAG: "true"}
        tags |= {} if flow_run_id is None else {FLOW_RUN_TAG: flow_run_id}
        if source is not None:
            tags[SOURCE_TAG] = source.run_id
            tags[ANSWERS_TAG] = source.tags.get(ANSWERS_TAG, source.run_id)
        run = prepare_run(loaded, tags=tags, on_notice=on_notice)
    try:
        _take_over(run)
    except BaseException:
        run.close()
        raise
    return run


def sao_of(run: Run) -> SaoLearner | None:
    """Return the SAO learner of a run; ``None`` if it is disabled."""
    learner = run.learners.get(SAO)
    return learner if isinstance(learner, SaoLearner) else None


def should_continue(run: Run) -> bool:
    """Return whether another round of preferences is due.

    Raises:
        RunInterruptedError: the run received a stop request.
    """
    run.check_stop()
    learner = sao_of(run)
    return learner is not None and learner.may_continue and run.study.leader(run.state) is not None


def save_round(run: Run, flow_run_id: str | None) -> None:
    """Publish the finished round as a generation and advance.

    Raises:
        RunInterruptedError: the run received a stop request, so the round may be incomplete.
        StoreWriteError: the round is not visible; resuming plays it again.
    """
    run.check_stop()
    generation = run.next_generation
    search = run.state.search
    nothing = PlannedGeneration(
        plan=Plan(assignments=()), rng_state=run.state.rng_state, search=search
    )
    step = run.learners[SAO].learn(run.study, run.state, nothing, ())
    state = replace(
        run.state,
        search=search.at(generation + 1),
        next_generation=generation + 1,
        n_calls=run.journal.totals(run.run_id).n_attempts,
        learned={**run.state.learned, SAO: step.learned},
    )
    tables = generation_tables(
        run, generation, [step.tables], state=state, flow_run_id=flow_run_id, partial=False
    )
    run.store.publish(run.run_id, generation, tables)
    run.commit(StepResult(trials=(), state=state, recommendation=None, learners={SAO: step}))


def finish(run: Run) -> None:
    """Mark a run of rounds as done, with the reason."""
    learner = sao_of(run)
    if learner is None:
        reason = "no preferences can be written"
    elif learner.calls.disabled_reason is not None:
        reason = learner.calls.disabled_reason
    elif run.study.leader(run.state) is None:
        reason = "no run of this system has a reward yet"
    else:
        reason = learner.state.stop_reason or "no round is due"
    run.save("done", reason)
    run.emit(RunFinished(run_id=run.run_id, status="done", reason=reason))


def _take_over(run: Run) -> None:
    """Give a run the evidence of its source and the prompts derived from its rounds."""
    learner = sao_of(run)
    if learner is None:
        return
    source = run.record.tags.get(SOURCE_TAG)
    if run.next_generation == 0 and source is not None:
        checkpoint = run.store.checkpoint(source)
        assert checkpoint is not None  # noqa: S101 - the source was chosen for it
        previous = StudyState.from_checkpoint(checkpoint)
        run.state = replace(run.state, search=previous.search)
        if SAO in previous.learned:
            limit = run.configuration.society.sao.iterative_rounds
            left = SaoState.from_json(previous.learned[SAO], limit=limit)
            learner.state = replace(learner.state, variants=left.variants)
            run.widen(left.variants)
    answers_of = run.record.tags.get(ANSWERS_TAG, run.run_id)
    learner.answers = partial(grounded_answers, run.loaded, run.store, answers_of)


def _source(store: ParquetStore, loaded: Loaded) -> RunRecord | None:
    """Return the newest run of the system and search space with evidence; ``None`` if none."""
    space = canonical_json(loaded.space.to_json())
    for record in store.runs(loaded.configuration.api.name):
        checkpoint = store.checkpoint(record.run_id)
        if checkpoint is None or record.search_space_json != space:
            continue
        if any(member.n for member in StudyState.from_checkpoint(checkpoint).search.archive):
            return record
    return None
