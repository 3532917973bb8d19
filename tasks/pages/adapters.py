"""Training pages: adapters, tests, rounds, rewards, raters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from convergence_core.result.number_text import UNKNOWN, plural, signed, signed_interval
from tasks.pages.source import Page, PageSource, line_of, page_of, span_of_time, tabs_of
from tasks.pages.writes import check_confirmed
from tasks.report.blocks import (
    Axis,
    Block,
    Bullets,
    Columns,
    Heading,
    Inline,
    Layer,
    Paragraph,
    Plot,
    Plots,
    Point,
    Span,
    code,
    marked,
    page_action,
    section,
    table,
)
from tasks.report.phrases import duration
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.counts import (
    AnsweredBy,
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
"""Commands that start a role's training if no configuration is known."""
TRAIN: Final = BEGIN[1:]
"""Commands that start training if the model is local."""
HOSTED: Final = ("convergence chat", "convergence review")
"""Commands by which ratings of a hosted model take effect."""
BY: Final = "web application"
"""Author of status changes on these pages."""
MOST: Final = 200
"""Maximum adapters and rounds shown, latest first."""
MOST_STEPS: Final = 200
"""Maximum steps of a loss curve; longer curves are thinned evenly."""
MOST_LOSSES: Final = 6
"""Maximum loss curves, of the latest rounds."""
_ABOUT_RATERS: Final = "Bias relative to the average rater, from answers with several ratings."
_ABOUT_ADAPTERS: Final = "An adapter answers only if it passes every check. A check without a measurement does not pass."
_ABOUT_TESTS: Final = (
    "Blinded: a random assignment decides for each conversation whether the new adapter or the previous one "
    "answers."
)
_ABOUT_COURSE: Final = (
    "Mean reward of consecutive ratings, of \N{MINUS SIGN}1 to 1, with its 95 % interval; dashed lines are "
    "activations."
)
_ABOUT_ANSWERS: Final = (
    "Means with 95 % intervals over what was measured. Adapters answered at different times: a difference "
    "may have other causes, too."
)
_LONGEST = 2_000
"""Maximum characters of a verdict."""


def training(source: PageSource, role: str | None = None) -> Page:
    """Return a role's training page, by default of the first role, with the raters.

    Raises:
        RunNotFoundError: the role has neither answers nor adapters.
    """
    feedback = source.feedback()
    roles = [] if feedback is None else _roles(feedback)
    advice, commands = _advice(source)
    if role is None and (feedback is None or not roles):
        text = f"This page shows what models learn from ratings. No answer is rated yet. {advice}"
        steps = tuple((code(command),) for command in commands)
        return page_of([Paragraph(marked(text)), Bullets(steps)])
    shown = roles[0] if role is None else role
    if feedback is None or shown not in roles:
        raise RunNotFoundError(
            f"a role must have answers or adapters, and {line_of(shown)!r} has none."
        )
    raters = tuple((line_of(text, _LONGEST) or "",) for text in rater_sentences(feedback))
    return page_of(
        [
            *tabs_of("training", roles),
            *_role(feedback, shown, (*marked(f"{advice} Next: "), code(commands[-1]))),
            Heading("Raters"),
            Paragraph((_ABOUT_RATERS,), "note"),
            Bullets(raters) if raters else Paragraph(("No two raters rated the same answer.",)),
        ]
    )


def _advice(source: PageSource) -> tuple[str, tuple[str, ...]]:
    """Return the effect of ratings on this store's model, and its commands."""
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


def _role(feedback: FeedbackStore, role: str, advice: tuple[Inline, ...]) -> Iterator[Block]:
    adapters = AdapterStore(feedback)
    counts = feedback_counts(feedback).roles.get(role)
    active, tests = adapters.active(role), adapters.live_tests(role)[-MOST:][::-1]
    answering = answering_words(None if active is None else active.version, role)
    sentences = [] if counts is None else [f"{counts.rated_words}."]
    yield from section("Now", answering, [*sentences, *(f"{test.words}." for test in tests[:1])])
    yield Heading("Adapters")
    yield Paragraph((_ABOUT_ADAPTERS,), "note")
    if active is not None:
        ask = (
            f"The previous adapter, or the base model, answers again instead of {active.version}."
        )
        place = ("training", role, "rollback")
        back = page_action("Roll back", *place, ask=ask, confirm=role, is_danger=True)
        yield Paragraph((back,))
    records = adapters.records(role)[-MOST:][::-1]
    if not records:
        yield Paragraph(("No adapter was trained; the base model answers. ", *advice))
    for record in records:
        yield from _adapter(record, adapters.checks(record.version))
    if tests[1:]:
        ended = (
            (
                line_of(test.words, _LONGEST) or "",
                " ",
                span_of_time(test.ended_us or test.started_us),
            )
            for test in tests[1:]
        )
        yield from (
            Heading("Earlier tests on live traffic"),
            Paragraph((_ABOUT_TESTS,), "note"),
            Bullets((*ended,)),
        )
    yield from _course(feedback, role)
    answers = answers_by_adapter(feedback, role)
    yield from (Heading("Answers by adapter"), Paragraph((_ABOUT_ANSWERS,), "note"))
    yield table(answers, _ANSWERS, numeric=_ANSWERS.keys() - {"adapter"})
    rounds = TrainingRounds(feedback).records(role)[-MOST:][::-1]
    yield Heading("Training rounds")
    if not rounds:
        yield Paragraph(("No round yet. ", *advice))
        return
    yield Plots(tuple(plot for each in rounds[:MOST_LOSSES] if (plot := _loss(each)) is not None))
    yield table(rounds, _ROUNDS, numeric=("rows", "steps", "KL, nats per answer", "took", "CPU"))


def _adapter(adapter: AdapterRecord, checks: Sequence[GateCheck]) -> Iterator[Block]:
    version, status = adapter.version, adapter.status
    yield Heading(version, 3)
    state = Span(status.replace("_", " "), "tag", STATUSES[status])
    action: tuple[Inline, ...] = ()
    can_answer = status in {"candidate", "inactive", "rolled_back"}
    if can_answer and checks and all(check.passed for check in checks):
        ask = f"{version} will answer; the current adapter becomes inactive."
        place = ("training", adapter.role, "activate")
        action = (" ", page_action("Activate", *place, ask=ask, confirm=version, version=version))
    yield Paragraph((state, f" {line_of(adapter.status_words, _LONGEST)}", *action))
    yield Paragraph((line_of(adapter.origin_words, _LONGEST) or "",), "note")
    if not checks:
        yield Paragraph(("Not checked yet.",), "note")
        return
    failed = sum(not check.passed for check in checks)
    folded = f"{len(checks)} checks passed"
    if failed:
        folded = f"{failed} of {len(checks)} checks not passed"
    is_open = status in {"active", "candidate", "undecided"}
    yield table(checks, _CHECKS, numeric=("limit",), folded="" if is_open else folded)


_CHECKS: Columns[GateCheck] = {
    "passed": lambda check: Span("yes" if check.passed else "no", "tag"),
    "check": lambda check: code(check.name),
    "measured [95 % interval]": lambda check: check.measured or UNKNOWN,
    "limit": lambda check: "" if check.threshold is None else _three(check.threshold),
    "verdict": lambda check: line_of(check.words, _LONGEST) or "",
}


def _course(feedback: FeedbackStore, role: str) -> list[Block]:
    """Return the plot of mean rewards over time, with activations."""
    points = tuple(
        Point(
            x=at_us / 1000,
            y=mean.mean,
            y_ends=None if mean.low is None or mean.high is None else (mean.low, mean.high),
            tip=f"{plural(mean.n, 'rating')}: {_signed(mean)}",
        )
        for at_us, mean in reward_course(feedback, role)
    )
    if not points:
        nothing = Paragraph(("No answer of this role is rated.",), "note")
        return [Heading("Ratings over time"), nothing]
    look = Layer(points=points, mark="line")
    began = [
        replace(
            look, colour="muted", weight="faint", is_dashed=True,
            points=(Point(x=at_us / 1000, y=-1), Point(x=at_us / 1000, y=1, tip=f"{name} is activated")),
        )
        for name, at_us in activations(feedback, role)[-MOST:]
    ]  # fmt: skip
    plot = Plot(
        name="rewards",
        title="Mean reward of consecutive ratings over time",
        x=Axis(kind="time"),
        y=Axis(low=-1, high=1),
        layers=(replace(look, mark="band"), look, *began),
        height=2.5,
    )
    about = Paragraph((_ABOUT_COURSE,), "note")
    return [Heading("Ratings over time"), about, Plots((plot,))]


def _loss(training_round: TrainingRoundRecord) -> Plot | None:
    """Return the plot of the loss without penalty by step; ``None`` for fewer than 2 steps."""
    losses = training_round.metrics.get("losses")
    steps = list(enumerate(losses if isinstance(losses, list) else [], 1))
    points = tuple(
        Point(x=step, y=float(loss), tip=f"step {step}: {loss:.3g}")
        for step, loss in steps[:: -(-len(steps) // MOST_STEPS) or 1]
        if isinstance(loss, int | float)
    )
    name = training_round.version or training_round.objective
    return (
        None
        if len(points) < 2
        else Plot(
            name=f"loss-{training_round.round_id}",
            title=f"Loss of each step, {name}",
            x=Axis(title="step", kind="whole"),
            y=Axis(title="loss"),
            layers=(Layer(points=points, mark="line"),),
            heading=name,
            height=2.3,
        )
    )


def _signed(interval: MeanInterval | None) -> str:
    if interval is None:
        return UNKNOWN
    ends = () if interval.low is None or interval.high is None else (interval.low, interval.high)
    return signed_interval(interval.mean, *ends) if ends else signed(interval.mean)


def _three(number: float) -> str:
    """Return a number in three significant digits, without an exponent at ordinary sizes."""
    return f"{float(f'{number:.3g}'):.12g}"


def _number(interval: MeanInterval | None, unit: str = "") -> str:
    if interval is None:
        return UNKNOWN
    text = f"{_three(interval.mean)}{unit}"
    if interval.low is None or interval.high is None:
        return text
    return f"{text} [{_three(interval.low)}, {_three(interval.high)}]"


_ANSWERS: Columns[AnsweredBy] = {
    "adapter": lambda answers: code(answers.version) if answers.version else "none",
    "answers": lambda answers: f"{answers.n_answers:,}",
    "ratings": lambda answers: "0" if answers.reward is None else f"{answers.reward.n:,}",
    "mean reward": lambda answers: _signed(answers.reward),
    "tokens of an answer": lambda answers: _number(answers.n_output_tokens),
    "time per answer": lambda answers: _number(answers.latency_s, " s"),
}


def _took(each: TrainingRoundRecord) -> str:
    return UNKNOWN if each.ended_us is None else duration(each.started_us, each.ended_us)


def _measured(
    name: str, form: Callable[[float], str], unit: str = ""
) -> Callable[[TrainingRoundRecord], Inline]:
    def cell(each: TrainingRoundRecord) -> str:
        value = each.metrics.get(name)
        return f"{form(value)}{unit}" if isinstance(value, int | float) else UNKNOWN

    return cell


_ROUNDS: Columns[TrainingRoundRecord] = {
    "started": lambda each: span_of_time(each.started_us),
    "status": lambda each: Span(each.status, "tag"),
    "adapter": lambda each: code(each.version) if each.version else UNKNOWN,
    "objective": lambda each: each.objective,
    "rows": lambda each: f"{each.n_rows:,}",
    "steps": _measured("n_steps", "{:,}".format),
    "KL, nats per answer": _measured("kl_estimate", _three),
    "took": _took,
    "CPU": _measured("cpu_s", _three, " s"),
    "result": lambda each: line_of(each.reason, _LONGEST) or UNKNOWN,
}


def activate(source: PageSource, role: str, body: Mapping[str, Any]) -> str:
    """Let a fully checked adapter answer for its role; return a sentence on the result.

    Raises:
        AdapterNotFoundError: the role has no such adapter.
        AdapterRefusedError: a check has not passed, its status does not allow it, or its files
            have changed.
        QueryError: the request is unconfirmed, or names another role's adapter.
    """
    version = str(body.get("version") or "")
    check_confirmed(body, version)
    adapters = _adapters(source, role)
    if adapters.record(version).role != role:
        raise QueryError(f"`version` must be an adapter of the role {role}, but got {version}.")
    adapters.activate(version, BY, reason="activated by hand")
    return answering_words(version, role)


def roll_back(source: PageSource, role: str, body: Mapping[str, Any]) -> str:
    """Roll back the active adapter of a role; return a sentence on the result.

    Raises:
        AdapterRefusedError: no adapter is active.
        QueryError: the request is unconfirmed.
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
