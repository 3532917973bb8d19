"""Report of a run: the order of its sections, and the sections of every run."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from convergence_core.records import Params, Role, same_value
from convergence_core.result import (
    CandidateReport,
    CaseAnswer,
    CaseAnswers,
    CurvePoint,
    Estimate,
    Failure,
    MetricInfo,
    RunResult,
    number_text,
)
from convergence_core.result.number_text import plural
from convergence_core.result.verdict import answer_usd, is_free, price_sentence, verdict_of
from convergence_core.search.source_report import SourceReport
from tasks.report import phrases
from tasks.report.answers_section import ARROW, MOST_GAINED, report_blocks
from tasks.report.blocks import (
    Block,
    Bullets,
    Columns,
    Grid,
    Heading,
    Inline,
    Paragraph,
    Plots,
    code,
    long_text,
    marked,
    section,
    table,
)
from tasks.report.explanation import explanation_blocks
from tasks.report.phrases import clean, short
from tasks.report.plots import has_points, holdout_of, learning_curve, plots_of, tradeoff_metrics
from tasks.report.tables import cost_blocks, leaderboard_grid
from tasks.store.clock import moment

DETAILS = Heading("Details")
"""Heading after which the page folds everything."""
MAX_EXAMPLES = 5
"""Maximum answers on the first page."""
MAX_SETTINGS = 4
"""Maximum settings in a terminal."""
MAX_ROWS = 50

ROLE_NAMES: Mapping[Role, str] = {
    "holdout": "held-out cases",
    "fresh": "search cases, repeated",
    "search": "search (biased by selection)",
}
"""Cases behind a role's estimates, most trustworthy first."""

_KINDS: Mapping[Role, str] = {
    "holdout": "measured",
    "fresh": "measured",
    "search": "posterior",
}
"""Kind of mean of a role's estimate."""
_METRIC_KINDS: Mapping[Role, str] = {**_KINDS, "search": "adjusted for the cases"}


def document(result: RunResult, *, is_whole: bool = True) -> list[Block]:
    """Return the report of a run.

    Args:
        result: the result of the run.
        is_whole: whether it contains the answers and the leaderboard, which pages show elsewhere.
    """
    return [
        *_first_page(result),
        DETAILS,
        *_evidence(result),
        *_configuration(result),
        *(report_blocks(result) if is_whole else ()),
        *_front(result),
        *_routing(result),
        *_metrics(result),
        *_judges(result),
        *course_blocks(result.curve, result.level, holdout_of(result)),
        *explanation_blocks(result),
        *_sources(result),
        *itertools.chain.from_iterable(learner_blocks(result).values()),
        *(_leaderboard(result) if is_whole else ()),
        *cost_blocks(result.costs, is_offline=bool(result.facts.get("offline"))),
        *_not_done(result),
        *_facts(result),
    ]


# -- sections of few runs, whose modules are imported on demand


def _front(result: RunResult) -> list[Block]:
    if result.front is None:
        return []
    from tasks.report.front import front_blocks  # noqa: PLC0415 - brings numpy

    return front_blocks(result)


def _routing(result: RunResult) -> list[Block]:
    sentence = phrases.routing_sentence(result)
    if sentence is None or result.routing is None:
        return []
    blocks: list[Block] = [Heading("Routing by case"), Paragraph((clean(sentence),))]
    if result.routing.night is not None:
        command = code(f"convergence arms route {result.label}")
        blocks.append(Paragraph(("To choose by each request's text and context: ", command)))
    return blocks


def _judges(result: RunResult) -> list[Block]:
    if not result.judges:
        return []
    from tasks.report.judge_section import judge_blocks  # noqa: PLC0415 - brings the configuration's models

    return judge_blocks(result.judges)


def learner_blocks(result: RunResult) -> dict[str, list[Block]]:
    """Return learner's work → its section, for the learners of the run."""
    sections: dict[str, list[Block]] = {}
    if result.thinking is not None:
        from tasks.report.rlp_section import thinking_blocks  # noqa: PLC0415 - brings numpy

        sections["thoughts"] = thinking_blocks(result.thinking)
    if result.preferences is not None:
        from tasks.report.sao_section import preference_blocks  # noqa: PLC0415 - as above

        sections["preferences"] = preference_blocks(result.preferences)
    if result.prompts is not None:
        from tasks.report.prompts_section import prompt_blocks  # noqa: PLC0415 - as above

        is_offline = bool(result.facts.get("offline"))
        sections["prompts"] = prompt_blocks(result.prompts, is_offline=is_offline)
    return sections


def _sources(result: RunResult) -> list[Block]:
    if not result.sources:
        return []
    leader = max(result.sources, key=lambda report: report.gain)
    sentence = (
        f"Settings came from {len(result.sources)} sources; {leader.source} raised the score most."
    )
    columns: Columns[SourceReport] = {
        "source": lambda report: report.source,
        "settings": lambda report: f"{report.n_settings:,}",
        "evaluations": lambda report: f"{report.n_evaluations:,}",
        "extra calls": lambda report: f"{report.n_calls:,}",
        "their cost": lambda report: number_text.usd(report.cost_usd),
        "took the lead": lambda report: f"{report.n_leads:,}",
        "score gained": lambda report: number_text.signed(report.gain),
    }
    rows = table(result.sources, columns, numeric=columns.keys() - {"source"})
    return section("Where settings came from", sentence, (), [rows])


# -- the first page


def _first_page(result: RunResult) -> list[Block]:
    """Return verdict, scores, differences from the defaults, and some changed answers."""
    candidate = result.best
    blocks = [Heading("Result"), *verdict_blocks(result)]
    if candidate is None:
        return blocks
    blocks.append(_compared(result, candidate))
    cheaper = phrases.neighbour_sentence(result)
    if cheaper is not None:
        blocks.append(Paragraph((cheaper,)))
    return [*blocks, *_changed_answers(result)]


def _compared(
    result: RunResult, candidate: CandidateReport, n_settings: int | None = None
) -> Grid:
    """Return score, price, latency and differing settings of the search's best and its rivals.

    Beyond ``n_settings`` settings, a last row gives the number of others; ``None`` shows all.
    """
    role, _ = candidate.headline()
    reports = {phrases.best_label(result): candidate, **result.rivals}

    def answer(report: CandidateReport) -> str:
        price = number_text.usd(answer_usd(result, report))
        return f"{price}, {number_text.milliseconds(report.answer_ms)}"

    def settings(name: str) -> list[Inline]:
        texts = [phrases.value_text(values[name]) for values in reversed(params) if name in values]
        shown = phrases.previews(texts)  # the default's first
        return [code(shown.pop()) if name in values else "not active" for values in params]

    rows: list[tuple[Inline, ...]] = [
        (
            f"score on {ROLE_NAMES[role]}",
            *(phrases.estimate(r.estimate(role)) for r in reports.values()),
        ),
        ("price, latency of an answer", *map(answer, reports.values())),
    ]
    params = [report.params for report in reports.values()]
    names = [
        name
        for name in dict.fromkeys(name for setting_values in params for name in setting_values)
        if len(params) == 1
        or not all(same_value(params[0].get(name), other.get(name)) for other in params[1:])
    ]
    rows += [(code(clean(name)), *settings(name)) for name in names[:n_settings]]
    n_more = len(names) - len(names[:n_settings])
    if n_more:
        rows.append((f"{plural(n_more, 'more setting')}", *("" for _ in params)))
    return Grid(("", *reports), tuple(rows))


def _changed_answers(result: RunResult) -> list[Block]:
    compared = [case for case in result.answers if case.gap is not None]
    cases = sorted(compared, key=lambda case: -(case.gap or 0.0))
    if not cases or result.best_is_baseline:
        return []
    if len(cases) > MAX_EXAMPLES:
        cases = [*cases[:MOST_GAINED], *cases[MOST_GAINED - MAX_EXAMPLES :]]

    def text(answer: CaseAnswer | None) -> str:
        return number_text.UNKNOWN if answer is None else short(answer.text or "")

    def score(answer: CaseAnswer | None) -> str:
        return number_text.reward(None if answer is None else answer.reward)

    columns: Columns[CaseAnswers] = {
        "test case": lambda case: short(case.name or case.case_id),
        "default": lambda case: text(case.first),
        phrases.best_label(result): lambda case: text(case.second),
        "scores": lambda case: f"{score(case.first)}{ARROW}{score(case.second)}",
    }
    return [Heading("Example answers", 3), table(cases, columns, numeric=("scores",))]


# -- findings


def card(result: RunResult) -> list[Block]:
    """Return verdict, estimates, settings and prices for a notebook cell."""
    candidate = result.best
    if candidate is None:
        return [*verdict_blocks(result), *_not_done(result)]
    _, settings = _configuration(result)
    lines = [price_sentence(result), f"Spent: {phrases.spend(result)}."]
    return [
        *verdict_blocks(result),
        _estimates(result, candidate),
        settings,
        Bullets(tuple(marked(line) for line in lines if line is not None)),
    ]


def summary(result: RunResult) -> list[Block]:
    """Return the findings in short form for a terminal."""
    blocks = verdict_blocks(result)
    if result.best is not None:
        blocks.append(_compared(result, result.best, MAX_SETTINGS))
    lines = [*_gaps(result), *map(phrases.failure_line, result.failures[:1])]
    return [*blocks, *(Paragraph(marked(line)) for line in lines)]


def _evidence(result: RunResult) -> list[Block]:
    candidate = result.best
    if candidate is None:
        return []
    sentences = [
        phrases.no_holdout(result) if candidate.holdout is None else None,
        price_sentence(result),
        phrases.gate_sentence(result),
        phrases.within_sentence(result),
    ]
    items = [marked(sentence) for sentence in sentences if sentence is not None]
    if result.winner_reason:
        items.append((clean(result.winner_reason),))
    return [
        *([Bullets(tuple(items))] if items else []),
        Plots(plots_of(result, "estimates")),
        _estimates(result, candidate),
    ]


def verdict_blocks(result: RunResult) -> list[Block]:
    """Return the verdict and its next step."""
    verdict = verdict_of(result)
    command: list[Inline] = [] if verdict.command is None else [" ", code(verdict.command)]
    return [
        Paragraph(marked(verdict.sentence), "lead"),
        Paragraph(("Next: ", *marked(verdict.next_step), *command)),
    ]


def _estimates(result: RunResult, candidate: CandidateReport) -> Grid:
    baseline = None if result.best_is_baseline else result.baseline
    rows: list[tuple[Inline, ...]] = []
    for role, name in ROLE_NAMES.items():
        estimate = candidate.estimate(role)
        other = None if baseline is None else baseline.estimate(role)
        if estimate is not None or other is not None:
            cells = [name, _KINDS[role], _n_cases(estimate), phrases.estimate(estimate)]
            if baseline is not None:
                gap = phrases.difference(result.gap(role))
                cells += [_n_cases(other), phrases.estimate(other), gap]
            rows.append(tuple(cells))
    rewards = f"mean reward with its {number_text.percent(result.level)} interval, on"
    columns = [rewards, "kind", "cases", phrases.best_label(result)]
    if baseline is not None:
        columns += ["cases", "default", "difference [its interval]"]
    return Grid(tuple(columns), tuple(rows), frozenset(range(2, len(columns))))


def _n_cases(value: Estimate | None) -> str:
    if value is None:
        return number_text.UNKNOWN
    groups = "" if value.n_groups is None else f" in {plural(value.n_groups, 'group')}"
    return f"{value.n_cases:,}{groups}"


# -- the configuration and its metrics


def _configuration(result: RunResult) -> list[Block]:
    candidate = result.best
    if candidate is None:
        return []
    defaults = None if result.baseline is None else result.baseline.params
    columns: dict[str, Callable[[str], Inline]] = {
        "parameter": lambda name: code(clean(name)),
        phrases.best_label(result): lambda name: _value(candidate.params, name, defaults),
    }
    names = dict.fromkeys(candidate.params)
    for title, report in result.rivals.items():
        is_kept = (
            result.met_champion
            and result.winner is not None
            and report.candidate_id == result.winner.candidate_id
        )
        columns[f"{title} (recommended)" if is_kept else title] = partial(_value, report.params)
        names |= dict.fromkeys(report.params)
    name = "recommended configuration" if result.is_recommended else "configuration found"
    return [Heading(f"The {name}"), table(names, columns)]


def _value(params: Params, name: str, other: Params | None = None) -> Inline:
    if name not in params:
        return "not active"
    text = phrases.value_text(params[name])
    if "\n" not in text and len(text) <= 80:
        return code(text)
    others = [phrases.value_text(other[name])] if other and name in other else []
    return long_text(text, phrases.previews([*others, text])[-1])


_ABOUT_ADJUSTED = (
    "Configurations ran on different numbers of cases, some easier than others. Adjusted means "
    "estimate the metric over all search cases: they remove the difficulty of the cases, and pull "
    "configurations with few cases toward the average. Measured means cover the cases where both have a value."
)


def _metrics(result: RunResult) -> list[Block]:
    candidate = result.best
    if candidate is None or not result.metrics:
        return []
    total = sum(metric.weight for metric in result.metrics)
    baseline = None if result.best_is_baseline else result.baseline

    def mean(report: CandidateReport | None, cell: tuple[MetricInfo, Role]) -> float | None:
        metric, role = cell
        return None if report is None else report.metrics.get(role, {}).get(metric.name)

    def share(metric: MetricInfo) -> str:
        return number_text.whole_percent(metric.weight / total) if metric.weight else "shown only"

    cells = [
        cell
        for cell in itertools.product(result.metrics, ROLE_NAMES)
        if mean(candidate, cell) is not None or mean(baseline, cell) is not None
    ]
    default: Columns[tuple[MetricInfo, Role]] = {
        "default": lambda cell: phrases.number(mean(baseline, cell))
    }
    columns: Columns[tuple[MetricInfo, Role]] = {
        "metric": lambda cell: code(clean(cell[0].name)),
        "mean over": lambda cell: ROLE_NAMES[cell[1]],
        "kind": lambda cell: _METRIC_KINDS[cell[1]],
        phrases.best_label(result): lambda cell: phrases.number(mean(candidate, cell)),
        **(default if baseline is not None else {}),
        "good is": lambda cell: cell[0].direction,
        "share of reward": lambda cell: share(cell[0]),
    }
    blocks: list[Block] = [
        Heading("Metrics"),
        table(cells, columns, numeric=(phrases.best_label(result), "default")),
        Paragraph((_ABOUT_ADJUSTED,), "note"),
    ]
    if plots := plots_of(result, "tradeoffs"):
        x, y = tradeoff_metrics(result) or ("", "")
        n = len(result.leaderboard)
        first = "" if n >= result.n_candidates else f" (the first {n:,} of the leaderboard)"
        text = (
            "Each mark is one configuration, all by their adjusted means in the search: "
            f"{short(y)} against {short(x)}{first}."
        )
        blocks += [Plots(plots), Paragraph((text,), "caption")]
    return blocks


# -- the course of the search


def course_blocks(
    curve: Sequence[CurvePoint], level: float, holdout: Estimate | None = None
) -> list[Block]:
    """Return the course of the search.

    Args:
        curve: points of the generations.
        level: probability of the intervals, in (0, 1).
        holdout: held-out estimate of the recommended configuration; ``None`` if not measured.
    """
    if not curve:
        return []
    plot = learning_curve(curve, holdout)
    blocks: list[Block] = [Heading("Search by generation")]
    if has_points(plot):
        text = (
            "The line is the posterior mean of the recommendation after each generation, with its "
            f"{number_text.percent(level)} interval, from the search's evaluations alone: biased upward "
            "by selection. The dashed line is the average posterior mean of the generation's configurations."
        )
        blocks += [Plots((plot,)), Paragraph((text,), "caption")]
    columns: dict[str, Callable[[CurvePoint], Inline]] = {
        "generation": lambda point: str(point.generation),
        "evaluations": lambda point: f"{point.n_evaluations:,}",
        "calls so far": lambda point: f"{point.cumulative_calls:,}",
        "recommended so far (posterior mean)": lambda point: number_text.interval(
            point.best_mean, point.low, point.high
        ),
        "average of the generation (posterior mean)": lambda p: number_text.reward(p.asked_mean),
    }
    if any(point.cumulative_usd is not None for point in curve):
        columns["cost so far"] = lambda p: number_text.spent(p.cumulative_usd, p.n_unpriced)
    shown = curve[-MAX_ROWS:]
    folded = f"{plural(len(shown), 'generation')} in numbers"
    if len(shown) < len(curve):
        folded = f"The last {folded}, of {len(curve):,}"
    return [*blocks, table(shown, columns, numeric=columns, folded=folded)]


# -- all candidates


def _leaderboard(result: RunResult) -> list[Block]:
    rows, n = result.leaderboard, min(MAX_ROWS, len(result.leaderboard))
    if not rows:
        return []
    text = (
        f"Posterior mean rewards from the search's evaluations, with {number_text.percent(result.level)} intervals; "
        "the upper rows are biased upward by selection. They are ranked by the cautious estimate, the lower "
        "end of the posterior's 68 % interval: a configuration with few evaluations must be clearly higher to "
        "come first. The means are corrected after ranking, by how earlier leaders did on repeated cases, so "
        "they may rise from one row to the next."
    )
    if any(row.metrics for row in rows[:n]):
        text += " Metrics are means adjusted for the cases."
    if any(row.feasible is not None for row in rows):
        text += (
            " Configurations that probably break a hard constraint come last, the most likely to "
            "keep them first."
        )
    if n < result.n_candidates:
        text += f" The first {n} of {result.n_candidates:,} configurations; the others are in the store."
    return [
        Heading("Configurations evaluated"),
        Paragraph(marked(text), "note"),
        leaderboard_grid(result, MAX_ROWS),
        *_named_values(result),
    ]


def _named_values(result: RunResult) -> list[Block]:
    """Return the full values that labels abbreviate."""
    rows: list[tuple[Inline, ...]] = []
    for parameter, by_name in sorted(result.named_values.items()):
        names = sorted(by_name, key=lambda name: (len(name), name))  # 2 before 10
        values = [clean(by_name[name]) for name in names]
        shown = map(long_text, values, phrases.previews(values))
        rows += zip([code(clean(parameter))] * len(names), map(clean, names), shown, strict=True)
    if not rows:
        return []
    folded = f"{plural(len(rows), 'long value')} of these tables in full"
    return [Grid(("parameter", "name", "value"), tuple(rows), folded=folded)]


# -- gaps and facts


def _gaps(result: RunResult) -> Iterator[str]:
    if result.final_look:
        yield f"Final test of the winner: {clean(result.final_look)}."
    if result.n_skipped:
        skipped = plural(result.n_skipped, "evaluation")
        yield f"{skipped} planned but not run: {short(result.reason, 200)}"
    if result.n_failed:
        yield f"{result.n_failed:,} of {plural(result.n_evaluations, 'evaluation')} failed."
    if result.n_missing:
        yield f"{result.n_missing:,} of {plural(result.n_evaluations, 'answer')} could not be had or measured."
    if result.n_maybe_paid:
        calls = plural(result.n_maybe_paid, "call")
        yield f"{calls} may be paid: in flight when a process died."
    if result.cost_usd is None and result.n_calls and not is_free(result):
        yield (
            "No call had a known price, so the spend in dollars is unknown. Write prices under "
            "`prices:`."
        )
    if result.status == "stopped":
        yield f"Continue the run: `convergence resume {result.label}`."


_FAULTS = (
    "A configuration's own error scores 0. An error of the network, the server or a metric counts as "
    "missing."
)


def _not_done(result: RunResult) -> list[Block]:
    items = [marked(item) for item in _gaps(result)]
    blocks: list[Block] = [Heading("Failures and gaps")]
    if not items and not result.failures:
        return [*blocks, Paragraph(("Every planned evaluation has a reward.",))]
    if items:
        blocks.append(Bullets(tuple(items)))
    if result.failures:
        columns: Columns[Failure] = {
            "reason": lambda failure: code(short(failure.reason)),
            "error of": lambda failure: failure.fault or "not run",
            "evaluations": lambda failure: f"{failure.n:,}",
            "example": lambda failure: phrases.failure_example(failure.example, 300),
        }
        blocks.append(table(result.failures[:MAX_ROWS], columns, numeric=("evaluations",)))
        blocks.append(Paragraph((_FAULTS,), "note"))
    return blocks


def _facts(result: RunResult) -> list[Block]:
    facts: dict[str, str] = {
        "run": result.run_id,
        "label": result.label,
        "system": result.system,
        "algorithm": f"{plural(result.generations_run, 'generation')} of {result.algorithm}, seed {result.seed}",
        "started": moment(result.started_us),
        "ended": moment(result.ended_us),
        "took": phrases.duration(result.started_us, result.ended_us),
        "test cases": f"{result.n_search_cases:,} in the search, {result.n_holdout_cases:,} held out",
        "calls": f"{result.n_calls:,}, and {result.n_cached:,} answers from the journal",
        "spend": phrases.spend(result),
        "end": result.reason,
        **dict(sorted(result.facts.items())),
    }
    rows = tuple((short(name), code(short(value, 200))) for name, value in facts.items())
    return [Heading("Facts"), Grid(("", ""), rows)]
