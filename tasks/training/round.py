"""Training round of a role: ratings, a new adapter, its checks, its activation."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from convergence_core.config.feedback import TrainingConfig
from convergence_core.errors import AdapterRefusedError
from convergence_core.feedback.activation_gate import failed_words, lacks_power
from convergence_core.feedback.adapter_records import AdapterRecord, GateCheck, TrainedMark
from convergence_core.feedback.roles import DEFAULT, persona_of
from convergence_core.records import Json, fields_of
from convergence_core.result.number_text import plural, whole_percent
from tasks.inputs.loader import Loaded
from tasks.inputs.storage import store_path
from tasks.models.files import ModelProcessError
from tasks.store.feedback.adapter_files import training_folder
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import TrainingRounds
from tasks.store.layout import locked, make_folder, write_file
from tasks.store.tables.parquet_store import ParquetStore
from tasks.training.adapter_checks import check_adapter
from tasks.training.jobs import (
    Objective,
    TrainingJob,
    TrainingResult,
    TrainingRow,
    TrainingStep,
    never,
    no_report,
    run_training,
)
from tasks.training.marks import RoleMarks, collect, training_rows
from tasks.training.preference_rows import training_rows_of_preferences
from tasks.training.round_settings import BaseModel, base_model, settings_of

Status = Literal["waiting", "paused", "activated", "undecided", "rejected", "failed"]
BY: Final = "training"
"""Actor in the records of registrations, activations and rejections."""
_FROZEN: Final = "marks.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """Result of one check of a role."""

    role: str
    status: Status
    sentence: str
    version: str | None = None
    """Version of the new adapter; ``None`` if there is none."""
    checks: tuple[GateCheck, ...] = ()
    n_rows: int = 0
    cpu_s: float = 0.0
    """CPU seconds of the training process in this call."""
    losses: tuple[float, ...] = field(default=(), repr=False)


def trained_roles(loaded: Loaded, feedback: FeedbackStore) -> tuple[str, ...]:
    """Return the roles that have rated answers, sorted by name."""
    base = base_model(loaded)
    share = loaded.configuration.feedback.training.held_out
    roles = [role for (role,) in feedback.fetch("SELECT DISTINCT role FROM interactions")]
    return tuple(
        role
        for role in sorted(roles)
        if (marks := collect(feedback, role=role, models=base.names, held_out=share)).answers
        or marks.pairs
    )


def train_role(
    loaded: Loaded,
    feedback: FeedbackStore,
    role: str,
    *,
    is_forced: bool = False,
    should_pause: Callable[[], bool] = never,
    on_step: Callable[[TrainingStep], None] = no_report,
) -> RoundReport:
    """Train and judge a role's new adapter, and activate it if it passes every check.

    A paused or killed round continues with its first ratings while all of them are valid.

    Args:
        loaded: Configuration.
        feedback: Store of ratings and adapters.
        role: Role whose answers were rated.
        is_forced: Whether fewer new ratings than ``min_ratings`` are enough.
        should_pause: Called before each training step.
        on_step: Called with each step.

    Raises:
        ConfigurationError: the configuration names no model to train, or the model does not exist.
        StoreError: the store cannot be read or written.
    """
    options = loaded.configuration.feedback.training
    base = base_model(loaded)
    marks = collect(
        feedback,
        role=role,
        models=base.names,
        held_out=options.held_out,
    )
    folder = training_folder(feedback.root).parent
    make_folder(folder)
    # Only one process of a store trains at a time.
    with locked(folder / "training.lock", should_wait=False) as is_alone:
        if not is_alone:
            return RoundReport(
                role=role, status="waiting", sentence="another process trains in this store"
            )
        work = _work(marks, options, training_folder(feedback.root) / role)
        reason = _waits_for(work, marks, options, is_forced=is_forced)
        # A candidate left by a killed round is judged before anything is trained.
        if reason is not None and not _unjudged(AdapterStore(feedback), role):
            return RoundReport(role=role, status="waiting", sentence=reason)
        return _Round(
            loaded=loaded, feedback=feedback, role=role, base=base, marks=marks, work=work
        ).run(should_pause, on_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Training data of a round."""

    folder: Path
    objective: Objective
    marks: RoleMarks
    """Ratings to train on; frozen while a round is paused."""
    is_resumed: bool
    preferences: tuple[TrainingRow, ...] | None = None
    """Preference rows of a paused round; ``None`` for a new round."""


class _Round:
    """One round, from its ratings to its verdict."""

    def __init__(
        self,
        *,
        loaded: Loaded,
        feedback: FeedbackStore,
        role: str,
        base: BaseModel,
        marks: RoleMarks,
        work: _Work,
    ) -> None:
        self._loaded, self._feedback, self._role = loaded, feedback, role
        self._base, self._marks, self._work = base, marks, work
        self._adapters, self._rounds = AdapterStore(feedback), TrainingRounds(feedback)
        self._incumbent = self._adapters.active(role)
        self._old_version = None if self._incumbent is None else self._incumbent.version
        self._parent = (
            None if self._old_version is None else self._adapters.folder(self._old_version)
        )
        self._opponent = self._old_version or "the base model"
        self._result = TrainingResult()

    def run(
        self, should_pause: Callable[[], bool], on_step: Callable[[TrainingStep], None]
    ) -> RoundReport:
        candidates = _unjudged(self._adapters, self._role)
        for contender in filter(None, (self._incumbent, *candidates[:1])):
            problem = self._adapters.files_problem(contender)
            if problem is not None:
                sentence = f"the files of {contender.version} must be those that were registered, but {problem}"
                return self._report("failed", sentence)
        if candidates:
            return self._judged_again(candidates[0])
        rows, used = training_rows(self._work.marks, self._work.objective)
        preferences = self._rows_of_preferences()
        _freeze(self._work, used, preferences)
        rows += preferences
        settings = settings_of(self._loaded.configuration.feedback.training, self._work.objective)
        job = TrainingJob(
            model=self._base.files, rows=rows, settings=settings, parent=self._parent
        )
        round_id = self._rounds.begin(
            self._role, self._work.objective, n_rows=len(rows), settings=asdict(settings)
        )
        result = self._result = run_training(
            job, self._work.folder, should_pause=should_pause, on_step=on_step
        )
        names = ("n_steps", "cpu_s", "peak_bytes", "kl_estimate", "resumed_from")
        metrics: dict[str, Json] = {**fields_of(result, *names), "losses": list(result.losses)}
        if result.interrupted:
            sentence = f"paused after {plural(result.n_steps, 'step')} of {settings.steps}"
            self._rounds.end(round_id, "interrupted", metrics=metrics, reason=sentence)
            return self._report("paused", f"{sentence}; the next look continues from there")
        try:
            if result.adapter is None:
                sentence = result.failure or "the training produced no adapter"
                self._rounds.end(round_id, "failed", metrics=metrics, reason=sentence)
                return self._report("failed", f"{sentence}. Nothing was changed.")
            version = self._adapters.register(
                result.adapter,
                role=self._role,
                base_model=self._base.name,
                objective=self._work.objective,
                marks=used,
                parent=self._old_version,
                by=BY,
            )
            report = self._judged(version)
        except (AdapterRefusedError, ModelProcessError) as error:
            self._rounds.end(round_id, "failed", metrics=metrics, reason=str(error))
            return self._report("failed", f"{error} Nothing was changed.")
        finally:
            shutil.rmtree(self._work.folder, ignore_errors=True)
        self._end(round_id, report, metrics)
        return report

    def _rows_of_preferences(self) -> tuple[TrainingRow, ...]:
        """Return rows of audited pairs; a resumed round keeps its first ones.

        Pairs come from the system itself, so they train only the default role.
        """
        configuration = self._loaded.configuration
        options, store = configuration.feedback.training, store_path(self._loaded)
        if self._work.preferences is not None:
            return self._work.preferences
        is_wanted = options.preferences and self._role == DEFAULT
        if not is_wanted or not (store / "store.json").is_file():
            return ()
        return training_rows_of_preferences(
            ParquetStore(store),
            configuration.api.name,
            self._work.objective,
            persona=persona_of(self._role, configuration.feedback.roles),
            held_out=options.held_out,
        )

    def _judged_again(self, left: AdapterRecord) -> RoundReport:
        try:
            report = self._judged(left.version)
        except (AdapterRefusedError, ModelProcessError) as error:
            return self._report("failed", f"{left.version} could not be judged: {error}")
        killed = [
            record for record in self._rounds.records(self._role) if record.status == "running"
        ]
        if killed:
            self._end(killed[-1].round_id, report, {})
        return report

    def _end(self, round_id: str, report: RoundReport, metrics: dict[str, Json]) -> None:
        self._rounds.end(
            round_id,
            "done",
            version=report.version,
            metrics=metrics,
            reason=report.sentence,
        )

    def _judged(self, version: str) -> RoundReport:
        checks = check_adapter(
            self._loaded,
            self._base.files,
            self._marks,
            new=self._adapters.folder(version),
            old=self._parent,
            old_version=self._old_version,
        )
        self._adapters.record_checks(version, checks)
        reason = failed_words(checks)
        if reason is not None:
            if lacks_power(checks):
                return self._undecided(version, checks)
            self._adapters.reject(version, reason, by=BY)
            failed = [check.name for check in checks if not check.passed]
            outcome = (
                f"{version} did not pass {len(failed)} of {len(checks)} checks ({', '.join(failed)}); "
                f"{self._opponent} answers as before"
            )
            return self._report("rejected", outcome, version, checks)
        live_test = self._loaded.configuration.feedback.training.live_test
        rule = live_test if live_test.enabled else None
        self._adapters.activate(version, by=BY, live_rule=rule)
        sentence = f"{version} passed every check and answers for {self._role} now"
        if rule is not None:
            sentence = (
                f"{version} passed every check and answers {whole_percent(rule.share)} of the conversations with "
                f"{self._role} now, until their ratings decide"
            )
        return self._report("activated", sentence, version, checks)

    def _undecided(self, version: str, checks: tuple[GateCheck, ...]) -> RoundReport:
        more = next((check.n_more for check in checks if check.n_more is not None), None)
        settled = "more ratings settle it"
        settled = settled if more is None else f"about {plural(more, 'more rating')} settle it"
        self._adapters.defer(version, settled, by=BY)
        sentence = (
            f"{settled}, and {self._opponent} answers as before. `convergence adapters activate {version}` tries it, "
            "blinded, on live traffic until they decide"
        )
        return self._report("undecided", sentence, version, checks)

    def _report(
        self,
        status: Status,
        sentence: str,
        version: str | None = None,
        checks: tuple[GateCheck, ...] = (),
    ) -> RoundReport:
        result = self._result
        return RoundReport(
            role=self._role, status=status, sentence=sentence, version=version,
            checks=checks,
            n_rows=result.n_rows, cpu_s=result.cpu_s, losses=result.losses,
        )  # fmt: skip


def _unjudged(adapters: AdapterStore, role: str) -> list[AdapterRecord]:
    """Return the candidates that a killed round left without a verdict."""
    return [
        record
        for record in adapters.records(role)
        if record.status == "candidate" and not lacks_power(adapters.checks(record.version))
    ]


def _waits_for(
    work: _Work, marks: RoleMarks, options: TrainingConfig, *, is_forced: bool
) -> str | None:
    """Return what a round waits for; ``None`` if it may start."""
    if work.is_resumed:
        return None
    least = 1 if is_forced else options.min_ratings
    if marks.n_new < least:
        foreign = (
            f" ({plural(marks.n_foreign, 'rating')} of other models' answers train nothing)"
            if marks.n_foreign
            else ""
        )
        return (
            f"{plural(marks.n_new, 'new mark')} of {least} that a round needs"
            f"{foreign}; see feedback.training.min_ratings"
        )
    rows, _ = training_rows(work.marks, work.objective)
    fewest = options.batch_size
    if len(rows) < fewest:
        return (
            f"{plural(len(rows), 'row')} for {work.objective}, and feedback.training.batch_size asks for "
            f"{fewest}: rate more answers"
        )
    if not marks.held_out_prompts:
        return "no rated answer belongs to a held-out prompt, so no check is possible; rate more prompts"
    return None


def _work(marks: RoleMarks, options: TrainingConfig, folder: Path) -> _Work:
    """Return a paused round's training data while all of it is valid; otherwise all ratings."""
    frozen = _frozen(folder)
    every = {_name(answer.mark) for answer in marks.answers} | {
        _name(pair.mark) for pair in marks.pairs
    }
    if frozen is not None and all(name in every for name in frozen[1]):
        names = set(frozen[1])
        kept = RoleMarks(
            answers=tuple(answer for answer in marks.answers if _name(answer.mark) in names),
            held_out=marks.held_out,
            pairs=tuple(pair for pair in marks.pairs if _name(pair.mark) in names),
            n_foreign=marks.n_foreign,
        )
        return _Work(
            folder=folder, objective=frozen[0], marks=kept, is_resumed=True, preferences=frozen[2]
        )
    shutil.rmtree(folder, ignore_errors=True)
    objective = marks.objective(options.objective)
    return _Work(folder=folder, objective=objective, marks=marks, is_resumed=False)


def _frozen(folder: Path) -> tuple[Objective, list[str], tuple[TrainingRow, ...]] | None:
    try:
        frozen = json.loads((folder / _FROZEN).read_text("utf-8"))
        preferences = [
            TrainingRow(**row | {"messages": tuple(row["messages"])})
            for row in frozen["preferences"]
        ]
        return frozen["objective"], list(frozen["marks"]), tuple(preferences)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _freeze(
    work: _Work, used: tuple[TrainedMark, ...], preferences: tuple[TrainingRow, ...]
) -> None:
    make_folder(work.folder)
    frozen = {
        "objective": work.objective,
        "marks": [_name(path) for path in used],
        "preferences": [asdict(row) for row in preferences],
    }
    write_file(work.folder / _FROZEN, json.dumps(frozen))


def _name(mark: TrainedMark) -> str:
    return f"{mark.kind} {mark.seq}"
