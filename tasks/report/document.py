"""What the report says, in which order: blocks made of a ``RunResult``."""

from collections.abc import Iterator, Mapping, Sequence

from convergence_core.records import Params, ParamValue, Role
from convergence_core.result import CandidateReport, Estimate, RunResult
from convergence_core.visualization import Visualization
from tasks.report import phrases
from tasks.report.blocks import (
    Block,
    Bullets,
    Code,
    Grid,
    Heading,
    Inline,
    KeyFigure,
    KeyFigures,
    LongText,
    Paragraph,
    PlotName,
    Plots,
)
from tasks.report.costs import costs
from tasks.report.explanation import explanation_blocks
from tasks.report.leaderboard import leaderboard_grid
from tasks.report.phrases import clean, plural, short
from tasks.report.plots import has_plot, tradeoff_metrics

MAX_ROWS = 50
"""Rows shown of a long table."""

ROLE_NAMES: Mapping[Role, str] = {
    "holdout": "held-out cases",
    "fresh": "search cases, asked again",
    "search": "search (biased by selection)",
}
"""What the estimates of a role rest on, most trustworthy first."""

_KINDS: Mapping[Role, str] = {
    "holdout": "measured",
    "fresh": "measured",
    "search": "posterior",
}
"""What kind of mean a role's estimate is."""
_METRIC_KINDS: Mapping[Role, str] = {**_KINDS, "search": "adjusted for the cases"}


def document(result: RunResult, visualizations: Sequence[Visualization]) -> list[Block]:
    """Return the report of a run.

    Args:
        result: what the run found.
        visualizations: plots to show, as ``output.visualizations`` names them.
    """
    wanted = frozenset(visualizations)
    return [
        *_finding(result),
        *_configuration(result),
        *_front(result),
        *_metrics(result, wanted),
        *_judges(result),
        *_course(result, wanted),
        *explanation_blocks(result, wanted),
        *_society(result),
        *_leaderboard(result),
        *costs(result),
        *_not_done(result),
        *_facts(result),
    ]


# -- what most runs have not, so that their modules are loaded where there is something to tell


def _front(result: RunResult) -> list[Block]:
    if result.front is None:
        return []
    from tasks.report.front import front_blocks  # noqa: PLC0415 - brings numpy

    return front_blocks(result)


def _judges(result: RunResult) -> list[Block]:
    if not result.judges:
        return []
    from tasks.report.judge_section import judge_blocks  # noqa: PLC0415 - brings the configuration's models

    return judge_blocks(result.judges)


def _society(result: RunResult) -> list[Block]:
    blocks: list[Block] = []
    if result.thinking is not None:
        from tasks.report.rlp_section import thinking_blocks  # noqa: PLC0415 - brings numpy

        blocks += thinking_blocks(result.thinking)
    if result.preferences is not None:
        from tasks.report.sao_section import preference_blocks  # noqa: PLC0415 - as above

        blocks += preference_blocks(result.preferences)
    return blocks


# -- what was found


def _finding(result: RunResult) -> list[Block]:
    winner = result.winner
    if winner is None:
        why = f"none of the {plural(result.n_candidates, 'configuration')} asked has a reward"
        if result.all_failed:
            why = f"all of the {plural(result.n_evaluations, 'evaluation')} failed"
        said = f"No configuration can be recommended: {why}."
        return [Heading("What was found"), Paragraph((said,), "lead")]
    sentences = [
        phrases.gate_sentence(result),
        phrases.fresh_sentence(result),
        phrases.search_sentence(result),
        phrases.within_sentence(result),
        phrases.default_sentence(result),
    ]
    items = [_marked(sentence) for sentence in sentences if sentence is not None]
    if result.winner_reason:
        items.append((clean(result.winner_reason),))
    return [
        Heading("What was found"),
        Paragraph(_marked(phrases.holdout_sentence(result)), "lead"),
        _key_figures(result, winner),
        Bullets(tuple(items)),
        Plots(("estimates",)),
        _estimates(result, winner),
    ]


def _marked(sentence: str) -> tuple[Inline, ...]:
    """Split a sentence of ours at its back ticks; not for text of others."""
    parts = enumerate(sentence.split("`"))
    return tuple(Code(part) if i % 2 else part for i, part in parts if part)


def _key_figures(result: RunResult, winner: CandidateReport) -> KeyFigures:
    role, own = winner.headline()
    figures = [_key_figure("Recommended", own, role, is_main=True)]
    other = None if result.baseline is None else result.baseline.estimate(role)
    if other is not None and not result.winner_is_baseline:
        figures.append(_key_figure("Default", other, role))
    gap = result.gap(role)
    if gap is not None and not result.winner_is_baseline:
        interval = f"[{phrases.signed(gap.low)}, {phrases.signed(gap.high)}]"
        detail = f"{interval} paired, {phrases.percent(gap.level)}; one look, no decision"
        figures.append(KeyFigure("Difference", phrases.signed(gap.mean), detail))
    price = "no price known" if result.cost_usd is None else phrases.usd(result.cost_usd)
    cells = f"{plural(result.n_evaluations, 'evaluation')}; {price}"
    figures.append(KeyFigure("Calls", f"{result.n_calls:,}", cells))
    return KeyFigures(tuple(figures))


def _key_figure(title: str, value: Estimate, role: Role, *, is_main: bool = False) -> KeyFigure:
    interval = f"[{phrases.reward(value.low)}, {phrases.reward(value.high)}]"
    detail = f"{interval} {_KINDS[role]} mean reward, {ROLE_NAMES[role]}"
    return KeyFigure(title, phrases.reward(value.mean), detail, is_main)


def _estimates(result: RunResult, winner: CandidateReport) -> Grid:
    baseline = None if result.winner_is_baseline else result.baseline
    rows: list[tuple[Inline, ...]] = []
    for role, name in ROLE_NAMES.items():
        own = winner.estimate(role)
        other = None if baseline is None else baseline.estimate(role)
        if own is None and other is None:
            continue
        shown: list[Inline] = [name, _KINDS[role], _n_cases(own), phrases.estimate(own)]
        if baseline is not None:
            shown += [_n_cases(other), phrases.estimate(other)]
            shown.append(phrases.difference(result.gap(role)))
        rows.append(tuple(shown))
    columns = ["mean reward on", "kind", "cases", "recommended"]
    if baseline is not None:
        columns += ["cases", "default", "difference"]
    return Grid(tuple(columns), tuple(rows), frozenset(range(2, len(columns))))


def _n_cases(value: Estimate | None) -> str:
    if value is None or value.n_groups is None:
        return phrases.UNKNOWN if value is None else f"{value.n_cases:,}"
    return f"{value.n_cases:,} in {phrases.plural(value.n_groups, 'group')}"


# -- the configuration and its metrics


def _configuration(result: RunResult) -> list[Block]:
    winner = result.winner
    if winner is None:
        return []
    defaults = None if result.baseline is None else result.baseline.params
    names = list(winner.params)
    names += [name for name in defaults or {} if name not in winner.params]
    rows = []
    for name in names:
        row: list[Inline] = [Code(clean(name)), _value(winner.params, name)]
        if defaults is not None:
            row.append(_value(defaults, name))
        rows.append(tuple(row))
    columns = ("parameter", "recommended") + (("default",) if defaults is not None else ())
    return [Heading("The recommended configuration"), Grid(columns, tuple(rows))]


def _value(params: Params, name: str) -> Inline:
    if name not in params:
        return "not active"
    return shown_value(params[name])


def shown_value(value: ParamValue) -> Inline:
    """Return a parameter's value; long texts folded."""
    text = phrases.value_text(value)
    return LongText(text) if "\n" in text or len(text) > 80 else Code(text)


_ABOUT_ADJUSTED = (
    "Configurations were asked different numbers of cases, and some cases are easier than others. "
    "An adjusted mean is what the metric would be over all cases of the search: it takes off how "
    "easy the cases were, and draws a configuration that was asked few to the average. Measured "
    "means are over the same cells for both."
)


def _metrics(result: RunResult, wanted: frozenset[Visualization]) -> list[Block]:
    winner = result.winner
    if winner is None or not result.metrics:
        return []
    total = sum(metric.weight for metric in result.metrics)
    baseline = None if result.winner_is_baseline else result.baseline
    rows = []
    for metric in result.metrics:
        share = f"{100 * metric.weight / total:.0f} %" if metric.weight else "shown only"
        for role, name in ROLE_NAMES.items():
            own = winner.metrics.get(role, {}).get(metric.name)
            other = None if baseline is None else baseline.metrics.get(role, {}).get(metric.name)
            if own is None and other is None:
                continue
            row: list[Inline] = [Code(clean(metric.name)), name, _METRIC_KINDS[role]]
            row.append(phrases.number(own))
            row += [phrases.number(other)] if baseline is not None else []
            rows.append((*row, metric.direction, share))
    with_default = ("default",) if baseline is not None else ()
    columns = (
        *("metric", "mean over", "kind", "recommended", *with_default),
        *("good is", "share of reward"),
    )
    numeric = frozenset({3, 4} if with_default else {3})
    blocks: list[Block] = [
        Heading("Metrics"),
        Grid(columns, tuple(rows), numeric),
        Paragraph((_ABOUT_ADJUSTED,), "note"),
    ]
    if "tradeoffs" in wanted and has_plot(result, "tradeoffs"):
        x, y = tradeoff_metrics(result) or ("", "")
        said = "Each mark is one configuration, all by their adjusted means in the search: "
        where = f" against {short(x)}{_first_rows(result)}."
        blocks += [Plots(("tradeoffs",)), Paragraph((said + short(y) + where,), "caption")]
    return blocks


def _first_rows(result: RunResult) -> str:
    n = len(result.leaderboard)
    return "" if n >= result.n_candidates else f" (the first {n:,} of the leaderboard)"


# -- the course of the search


def _course(result: RunResult, wanted: frozenset[Visualization]) -> list[Block]:
    if not result.curve:
        return []
    names: list[PlotName] = [
        name for name in ("learning_curve", "spend") if name in wanted and has_plot(result, name)
    ]
    blocks: list[Block] = [Heading("How the search went")]
    if names:
        blocks.append(Plots(tuple(names)))
    if "learning_curve" in names:
        said = (
            "The line is the posterior mean of the configuration that would have been recommended "
            f"after each generation, with its {phrases.percent(result.level)} interval, from "
            "search cells alone: biased upward by selection. The dashed line is the average "
            "posterior mean of the configurations that the generation asked."
        )
        blocks.append(Paragraph((said,), "caption"))
    has_money = any(point.cumulative_usd is not None for point in result.curve)
    columns = ["generation", "evaluations", "calls so far"]
    columns += ["recommended so far (posterior mean)", "average of those asked (posterior mean)"]
    shown = result.curve[-MAX_ROWS:]
    rows = []
    for point in shown:
        row: list[Inline] = [
            str(point.generation),
            f"{point.n_evaluations:,}",
            f"{point.cumulative_calls:,}",
            phrases.interval(point.best_mean, point.low, point.high),
            phrases.reward(point.asked_mean),
        ]
        if has_money:
            row.append(phrases.usd(point.cumulative_usd))
        rows.append(tuple(row))
    if has_money:
        columns.append("USD so far")
    folded = f"{plural(len(shown), 'generation')} in numbers"
    if len(shown) < len(result.curve):
        folded = f"The last {folded}, of {len(result.curve):,}"
    blocks.append(Grid(tuple(columns), tuple(rows), frozenset(range(len(columns))), folded=folded))
    return blocks


# -- all candidates


def _leaderboard(result: RunResult) -> list[Block]:
    if not result.leaderboard:
        return []
    shown = result.leaderboard[:MAX_ROWS]
    said = (
        f"Posterior mean rewards from search cells, with {phrases.percent(result.level)} intervals; "
        "the upper rows are biased upward by selection."
    )
    if any(row.cautious is not None for row in result.leaderboard):
        said += (
            " They are ranked by the cautious estimate, the lower end of the posterior's 68 % "
            "interval: a configuration that was asked little must be clearly higher to come first. "
            "Only then are the means of the leaders corrected by what earlier leaders showed when "
            "they were asked again. So the means themselves need not fall from row to row."
        )
    if any(row.metrics for row in shown):
        said += " Metrics are means adjusted for the cases."
    if any(row.feasible is not None for row in result.leaderboard):
        said += (
            " Configurations that probably break a hard constraint come after all others, the "
            "likeliest to keep them first."
        )
    if len(shown) < result.n_candidates:
        said += (
            f" The first {len(shown)} of {result.n_candidates:,} configurations; the others are in "
            "`experiments.csv` and in the store."
        )
    columns, numeric, rows = leaderboard_grid(result, MAX_ROWS)
    return [
        Heading("Configurations asked"),
        Paragraph(_marked(said), "note"),
        Grid(columns, rows, numeric),
        *_named_values(result),
    ]


def _named_values(result: RunResult) -> list[Block]:
    """Return the whole texts of values that labels only name."""
    rows: list[tuple[Inline, ...]] = [
        (Code(clean(parameter)), clean(name), LongText(clean(value)))
        for parameter, by_name in sorted(result.named_values.items())
        for name, value in sorted(by_name.items())
    ]
    if not rows:
        return []
    folded = f"The {plural(len(rows), 'long value')} that these tables name, whole"
    return [Grid(("parameter", "name", "value"), tuple(rows), folded=folded)]


# -- what was not done, and facts


def _gaps(result: RunResult) -> Iterator[str]:
    if result.final_look:
        yield f"The final look at the winner: {clean(result.final_look)}."
    if result.n_skipped:
        cells = plural(result.n_skipped, "cell")
        yield f"{cells} planned and not asked: {short(result.reason, 200)}"
    if result.n_failed:
        yield (
            f"{result.n_failed:,} of {plural(result.n_evaluations, 'evaluation')} failed. A fault "
            "of the candidate counts as reward 0; a fault of network, server or metric is "
            "missing and counts as nothing."
        )
    if result.n_missing:
        yield f"{plural(result.n_missing, 'cell')} asked without getting a reward."
    if result.n_maybe_paid:
        calls = plural(result.n_maybe_paid, "call")
        yield f"{calls} in flight when a process died: perhaps paid."
    if result.cost_usd is None and result.n_calls:
        yield "No call had a known price, so the spend in dollars is unknown."
    if result.status == "stopped":
        yield f"The run can go on: `convergence resume {result.label}`."


def _not_done(result: RunResult) -> list[Block]:
    items = [*_gaps(result)]
    blocks: list[Block] = [Heading("What failed or was not done")]
    if not items and not result.failures:
        return [*blocks, Paragraph(("Every cell that was planned was asked and has a reward.",))]
    if items:
        blocks.append(Bullets(tuple(_marked(item) for item in items)))
    if result.failures:
        rows: list[tuple[Inline, ...]] = [
            (
                Code(short(failure.reason)),
                failure.fault or "not asked",
                f"{failure.n:,}",
                phrases.failure_example(failure.example, 300),
            )
            for failure in result.failures[:MAX_ROWS]
        ]
        columns = ("reason", "fault of", "evaluations", "an example")
        blocks.append(Grid(columns, tuple(rows), frozenset({2})))
    return blocks


def _facts(result: RunResult) -> list[Block]:
    facts: dict[str, str] = {
        "run": result.run_id,
        "label": result.label,
        "system": result.system,
        "algorithm": f"{result.algorithm}, seed {result.seed}",
        "began": phrases.moment(result.started_us),
        "ended": phrases.moment(result.ended_us),
        "took": phrases.duration(result.started_us, result.ended_us),
        "test cases": f"{result.n_search_cases:,} in the search, {result.n_holdout_cases:,} held "
        "out",
        "calls": f"{result.n_calls:,}, and {result.n_cached:,} answers from the journal",
        "spend": phrases.usd(result.cost_usd),
        **dict(sorted(result.facts.items())),
    }
    rows: tuple[tuple[Inline, ...], ...] = tuple(
        (short(name), Code(short(value, 200))) for name, value in facts.items()
    )
    return [Heading("Facts"), Grid(("", ""), rows)]
