"""Plots of a report."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from convergence_core.records import Role
from convergence_core.result import RunResult
from convergence_core.result.number_text import interval, percent, usd
from tasks.report import figures
from tasks.report.blocks import PlotName
from tasks.report.effect_plots import draw_shares, effect_svgs, has_shares, shares_height
from tasks.report.figures import Palette
from tasks.report.phrases import name_of_found, named_label, short

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
_NEEDS: Mapping[PlotName, str] = {
    "estimates": "a recommended configuration",
    "front": "a Pareto run with a front",
    "hypervolume": "a Pareto run with a front",
    "learning_curve": "a generation after which something was known",
    "parameter_effects": "a parameter that took two values",
    "shares": "an explanation of what the parameters do",
    "tradeoffs": "two metrics measured of one configuration",
    "spend": "a generation",
}


def has_plot(result: RunResult, name: PlotName) -> bool:
    """Return whether the result holds what a plot needs."""
    has: dict[PlotName, Callable[[], bool]] = {
        "estimates": lambda: result.winner is not None,
        "front": lambda: _has_front(result),
        "hypervolume": lambda: _has_front(result),
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
    draw, title, height = _plots(result)[name]
    fill = partial(draw, result=result)
    return [figures.svg(fill, name=name, title=title, width=_WIDTH, height=height)]


def _plots(result: RunResult) -> dict[PlotName, tuple[Callable[..., None], str, float]]:
    """Return plot → what draws it, its title and its height in inches."""
    return {
        "shares": (draw_shares, "Shares of the variance", shares_height(result)),
        "estimates": (_draw_estimates, "Mean rewards with their intervals", 2.5),
        "learning_curve": (_draw_curve, "Mean reward by generation", 3.0),
        "front": (_draw_front, "The front of trade-offs with its intervals", 3.3),
        "hypervolume": (_draw_hypervolume, "Hypervolume by generation", 2.5),
        "tradeoffs": (_draw_tradeoffs, "Two metrics of each configuration", 3.1),
        "spend": (_draw_spend, "Calls by generation", 3.0),
    }


def learning_curve_png(result: RunResult) -> bytes:
    """Return the learning curve as a small PNG file (at most 40 kB), for Prefect's artifacts."""
    return figures.png(
        partial(_draw_curve, result=result), width=_PNG_SIZE[0], height=_PNG_SIZE[1], dpi=100
    )


def figure_of(result: RunResult, name: PlotName) -> "Figure":
    """Return a plot of the report as a figure, light.

    Raises:
        ValueError: the result holds nothing to show, or the plot is one per parameter.
    """
    if not has_plot(result, name):
        raise ValueError(f"the plot `{name}` needs what this result does not hold: {_NEEDS[name]}")
    draw, _, height = _plots(result)[name]
    return figures.figure(partial(draw, result=result), width=_PNG_SIZE[0], height=height)


def leaderboard_figure(result: RunResult, n: int) -> "Figure":
    """Return the first ``n`` rows of the leaderboard as posterior means with their intervals.

    Raises:
        ValueError: the leaderboard is empty.
    """
    if not result.leaderboard:
        raise ValueError("the leaderboard is empty: no candidate got a reward")
    height = 0.9 + 0.26 * len(result.leaderboard[:n])
    draw = partial(_draw_leaderboard, result=result, n=n)
    return figures.figure(draw, width=_PNG_SIZE[0], height=height)


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


# -- one plot each


def _draw_estimates(figure: "Figure", palette: Palette, result: RunResult) -> None:
    axes = figure.subplots()
    name = name_of_found(result)
    reports = {name: result.found}
    if not result.found_is_baseline and result.baseline is not None:
        reports["default"] = result.baseline
    styles = {name: (palette.winner, "o", 0.16), "default": (palette.default, "s", -0.16)}
    roles = [
        role
        for role in _ROLES
        if any(report and report.estimate(role) for report in reports.values())
    ]
    for label, report in reports.items():
        colour, marker, offset = styles[label]
        estimates = [None if report is None else report.estimate(role) for role in roles]
        known = [(y, value) for y, value in enumerate(estimates) if value is not None]
        _errorbars(
            axes,
            [value.mean for _, value in known],
            [y + offset * (len(reports) > 1) for y, _ in known],
            xerr=_reach([(value.mean, value.low, value.high) for _, value in known]),
            colour=colour,
            marker=marker,
            label=label,
        )
        for y, value in known:
            role = _ROLES[roles[y]].replace("\n", " ")
            text = f"{label}, {role}: {interval(value.mean, value.low, value.high)}"
            figures.tip(axes, value.mean, y + offset * (len(reports) > 1), text)
    axes.set_yticks(range(len(roles)), [_ROLES[role] for role in roles])
    axes.set_ylim(-0.6, len(roles) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=palette.ink, length=0)
    axes.set_xlabel(f"mean reward, with {percent(result.level)} intervals")
    if len(reports) > 1:
        figure.legend(loc="outside upper left", ncols=2)


def _errorbars(
    axes: "Axes",
    x: Sequence[float],
    y: Sequence[float],
    *,
    colour: str,
    marker: str,
    label: str,
    size: float = 6,
    width: float = 1.8,
    **reach: Any,
) -> None:
    """Draw points with the bars ``xerr`` and ``yerr``."""
    style: dict[str, Any] = {"color": colour, "ecolor": colour, "fmt": marker, "label": label}
    axes.errorbar(x, y, markersize=size, elinewidth=width, capsize=0, **style, **reach)


def _reach(ends: Sequence[tuple[float, float, float]]) -> tuple[list[float], list[float]]:
    """Return the lengths of error bars; an interval that leaves out its mean has length 0 there."""
    below = [max(0.0, mean - low) for mean, low, _ in ends]
    above = [max(0.0, high - mean) for mean, _, high in ends]
    return below, above


def _draw_curve(figure: "Figure", palette: Palette, result: RunResult) -> None:
    axes = figure.subplots()
    known = [
        (point.generation, point.best_mean, point.low, point.high)
        for point in result.curve
        if point.best_mean is not None and point.low is not None and point.high is not None
    ]
    x = [generation for generation, *_ in known]
    lows, highs = [low for *_, low, _ in known], [high for *_, high in known]
    axes.fill_between(x, lows, highs, color=palette.winner, alpha=0.16, linewidth=0)
    axes.plot(
        x,
        [mean for _, mean, *_ in known],
        color=palette.winner,
        marker=_marker(known),
        markersize=4.5,
        label="recommended so far (search)",
    )
    for generation, mean, low, high in known:
        text = f"generation {generation}: {interval(mean, low, high)}, recommended so far"
        figures.tip(axes, generation, mean, text)
    points = [(p.generation, p.asked_mean) for p in result.curve if p.asked_mean is not None]
    axes.plot(
        [generation for generation, _ in points],
        [mean for _, mean in points],
        color=palette.dot,
        linestyle=(0, (4, 2)),
        linewidth=1.4,
        label="average of those asked (search)",
    )
    last = max((point.generation for point in result.curve), default=0)
    holdout = None if result.winner is None else result.winner.holdout
    if holdout is not None:
        _errorbars(
            axes,
            [last + 0.05 * max(last, 8)],
            [holdout.mean],
            yerr=_reach([(holdout.mean, holdout.low, holdout.high)]),
            colour=palette.ink,
            marker="D",
            label="recommended, held-out cases",
            size=5,
            width=1.6,
        )
        text = f"held-out cases: {interval(holdout.mean, holdout.low, holdout.high)}"
        figures.tip(axes, last + 0.05 * max(last, 8), holdout.mean, text)
    axes.set_ylabel("mean reward")
    _generations(axes, len(result.curve), last)
    figure.legend(loc="outside upper left", ncols=2, handlelength=1.6, columnspacing=1.2)


def _marker(points: Sequence[object]) -> str:
    return "o" if len(points) <= 40 else ""


def _draw_leaderboard(figure: "Figure", palette: Palette, result: RunResult, n: int) -> None:
    """Draw posterior means with their intervals, best first; the recommended and the default in colour."""
    axes = figure.subplots()
    rows = result.leaderboard[:n]
    special = {
        report.candidate_id: colour
        for report, colour in (
            (result.baseline, palette.default),
            (result.winner, palette.winner),
        )
        if report is not None
    }
    for y, row in enumerate(rows):
        _errorbars(
            axes,
            [row.mean],
            [y],
            xerr=_reach([(row.mean, row.low, row.high)]),
            colour=special.get(row.candidate_id, palette.dot),
            marker="o",
            label="",
        )
    names = [short(named_label(row.label, row.candidate_id), 44) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=palette.ink, length=0)
    axes.set_xlabel(f"posterior mean reward, with {percent(result.level)} intervals")


def _draw_spend(figure: "Figure", palette: Palette, result: RunResult) -> None:
    axes, dot = figure.subplots(), palette.dot
    x = [point.generation for point in result.curve]
    calls = [point.cumulative_calls for point in result.curve]
    axes.fill_between(x, 0, calls, step="mid", color=dot, alpha=0.18, linewidth=0)
    axes.step(x, calls, where="mid", color=dot, label="calls so far")
    for point in result.curve:
        money = "" if point.cumulative_usd is None else f", {usd(point.cumulative_usd)}"
        text = f"generation {point.generation}: {point.cumulative_calls:,} calls so far{money}"
        figures.tip(axes, point.generation, point.cumulative_calls, text)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("calls so far")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _generations(axes, len(x), x[-1])
    dollars_at = [
        (point.generation, point.cumulative_usd)
        for point in result.curve
        if point.cumulative_usd is not None
    ]
    if dollars_at:
        right = axes.twinx()
        right.grid(visible=False)
        right.step(
            [generation for generation, _ in dollars_at],
            [dollars for _, dollars in dollars_at],
            where="mid",
            color=palette.default,
            linestyle=(0, (5, 2)),
            label="USD so far, known prices",
        )
        right.set_ylim(bottom=0)
        right.set_ylabel("USD so far")
        figure.legend(loc="outside upper left", ncols=2)


def _generations(axes: "Axes", n: int, last: int) -> None:
    """Set the axis of generations; a single one stands in the middle."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - takes half a second

    axes.set_xlabel("generation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if n == 1:
        axes.set_xlim(last - 1, last + 1)


def _draw_tradeoffs(figure: "Figure", palette: Palette, result: RunResult) -> None:
    pair = tradeoff_metrics(result)
    assert pair is not None  # noqa: S101 - has_plot was asked
    axes = figure.subplots()
    subjects = [(name_of_found(result), result.found, palette.winner, "o")]
    if not result.found_is_baseline:
        subjects.insert(0, ("default", result.baseline, palette.default, "s"))
    marked = {
        report.candidate_id for report in (result.found, result.baseline) if report is not None
    }
    dots = [
        (row.metrics[pair[0]], row.metrics[pair[1]], named_label(row.label, row.candidate_id))
        for row in result.leaderboard
        if row.candidate_id not in marked and row.metrics.keys() >= set(pair)
    ]
    x, y = [x for x, *_ in dots], [y for _, y, _ in dots]
    for at_x, at_y, text in dots:
        figures.tip(axes, at_x, at_y, f"{short(text, 120)}: {at_x:.4g}, {at_y:.4g}")
    dot: dict[str, Any] = {"s": 22, "alpha": 0.55, "linewidths": 0}
    axes.scatter(x, y, color=palette.dot, label="a configuration", **dot)
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
    directions = {metric.name: metric.direction for metric in result.metrics}
    x_label, y_label = (
        f"{short(name, 40)}, adjusted mean ({directions[name]} is good)" for name in pair
    )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    figure.legend(loc="outside upper left", ncols=3, handletextpad=0.2)


# -- of a Pareto run


def _has_front(result: RunResult) -> bool:
    return result.front is not None and bool(result.front.points)


def _draw_front(figure: "Figure", palette: Palette, result: RunResult) -> None:
    """Draw the first two objectives of the front with intervals, dominated ones behind."""
    front = result.front
    assert front is not None  # noqa: S101 - has_plot was asked
    axes = figure.subplots()
    y, x = front.objectives[:2]
    behind = [(point.means[x], point.means[y]) for point in front.dominated]
    dot: dict[str, Any] = {"s": 14, "alpha": 0.45, "linewidths": 0}
    xs, ys = [x for x, _ in behind], [y for _, y in behind]
    axes.scatter(xs, ys, color=palette.dot, label="dominated", **dot)
    chosen = None if result.winner is None else result.winner.candidate_id
    chosen_points = [p for p in (*front.points, *front.dominated) if p.candidate_id == chosen]
    for points, colour, marker, label in (
        (front.points, palette.winner, "o", "on the front"),
        (chosen_points, palette.default, "D", "recommended by the weights"),
    ):
        if points:
            _errorbars(
                axes,
                [point.means[x] for point in points],
                [point.means[y] for point in points],
                xerr=_reach([(p.means[x], p.lows[x], p.highs[x]) for p in points]),
                yerr=_reach([(p.means[y], p.lows[y], p.highs[y]) for p in points]),
                colour=colour,
                marker=marker,
                label=label,
                size=5,
                width=0.8,
            )
        for p in points:
            means = ", ".join(
                f"{short(name, 40)} {interval(p.means[name], p.lows[name], p.highs[name])}"
                for name in front.objectives
            )
            text = f"{short(named_label(p.label, p.candidate_id), 120)}: {means}"
            figures.tip(axes, p.means[x], p.means[y], text)
    more = len(front.objectives) - 2
    of_more = f" ({more} more in the table)" if more else ""
    axes.set_xlabel(f"{short(x, 40)}, 1 is good; {percent(front.level)} intervals{of_more}")
    axes.set_ylabel(f"{short(y, 40)}, 1 is good")
    figure.legend(loc="outside upper left", ncols=3, handletextpad=0.2, columnspacing=1.0)


def _draw_hypervolume(figure: "Figure", palette: Palette, result: RunResult) -> None:
    front = result.front
    assert front is not None  # noqa: S101 - has_plot was asked
    axes = figure.subplots()
    x = [point.generation for point in front.volume]
    volumes = [point.hypervolume for point in front.volume]
    axes.plot(x, volumes, color=palette.winner, marker=_marker(x), markersize=4.5)
    axes.set_ylabel("hypervolume")
    _generations(axes, 0, 0)
