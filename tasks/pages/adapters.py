"""Training pages: adapters, tests, rounds, rewards, raters."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from convergence_core.config.api import CHAT_KINDS
from convergence_core.errors import QueryError, RunNotFoundError
from convergence_core.feedback.adapter_records import (
    STATUSES,
    AdapterRecord,
    GateCheck,
    TrainingRoundRecord,
    answering_words,
)
from convergence_core.records import Json, fields_of
from convergence_core.result.number_text import distinguish
from tasks.pages.source import Page, PageSource, line_of, time_of
from tasks.pages.writes import check_confirmed
from tasks.report.phrases import duration
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.counts import (
    MeanInterval,
    activations,
    answers_by_adapter,
    feedback_counts,
    rater_sentences,
    reward_course,
)
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import TrainingRounds

BEGIN: Final = (
    "convergence init tutor --template local-chat",
    "convergence chat",
    "convergence train",
)
"""Commands by which a role begins to learn, where no configuration is known."""
TRAIN: Final = BEGIN[1:]
"""The same, where the model is of this machine."""
HOSTED: Final = ("convergence chat", "convergence review")
"""Commands by which ratings of a hosted model take effect."""
BY: Final = "web application"
"""Who changes a status here."""
MOST: Final = 200
"""Adapters and rounds that are shown, the latest ones."""
MOST_STEPS: Final = 500
"""Steps of a loss curve that are shown; of longer ones evenly spaced ones."""
_MEASURED: Final = ("reward", "latency_s", "n_output_tokens")
_LONGEST = 2_000
"""Characters of a verdict."""


def trained_roles(source: PageSource) -> Page:
    """Return the roles that have answers or adapters."""
    feedback = source.feedback()
    advice, commands = _advice(source)
    sentences = () if feedback is None else rater_sentences(feedback)
    return {
        "roles": [] if feedback is None else _roles(feedback),
        "sentences": [line_of(sentence, _LONGEST) for sentence in sentences],
        "advice": line_of(advice, _LONGEST),
        "commands": list(commands),
    }


def _advice(source: PageSource) -> tuple[str, tuple[str, ...]]:
    """Return what ratings do for the model of this store, and the commands for it."""
    configuration = source.present_configuration()
    if configuration is None:
        return "Ratings train an adapter of a local model. In a new folder:", BEGIN
    if (model := configuration.trained_model) is not None:
        return f"Ratings train an adapter of the model {model}.", TRAIN
    rule = (
        f"Ratings train no adapter here, because `api.kind` is {configuration.api.kind} and no local model is "
        "named. They reward the active arms, and bad answers become test cases of the next "
        "`convergence optimize` once you approve them. To train an adapter, name a local model in "
        "`feedback.training.base_model_path`."
    )
    return rule, HOSTED if configuration.api.kind in CHAT_KINDS else HOSTED[1:]


def trained_role(source: PageSource, role: str) -> Page:
    """Return how a role learns.

    Raises:
        RunNotFoundError: no one was answered in it.
    """
    feedback = source.feedback()
    if feedback is None or role not in _roles(feedback):
        raise RunNotFoundError(
            f"a role must have answers or adapters, and {line_of(role)!r} has none."
        )
    adapters = AdapterStore(feedback)
    counts = feedback_counts(feedback).roles.get(role)
    records = adapters.records(role)[-MOST:][::-1]
    active = adapters.active(role)
    answering = answering_words(None if active is None else active.version, role)
    sentences = [answering] if counts is None else [answering, f"{counts.rated_words}."]
    sentences += [f"{live_test.words}." for live_test in adapters.live_tests(role)[-1:]]
    return {
        "role": role,
        "active": None if active is None else active.version,
        "sentences": [line_of(sentence, _LONGEST) for sentence in sentences],
        "live_tests": [
            {
                **fields_of(live_test, "version", "status"),
                "sentence": line_of(live_test.words, _LONGEST),
                "at": time_of(live_test.ended_us or live_test.started_us),
            }
            for live_test in adapters.live_tests(role)[-MOST:][::-1]
        ],
        "adapters": [_adapter(record, adapters.checks(record.version)) for record in records],
        "rounds": [
            _round(record) for record in TrainingRounds(feedback).records(role)[-MOST:][::-1]
        ],
        "course": [
            {"at": time_of(at_us), **_interval(reward)}
            for at_us, reward in reward_course(feedback, role)
        ],
        "activations": [
            {"at": time_of(at_us), "version": version}
            for version, at_us in activations(feedback, role)[-MOST:]
        ],
        "answered_by": [
            {
                **fields_of(answers, "version", "n_answers"),
                **{name: _interval(getattr(answers, name)) for name in _MEASURED},
            }
            for answers in answers_by_adapter(feedback, role)
        ],
    }


def activate(source: PageSource, role: str, body: Mapping[str, Any]) -> str:
    """Let an adapter that passed every check answer for its role; return what was done.

    Raises:
        AdapterNotFoundError: the role has no such adapter.
        AdapterRefusedError: a check is not passed, its status forbids it, or its files were changed.
        QueryError: it was not confirmed, or is another role's.
    """
    version = str(body.get("version") or "")
    check_confirmed(body, version)
    adapters = _adapters(source, role)
    if adapters.record(version).role != role:
        raise QueryError(f"`version` must be an adapter of the role {role}, but got {version}.")
    adapters.activate(version, BY, reason="activated by hand")
    return answering_words(version, role)


def roll_back(source: PageSource, role: str, body: Mapping[str, Any]) -> str:
    """Take the active adapter of a role back; return what answers again.

    Raises:
        AdapterRefusedError: none is active.
        QueryError: it was not confirmed.
    """
    check_confirmed(body, role)
    adapters = _adapters(source, role)
    return answering_words(
        adapters.rollback(role, BY, reason="rolled back by hand"), role, again=True
    )


def _roles(feedback: FeedbackStore) -> list[str]:
    rows = feedback.fetch("SELECT role FROM interactions UNION SELECT role FROM adapters")
    return sorted(role for (role,) in rows)


def _adapters(source: PageSource, role: str) -> AdapterStore:
    feedback = source.feedback()
    if feedback is None:
        raise RunNotFoundError(f"the role {line_of(role)!r} must have adapters, and has none.")
    return AdapterStore(feedback)


def _adapter(adapter: AdapterRecord, checks: Sequence[GateCheck]) -> Page:
    return {
        **fields_of(adapter, "version", "status"),
        "meaning": STATUSES[adapter.status],
        "sentence": line_of(adapter.status_words, _LONGEST),
        "origin": line_of(adapter.origin_words, _LONGEST),
        "may_activate": adapter.status in {"candidate", "inactive", "rolled_back"}
        and bool(checks)
        and all(check.passed for check in checks),
        "checks": [
            {
                **fields_of(check, "name", "passed", "value", "low", "high", "unit"),
                "value_text": None
                if check.value is None
                else distinguish(check.value, check.threshold),
                "limit": check.threshold,
                "sentence": line_of(check.words, _LONGEST),
            }
            for check in checks
        ],
    }


def _round(training_round: TrainingRoundRecord) -> Page:
    losses = training_round.metrics.get("losses")
    curve = _thinned(losses if isinstance(losses, list) else [])
    return {
        **fields_of(training_round, "round_id", "version", "objective", "status", "n_rows"),
        "started_at": time_of(training_round.started_us),
        "took": None
        if training_round.ended_us is None
        else duration(training_round.started_us, training_round.ended_us),
        "reason": line_of(training_round.reason, _LONGEST),
        "losses": curve,
        **{name: training_round.metrics.get(name) for name in ("n_steps", "kl_estimate", "cpu_s")},
    }


def _thinned(losses: Sequence[Json]) -> list[tuple[int, Json]]:
    """Return a loss curve as (step from 1, loss), with at most ``MOST_STEPS`` points."""
    steps = list(enumerate(losses, 1))
    every = -(-len(steps) // MOST_STEPS) or 1
    return steps[::every]


def _interval(interval: MeanInterval | None) -> Page:
    names = ("mean", "low", "high")
    return (
        {"n": 0, **dict.fromkeys(names)} if interval is None else fields_of(interval, "n", *names)
    )
