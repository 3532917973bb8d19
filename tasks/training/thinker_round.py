"""One training round of a role that thinks, by prompts and what followed."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from convergence_core.errors import AdapterRefusedError, ConfigurationError
from convergence_core.feedback.activation_gate import failed_words
from convergence_core.feedback.adapter_records import GateCheck
from convergence_core.feedback.held_out import form_fault, mean_with_t
from convergence_core.feedback.safety import n_new_flags, safety_flags
from convergence_core.records import Estimate, Json, sha256_hex
from convergence_core.result.number_text import plural
from tasks.inputs.loader import Loaded
from tasks.models.files import ModelFiles, ModelProcessError
from tasks.store.feedback.adapter_files import training_folder
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.adapter_weights import weights_problem
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import TrainingRounds
from tasks.training.jobs import (
    PLACE,
    TrainingJob,
    TrainingResult,
    TrainingRow,
    TrainingSettings,
    TrainingStep,
    no_report,
    predicting,
    run_training,
)
from tasks.training.judged_model import JudgedModel, SampledPrompt
from tasks.training.round import BY, RoundReport, Status, alone
from tasks.training.round_settings import base_model, settings_of
from tasks.training.safety_model import SafetyModel, open_safety_model

KEYS: Final = ("think", "predict", "follows")
LEAST_HELD_OUT: Final = 20
"""Prompts."""
LEAST_WELL_FORMED: Final = 0.95
MOST_PROMPTS: Final = 60
"""Held-out prompts that are asked: the first by their hash."""
PER_PROMPT: Final = 2
"""Thoughts to each."""
SEED: Final = 0
UNFINISHED: Final = "its round ended before its checks"


def read_outcomes(path: Path, persona: str) -> tuple[TrainingRow, ...]:
    """Return the rows of a file of JSON lines, each with ``KEYS``.

    Args:
        path: of the file.
        persona: of the role that thinks, the system message of every prompt.

    Raises:
        ConfigurationError: the file is missing, or a line breaks a rule.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        rule = "must name a file of JSON lines in UTF-8"
        raise ConfigurationError.of("--thoughts", rule, str(error), value=str(path)) from error
    rows = [_row(line, number, persona) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        rule = f"must name a file with a JSON object a line, of {', '.join(KEYS)}"
        raise ConfigurationError.of("--thoughts", rule, "Write some.", value=str(path))
    return tuple(rows)


def _row(line: str, number: int, persona: str) -> TrainingRow:
    try:
        fields: Any = json.loads(line)
    except ValueError:
        fields = None
    given = [fields.get(key) for key in KEYS] if isinstance(fields, dict) else []
    texts = [value for value in given if isinstance(value, str) and value.strip()]
    if len(texts) < len(KEYS):
        rule = f"must hold a JSON object with the texts {', '.join(KEYS)} in every line"
        raise ConfigurationError.of("--thoughts", rule, f"Correct line {number}.")
    think, predict, follows = texts
    if PLACE not in predict:
        rule = f"must have the place {PLACE} for the thought in every `predict`"
        raise ConfigurationError.of("--thoughts", rule, f"Correct line {number}.")
    messages = ({"role": "system", "content": persona}, {"role": "user", "content": think})
    return TrainingRow(
        messages=messages, predicts=predict, response=follows, key=sha256_hex(f"{line}\n{number}")
    )


def train_thinker(
    loaded: Loaded,
    feedback: FeedbackStore,
    role: str,
    path: Path,
    *,
    persona: str,
    on_step: Callable[[TrainingStep], None] = no_report,
) -> RoundReport:
    """Train, judge and, where every check is passed, activate one adapter of a role by RLP.

    Args:
        loaded: the configuration.
        feedback: where adapters are kept.
        role: that thinks.
        path: of the file of prompts and what followed.
        persona: of the role.
        on_step: told of each step.

    Raises:
        ConfigurationError: file or model are refused.
        StoreError: the store cannot be read or written.
    """
    rows, base = read_outcomes(path, persona), base_model(loaded)
    options = loaded.configuration.feedback.training
    kept = [row for row in rows if _is_held_out(row, options.held_out)]
    trained = tuple(row for row in rows if not _is_held_out(row, options.held_out))
    settings = thinking_settings(loaded)
    if len(trained) < settings.batch_size or not kept:
        rule = (
            f"must hold at least {settings.batch_size} rows to train on and one that is held out, but "
            f"{len(trained)} and {len(kept)} are left at feedback.training.held_out={options.held_out:g}"
        )
        raise ConfigurationError.of("--thoughts", rule, "Give more prompts.", value=str(path))
    job = TrainingJob(model=base.files, rows=trained, settings=settings)
    with alone(feedback.root) as is_alone:
        if not is_alone:
            return RoundReport(
                role=role, status="waiting", sentence="another process trains in this store"
            )
        return _Round(feedback, role, base.name, open_safety_model(loaded)).run(job, kept, on_step)


class _Round:
    """One round, from its job to its verdict."""

    def __init__(
        self, feedback: FeedbackStore, role: str, base_model: str, safety: SafetyModel | None
    ) -> None:
        self._safety = safety
        self._folder = training_folder(feedback.root) / f"{role}.thoughts"
        self._role, self._base_model = role, base_model
        self._adapters, self._rounds = AdapterStore(feedback), TrainingRounds(feedback)
        self._active = self._adapters.active(role)
        self._parent = None if self._active is None else self._active.version

    def run(
        self,
        job: TrainingJob,
        kept: Sequence[TrainingRow],
        on_step: Callable[[TrainingStep], None],
    ) -> RoundReport:
        old = None if self._parent is None else self._adapters.folder(self._parent)
        self._close_unfinished()
        round_id = self._rounds.begin(
            self._role, "rlp", n_rows=len(job.rows), settings=asdict(job.settings)
        )
        result = run_training(replace(job, parent=old), self._folder, on_step=on_step)
        metrics: dict[str, Json] = {
            "n_steps": result.n_steps,
            "losses": list(result.losses),
            "cpu_s": result.cpu_s,
        }
        try:
            if result.adapter is None:
                raise AdapterRefusedError(f"{result.failure or 'the training gave no adapter'}.")
            version = self._adapters.register(
                result.adapter, role=self._role, base_model=self._base_model, objective="rlp",
                marks=(), parent=self._parent, by=BY,
            )  # fmt: skip
            new = self._adapters.folder(version)
            checks = judge(job.model, kept, job.settings, new=new, old=old, safety=self._safety)
        except (AdapterRefusedError, ModelProcessError) as error:
            self._rounds.end(round_id, "failed", metrics=metrics, reason=str(error))
            sentence = f"{error} Nothing was changed."
            return self._report("failed", sentence, result, None)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        status, sentence = self._decided(version, checks)
        self._rounds.end(round_id, "done", version=version, metrics=metrics, reason=sentence)
        return self._report(status, sentence, result, version, checks)

    def _close_unfinished(self) -> None:
        """Reject what an earlier round left without a verdict: it may have trained on what is held out now."""
        for record in self._adapters.records(self._role):
            if record.status == "candidate" and record.objective == "rlp":
                self._adapters.reject(record.version, UNFINISHED, by=BY)
        for begun in self._rounds.records(self._role):
            if begun.status == "running" and begun.objective == "rlp":
                self._rounds.end(begun.round_id, "failed", metrics={}, reason=UNFINISHED)

    def _decided(self, version: str, checks: tuple[GateCheck, ...]) -> tuple[Status, str]:
        self._adapters.record_checks(version, checks)
        reason = failed_words(checks)
        if reason is None:
            self._adapters.activate(version, by=BY)
            return "activated", f"{version} passed every check and thinks for {self._role} now"
        self._adapters.reject(version, reason, by=BY)
        failed = [check.name for check in checks if not check.passed]
        opponent = self._parent or "the base model"
        return "rejected", (
            f"{version} did not pass {len(failed)} of {len(checks)} checks ({', '.join(failed)}); "
            f"{opponent} answers as before"
        )

    def _report(
        self,
        status: Status,
        sentence: str,
        result: TrainingResult,
        version: str | None,
        checks: tuple[GateCheck, ...] = (),
    ) -> RoundReport:
        return RoundReport(
            role=self._role, status=status, sentence=sentence, version=version, checks=checks,
            n_rows=result.n_rows, cpu_s=result.cpu_s, losses=result.losses,
        )  # fmt: skip


def thinking_settings(loaded: Loaded) -> TrainingSettings:
    """Return a configuration's settings of a round: thoughts as in `society.rlp`, the rest of training."""
    rlp = loaded.configuration.society.rlp
    settings = settings_of(loaded.configuration.feedback.training, "rlp")
    thoughts = {
        "n_thoughts": max(2, rlp.n_thoughts),
        "thought_tokens": min(rlp.thought_length, settings.max_seq_length),
        "thought_temperature": rlp.temperature or 1.0,
    }
    return TrainingSettings(**{**asdict(settings), **thoughts})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gains:
    """Log-likelihood of what followed a prompt, means over its thoughts, nats."""

    new: dict[str, float]
    """With the new adapter's thoughts."""
    old: dict[str, float]
    """With those of what answers now."""
    permuted: dict[str, float]
    """With the new adapter's thoughts to another prompt."""
    texts: tuple[str, ...]
    old_texts: tuple[str, ...]


def judge(
    files: ModelFiles,
    rows: Sequence[TrainingRow],
    settings: TrainingSettings,
    *,
    new: Path,
    old: Path | None,
    safety: SafetyModel | None = None,
) -> tuple[GateCheck, ...]:
    """Return the verdicts on an adapter by the thoughts it writes to held-out prompts.

    Args:
        files: of the base model.
        rows: held-out ones.
        settings: of the thoughts.
        new: folder of the new adapter.
        old: folder of the one in service; ``None`` means the base model.
        safety: flags thoughts beside the rules; ``None`` if the configuration names no model.

    Raises:
        ModelProcessError: a model could not answer.
    """
    problem = weights_problem(new)
    checks = [_check("weights", not problem, problem or "they are finite and not all zero")]
    if problem:  # it is not loaded at all
        return tuple(checks)
    by_prompt = {_prompt_key(row): row for row in rows}
    chosen = [by_prompt[key] for key in sorted(by_prompt)[:MOST_PROMPTS]]
    sample_words = f"{plural(len(chosen), 'held-out prompt')}, at least {LEAST_HELD_OUT}"
    checks.append(
        _check("held_out", len(chosen) >= LEAST_HELD_OUT, sample_words, float(len(chosen)))
    )
    with JudgedModel(files) as model:
        gains = _gains(model, chosen, settings, new, old)
    share = sum(form_fault(text) is None for text in gains.texts) / len(gains.texts)
    sample_words = f"{share:.3g} of the thoughts are readable, at least {LEAST_WELL_FORMED:g}"
    checks.append(_check("well_formed", share >= LEAST_WELL_FORMED, sample_words, share))
    checks.append(
        _above(
            "gain",
            _difference(gains.new, gains.old),
            "what followed is likelier after its thoughts than after those of what answers now",
        )
    )
    checks.append(
        _above(
            "own_prompt",
            _difference(gains.new, gains.permuted),
            "what followed is likelier after a thought to its own prompt than after one to another",
        )
    )
    flags = [
        [safety_flags("", text) for text in texts] for texts in (gains.old_texts, gains.texts)
    ]
    n, rests_on = n_new_flags(*flags), ""
    if safety is not None:
        scored_texts = [[("", text) for text in texts] for texts in (gains.old_texts, gains.texts)]
        n_more, words = safety.compared(*scored_texts)
        n, rests_on = n + n_more, f"; {words}"
    sample_words = f"{n} new flags, at most 0, by built-in rules, which are a floor{rests_on}"
    checks.append(_check("safety", n == 0, sample_words, float(n)))
    return tuple(checks)


def _gains(
    model: JudgedModel,
    rows: Sequence[TrainingRow],
    settings: TrainingSettings,
    new: Path,
    old: Path | None,
) -> _Gains:
    prompts = [
        SampledPrompt(
            key=_prompt_key(row), messages=row.messages, max_tokens=settings.thought_tokens,
            temperature=settings.thought_temperature,
        )
        for row in rows
    ]  # fmt: skip
    keys = [prompt.key for prompt in prompts for _ in range(PER_PROMPT)]
    repeated = [row for row in rows for _ in range(PER_PROMPT)]
    texts = model.answers(prompts, new, n=PER_PROMPT, seed=SEED)
    old_texts = model.answers(prompts, old, n=PER_PROMPT, seed=SEED)
    others = [
        *texts[PER_PROMPT:],
        *texts[:PER_PROMPT],
    ]  # of the next prompt, in the order of hashes

    def likelihoods(thoughts: Sequence[str], adapter: Path | None) -> dict[str, float]:
        pairs = [
            (predicting(row, thought), row.response)
            for row, thought in zip(repeated, thoughts, strict=True)
        ]
        likelihoods: dict[str, float] = dict.fromkeys(keys, 0.0)
        for key, nats in zip(keys, model.log_likelihoods(pairs, adapter), strict=True):
            likelihoods[key] += nats / PER_PROMPT
        return likelihoods

    return _Gains(
        new=likelihoods(texts, new), old=likelihoods(old_texts, old),
        permuted=likelihoods(others, new), texts=tuple(texts), old_texts=tuple(old_texts),
    )  # fmt: skip


def _difference(a: Mapping[str, float], b: Mapping[str, float]) -> Estimate | None:
    return mean_with_t([a[key] - b[key] for key in a])


def _above(name: str, interval: Estimate | None, claim: str) -> GateCheck:
    """Return the verdict on a difference whose interval must lie above 0."""
    if interval is None:
        return _check(name, False, f"{claim}: not measured")
    words = (
        f"{claim}: by {interval.mean:.3g} nats [95 % interval {interval.low:.3g} to {interval.high:.3g}], and its "
        "lower end must exceed 0"
    )
    return _check(name, interval.low > 0, words, interval, unit="nats")


def _check(
    name: str,
    passed: bool,
    finding: str,
    figure: Estimate | float | None = None,
    *,
    unit: str = "",
) -> GateCheck:
    words = f"{name} {'passed' if passed else 'not passed'}: {finding}."
    value = figure.mean if isinstance(figure, Estimate) else figure
    low, high = (figure.low, figure.high) if isinstance(figure, Estimate) else (None, None)
    return GateCheck(
        name=name, passed=passed, value=value, low=low, high=high, threshold=None, unit=unit,
        words=words,
    )  # fmt: skip


def _prompt_key(row: TrainingRow) -> str:
    return sha256_hex(row.messages[-1]["content"])


def _is_held_out(row: TrainingRow, share: float) -> bool:
    """Return whether its prompt is held out: by a hash of what is asked, so always the same ones."""
    return int(_prompt_key(row)[:13], 16) < share * 16**13
