"""The report's plots: what each shows of a ``RunResult``."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from convergence_core.records import Role
from convergence_core.result import CurvePoint, Estimate, MetricInfo, RunResult
from tasks.report import figures
from tasks.report.blocks import PlotName
from tasks.report.effect_plots import draw_shares, effect_svgs, has_shares, shares_height
from tasks.report.figures import Palette
from tasks.report.front_plots import draw_front, draw_hypervolume, has_front
from tasks.report.phrases import percent, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PNG_SIZE = (6.4, 3.2)

# A phone shows about 4.8 inches of type at its natural size; a wider figure would be unreadable.
_WIDTH = 4.8
_ROLES: Mapping[Role, str] = {
    "search": "search\n(posterior,\nbiased)",
    "fresh": "search cases,\nasked again\n(measured)",
    "holdout": "held-out\ncases\n(measured)",
}


def has_plot(result: RunResult, name: PlotName) -> bool:
    """Return whether the result holds what a plot needs."""
    has: dict[PlotName, Callable[[], bool]] = {
        "estimates": lambda: result.winner is not None,
        "front": lambda: has_front(result.front),
        "hypervolume": lambda: has_front(result.front),
        "learning_curve": lambda: any(point.best_mean is not None for point in result.curve),
        "parameter_effects": lambda: any(len(effect.points) > 1 for effect in result.effects),
        "shares": lambda: has_shares(result),
        "tradeoffs": lambda: tradeoff_metrics(result) is not None,
        "spend": lambda: bool(result.curve),
    }
    return has[name]()


def svg_plots(result: RunResult, name: PlotName) -> list[str]:
    """Return a plot's SVG elements: one, or one per parameter; none if there is nothing to show."""
    if not has_plot(result, name):
        return []
    if name == "parameter_effects":
        return effect_svgs(result)
    draw, title, height = {
        "shares": (draw_shares, "Shares of the variance", shares_height(result)),
        "estimates": (_draw_estimates, "Mean rewards with their intervals", 2.5),
        "learning_curve": (_draw_curve, "Mean reward by generation", 3.0),
        "front": (draw_front, "The front of trade-offs with its intervals", 3.3),
        "hypervolume": (draw_hypervolume, "Hypervolume by generation", 2.5),
        "tradeoffs": (_draw_tradeoffs, "Two metrics of each configuration", 3.1),
        "spend": (_draw_spend, "Calls by generation", 3.0),
    }[name]

    def fill(figure: "Figure", palette: Palette) -> None:
        draw(figure, palette, result)

    return [figures.svg(fill, name=name, title=title, width=_WIDTH, height=height)]


def learning_curve_png(result: RunResult) -> bytes:
    """Return the learning curve as a small PNG file (at most 40 kB), for Prefect's artifacts."""

    def fill(figure: "Figure", palette: Palette) -> None:
        _draw_curve(figure, palette, result)

    return figures.png(fill, width=_PNG_SIZE[0], height=_PNG_SIZE[1], dpi=100)


def tradeoff_metrics(result: RunResult) -> tuple[str, str] | None:
    """Return the two metrics of the trade-off plot, (x, y); ``None`` if there are no two.

    y is the metric of most weight, x the next; metrics without weight follow in their order.
    """
    measured = [
        metric
        for metric in sorted(result.metrics, key=lambda metric: -metric.weight)
        if any(metric.name in row.metrics for row in result.leaderboard)
    ]
    for y_index, y in enumerate(measured):
        for x in measured[y_index + 1 :]:
            if any({x.name, y.name} <= row.metrics.keys() for row in result.leaderboard):
                return x.name, y.name
    return None


# -- the plots


def _draw_estimates(figure: "Figure", palette: Palette, result: RunResult) -> None:
    axes = figure.subplots()
    winner = result.winner
    baseline = None if result.winner_is_baseline else result.baseline
    roles = [
        role
        for role in _ROLES
        if (winner and winner.estimate(role)) or (baseline and baseline.estimate(role))
    ]
    series = [("recommended", winner, palette.winner, 0.16, "o")]
    if baseline is not None:
        series.append(("default", baseline, palette.default, -0.16, "s"))
    for label, report, colour, offset, marker in series:
        if report is None:
            continue
        points = [(y, report.estimate(role)) for y, role in enumerate(roles)]
        seen = [(y + offset * (baseline is not None), value) for y, value in points if value]
        _intervals(axes, seen, colour, label=label, marker=marker)
    axes.set_yticks(range(len(roles)), [_ROLES[role] for role in roles])
    axes.set_ylim(-0.6, len(roles) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=palette.ink, length=0)
    axes.set_xlabel(f"mean reward, with {percent(result.level)} intervals")
    if baseline is not None:
        figure.legend(loc="outside upper left", ncols=2)


def _intervals(
    axes: "Axes",
    points: Sequence[tuple[float, Estimate]],
    colour: str,
    *,
    label: str,
    marker: str,
) -> None:
    means = [value.mean for _, value in points]
    axes.errorbar(
        means,
        [y for y, _ in points],
        xerr=_reach(
            means, [value.low for _, value in points], [value.high for _, value in points]
        ),
        color=colour,
        ecolor=colour,
        fmt=marker,
        markersize=6,
        elinewidth=1.8,
        capsize=0,
        label=label,
    )


def _reach(
    means: Sequence[float], lows: Sequence[float], highs: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return the lengths of error bars; an interval that leaves out its mean has length 0 there."""
    below = [max(0.0, mean - low) for mean, low in zip(means, lows, strict=True)]
    above = [max(0.0, high - mean) for mean, high in zip(means, highs, strict=True)]
    return below, above


def _draw_curve(figure: "Figure", palette: Palette, result: RunResult) -> None:
    axes = figure.subplots()
    known = [
        (point.generation, point.best_mean, point.low, point.high)
        for point in result.curve
        if point.best_mean is not None and point.low is not None and point.high is not None
    ]
    x = [generation for generation, *_ in known]
    axes.fill_between(
        x,
        [low for *_, low, _ in known],
        [high for *_, high in known],
        color=palette.winner,
        alpha=0.16,
        linewidth=0,
    )
    marker = "o" if len(known) <= 40 else ""
    axes.plot(
        x,
        [mean for _, mean, *_ in known],
        color=palette.winner,
        marker=marker,
        markersize=4.5,
        label="recommended so far (search)",
    )
    means = [(p.generation, p.asked_mean) for p in result.curve if p.asked_mean is not None]
    axes.plot(
        [generation for generation, _ in means],
        [mean for _, mean in means],
        color=palette.dot,
        linestyle=(0, (4, 2)),
        linewidth=1.4,
        label="average of those asked (search)",
    )
    last = max((point.generation for point in result.curve), default=0)
    if result.winner is not None and result.winner.holdout is not None:
        value = result.winner.holdout
        axes.errorbar(
            [last + 0.05 * max(last, 8)],
            [value.mean],
            yerr=_reach([value.mean], [value.low], [value.high]),
            color=palette.ink,
            ecolor=palette.ink,
            fmt="D",
            markersize=5,
            elinewidth=1.6,
            label="recommended, held-out cases",
        )
    axes.set_ylabel("mean reward")
    _generations(axes, result.curve)
    figure.legend(loc="outside upper left", ncols=2, handlelength=1.6, columnspacing=1.2)


def _draw_spend(figure: "Figure", palette: Palette, result: RunResult) -> None:
    axes = figure.subplots()
    x = [point.generation for point in result.curve]
    axes.fill_between(
        x,
        0,
        [point.cumulative_calls for point in result.curve],
        step="mid",
        color=palette.dot,
        alpha=0.18,
        linewidth=0,
    )
    axes.step(
        x,
        [point.cumulative_calls for point in result.curve],
        where="mid",
        color=palette.dot,
        label="calls so far",
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("calls so far")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _generations(axes, result.curve)
    money = [
        (point.generation, point.cumulative_usd)
        for point in result.curve
        if point.cumulative_usd is not None
    ]
    if money:
        right = axes.twinx()
        right.grid(visible=False)
        right.step(
            [generation for generation, _ in money],
            [dollars for _, dollars in money],
            where="mid",
            color=palette.default,
            linestyle=(0, (5, 2)),
            label="USD so far, known prices",
        )
        right.set_ylim(bottom=0)
        right.set_ylabel("USD so far")
        figure.legend(loc="outside upper left", ncols=2)


def _generations(axes: "Axes", curve: Sequence[CurvePoint]) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - takes half a second

    axes.set_xlabel("generation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if len(curve) == 1:
        axes.set_xlim(curve[0].generation - 1, curve[0].generation + 1)


def _draw_tradeoffs(figure: "Figure", palette: Palette, result: RunResult) -> None:
    pair = tradeoff_metrics(result)
    assert pair is not None  # noqa: S101 - has_plot was asked
    axes = figure.subplots()
    marked = {
        report.candidate_id for report in (result.winner, result.baseline) if report is not None
    }
    dots = [
        (row.metrics[pair[0]], row.metrics[pair[1]])
        for row in result.leaderboard
        if row.candidate_id not in marked and row.metrics.keys() >= set(pair)
    ]
    axes.scatter(
        [x for x, _ in dots],
        [y for _, y in dots],
        s=22,
        color=palette.dot,
        alpha=0.55,
        linewidths=0,
        label="a configuration",
    )
    subjects = [("default", result.baseline, palette.default, "s")]
    if result.winner_is_baseline:
        subjects = []
    subjects.append(("recommended", result.winner, palette.winner, "o"))
    for label, report, colour, marker in subjects:
        means = {} if report is None else report.metrics.get("search", {})
        if means.keys() >= set(pair):
            axes.scatter(
                [means[pair[0]]],
                [means[pair[1]]],
                s=75,
                color=colour,
                marker=marker,
                edgecolors=palette.paper,
                linewidths=1.2,
                zorder=3,
                label=label,
            )
    infos = {metric.name: metric for metric in result.metrics}
    axes.set_xlabel(_metric_label(infos[pair[0]]))
    axes.set_ylabel(_metric_label(infos[pair[1]]))
    figure.legend(loc="outside upper left", ncols=3, handletextpad=0.2)


def _metric_label(metric: MetricInfo) -> str:
    return f"{short(metric.name, 40)}, adjusted mean ({metric.direction} is good)"
