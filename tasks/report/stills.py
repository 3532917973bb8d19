"""Still pictures of plots, drawn by matplotlib."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from convergence_core.result import RunResult
from tasks.report import figures
from tasks.report.blocks import MOST_MARKED, Axis, Layer, Plot
from tasks.report.figures import COLOURS
from tasks.report.plots import PlotName, holdout_of, learning_curve, parameter_plots, plots_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PNG_SIZE = (6.4, 3.2)
_NEEDS: Mapping[PlotName, str] = {
    "estimates": "a recommended configuration",
    "learning_curve": "a generation after which something was known",
    "tradeoffs": "two metrics measured of one configuration",
    "front": "a Pareto run with a front",
    "shares": "an explanation of what the parameters do",
}
_SHAPES = {"circle": "o", "rect": "s", "diamond": "D"}
_SIZES = {"faint": 4.5, "plain": 5.5, "strong": 8.5}


def figure(plot: Plot) -> "Figure":
    """Return a plot as a figure."""
    width, height = (5.2, 3.2) if plot.heading else (_PNG_SIZE[0], plot.height)
    return figures.figure(partial(_draw, plot=plot), width=width, height=height)


def figure_of(result: RunResult, name: PlotName) -> "Figure":
    """Return a plot of the report as a light figure.

    Raises:
        ValueError: the result has no data for the plot.
    """
    plots = plots_of(result, name)
    if not plots:
        raise ValueError(
            f"the plot `{name}` needs {_NEEDS[name]}, which this result does not hold"
        )
    return figure(plots[0])


def parameter_figure(result: RunResult, parameter: str) -> "Figure":
    """Return the plot of one parameter as a light figure.

    Raises:
        ValueError: the parameter is unknown, or has only one value.
    """
    names = [effect.parameter for effect in result.effects if len(effect.points) > 1]
    if parameter not in names:
        raise ValueError(
            f"`parameter` must be one that took two values, but got {parameter!r}. "
            f"Known: {', '.join(names) or 'none'}."
        )
    return figure(parameter_plots(result)[names.index(parameter)])


def learning_curve_png(result: RunResult) -> bytes:
    """Return the learning curve as a small PNG file (at most 40 kB), for Prefect's artifacts."""
    plot = learning_curve(result.curve, holdout_of(result))
    return figures.png(figure(replace(plot, height=_PNG_SIZE[1])))


def _draw(figure: "Figure", plot: Plot) -> None:
    axes = figure.subplots()
    for layer in plot.layers:
        _draw_layer(axes, layer)
    _set_axis(axes, plot.x, "x")
    _set_axis(axes, plot.y, "y")
    axes.set_title(plot.heading)
    labels = [layer.label for layer in plot.layers if layer.label]
    if len(labels) > 1:
        n = 3 if max(map(len, labels)) < 27 else 2
        figure.legend(loc="outside upper left", ncols=n, handlelength=1.6, columnspacing=1.2)


def _draw_layer(axes: "Axes", layer: Layer) -> None:
    colour, points = COLOURS[layer.colour], layer.points
    x, y = [point.x for point in points], [point.y for point in points]
    on_x = [(point.y, *point.x_ends) for point in points if point.x_ends]
    on_y = [(point.x, *point.y_ends) for point in points if point.y_ends]
    if layer.mark == "band":
        _, low, high = zip(*on_y, strict=True) if on_y else ((), (), ())
        axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
        return
    width = 0.8 if on_x and on_y else 1.8
    if on_x:
        axes.hlines(*zip(*on_x, strict=True), color=colour, linewidth=width)
    if on_y:
        axes.vlines(*zip(*on_y, strict=True), color=colour, linewidth=width)
    is_dots, is_faint = layer.mark == "dots", layer.weight == "faint"
    is_marked = is_dots or (
        layer.mark == "line" and len(points) <= MOST_MARKED and any(p.tip for p in points)
    )
    axes.plot(
        x,
        y,
        color=colour,
        alpha=0.5 if is_dots and is_faint else 1,
        label=layer.label or None,
        linestyle="none" if is_dots else (0, (4, 2)) if layer.is_dashed else "solid",
        linewidth=0.9 if is_faint else 1.4 if layer.is_dashed else 1.8,
        marker=_SHAPES[layer.shape] if is_marked else "",
        markersize=_SIZES[layer.weight],
        markerfacecolor=COLOURS["paper"] if layer.is_hollow else colour,
        markeredgewidth=0 if is_faint else None,
        zorder=3 if is_dots and not is_faint else 2,
    )


def _set_axis(axes: "Axes", declared: Axis, side: Literal["x", "y"]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - takes half a second

    axis = axes.xaxis if side == "x" else axes.yaxis
    set_limits = axes.set_xlim if side == "x" else axes.set_ylim
    axis.set_label_text(declared.title)
    if declared.names:
        n = len(declared.names)
        axis.set_ticks(range(n), declared.names)
        set_limits(*((-0.6, n - 0.4) if side == "x" else (n - 0.4, -0.6)))
        axes.grid(visible=False, axis=side)
        axes.tick_params(axis=side, labelcolor=COLOURS["ink"], length=0)
        return
    if declared.kind == "whole":
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    elif declared.kind == "log":
        _set_log(axes)
    if declared.low is not None or declared.high is not None:
        set_limits(declared.low, declared.high)


def _set_log(axes: "Axes") -> None:
    """Make the x axis logarithmic with few plain numbers: labels are drawn without markup."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415 - as above

    low, high = axes.dataLim.intervalx
    axes.set_xscale("log")
    steps = (1.0, 2.0, 5.0) if math.log10(high / low) < 2 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
