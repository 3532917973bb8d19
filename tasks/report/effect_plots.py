"""Plots of parameters' effects: shares of the variance, and one small plot each."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from convergence_core.explanation.records import Effect, EffectPoint
from convergence_core.result import RunResult
from convergence_core.result.number_text import interval
from tasks.report import figures
from tasks.report.figures import Palette
from tasks.report.phrases import clean, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_EFFECTS = 24
"""Parameters plotted; those of the largest shares come first."""
MAX_SHARES = 12
"""Rows of parameters and of pairs in the plot of shares."""

_MAX_CHOICES = 10

Row = tuple[str, float, float, float, bool]
"""Name, share, ends of its interval, whether it is sure."""


# -- shares of the variance


def has_shares(result: RunResult) -> bool:
    """Return whether the result tells shares."""
    return bool(_shares(result))


def shares_height(result: RunResult) -> float:
    """Return the plot's height in inches."""
    return 0.9 + 0.24 * len(_shares(result))


def draw_shares(figure: "Figure", palette: Palette, result: RunResult) -> None:
    """Draw each share with its interval; hollow where it is not sure."""
    rows = _shares(result)
    axes = figure.subplots()
    for y, (name, share, low, high, sure) in enumerate(rows):
        ends = f"{100 * share:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
        figures.tip(axes, 100 * share, y, f"{short(name, 60)}: {ends} of the variance")
        colour = palette.winner if sure else palette.dot
        axes.plot([100 * low, 100 * high], [y, y], color=colour, linewidth=1.8)
        dot = {**_dots(colour, colour if sure else palette.paper), "markersize": 6}
        axes.plot([100 * share], [y], **dot, clip_on=False, zorder=3)
    axes.set_yticks(range(len(rows)), [short(name, 36) for name, *_ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=palette.ink, length=0)
    axes.set_xlabel("share of the variance between configurations, %")


def _shares(result: RunResult) -> list[Row]:
    effects: list[Row] = [
        (effect.parameter, effect.share, effect.share_low, effect.share_high, effect.is_sure)
        for effect in result.effects
        if effect.share is not None
        and effect.share_low is not None
        and effect.share_high is not None
    ]
    surface = None if result.explanation is None else result.explanation.surface
    pairs: list[Row] = [
        (f"{short(a, 16)} with {short(b, 16)}", pair.share, pair.low, pair.high, True)
        for pair in (() if surface is None else surface.interactions)
        if pair.is_sure
        for a, b in [pair.parameters]
    ]
    return sorted([*effects[:MAX_SHARES], *pairs], key=lambda row: -row[1])


# -- one parameter


def effect_svgs(result: RunResult) -> list[str]:
    """Return one SVG element per parameter, on one scale of rewards."""
    effects = [effect for effect in result.effects if len(effect.points) > 1][:MAX_EFFECTS]
    limits = _limits(effects)
    pictures = []
    for i, effect in enumerate(effects):
        fill = partial(_draw_effect, effect=effect, limits=limits)
        title = f"Mean reward by {clean(effect.parameter)}"
        picture = figures.svg(fill, name=f"effect{i}", title=title, width=3.1, height=2.3)
        pictures.append(picture)
    return pictures


def effect_figure(result: RunResult, parameter: str) -> "Figure":
    """Return the plot of one parameter as a figure, light.

    Raises:
        ValueError: the parameter is unknown, or took one value only.
    """
    effects = {effect.parameter: effect for effect in result.effects if len(effect.points) > 1}
    if parameter not in effects:
        raise ValueError(
            f"`parameter` must be one that took two values, but got {parameter!r}. "
            f"Known: {', '.join(effects) or 'none'}."
        )
    limits = _limits(list(effects.values()))
    fill = partial(_draw_effect, effect=effects[parameter], limits=limits)
    return figures.figure(fill, width=5.2, height=3.2)


def _limits(effects: Sequence[Effect]) -> tuple[float, float]:
    """Return ends of the axis of rewards that holds all effects."""
    points = [point for effect in effects for point in effect.points]
    low, high = min(point.low for point in points), max(point.high for point in points)
    margin = 0.06 * max(high - low, 0.01)
    return low - margin, high + margin


def _draw_effect(
    figure: "Figure", palette: Palette, effect: Effect, limits: tuple[float, float]
) -> None:
    draw = _draw_number if effect.kind == "number" else _draw_choice
    draw(figure.subplots(), palette, effect, limits)


def _draw_number(
    axes: "Axes", palette: Palette, effect: Effect, limits: tuple[float, float]
) -> None:
    points = [point for point in effect.points if point.x is not None]
    x = [point.x for point in points if point.x is not None]
    is_evaluated = [point.n_candidates > 0 for point in points]
    colour = _colour(palette, effect)
    if effect.average is not None:
        axes.axhline(effect.average, color=palette.muted, linewidth=0.9, linestyle=(0, (2, 2)))
    lows, highs = [point.low for point in points], [point.high for point in points]
    axes.fill_between(x, lows, highs, color=colour, alpha=0.18, linewidth=0)
    axes.plot(x, [point.mean for point in points], color=colour)
    _tell(axes, zip(points, x, strict=True))
    for was_asked, face in ((True, colour), (False, palette.paper)):
        some = [i for i, is_asked in enumerate(is_evaluated) if is_asked is was_asked]
        means = [points[i].mean for i in some]
        axes.plot([x[i] for i in some], means, **_dots(colour, face), linestyle="none")
    if effect.log:
        _log_axis(axes, x)
    axes.set_ylim(*limits)
    axes.margins(x=0.05)
    axes.set_title(short(effect.parameter, 34))


def _tell(
    axes: "Axes", places: Iterable[tuple[EffectPoint, float]], *, on_y: bool = False
) -> None:
    """Give each point its tip; ``on_y``: values run down the figure."""
    for point, value in places:
        x, y = (point.mean, value) if on_y else (value, point.mean)
        text = f"{short(point.label, 80)}: {interval(point.mean, point.low, point.high)}"
        figures.tip(axes, x, y, text)


def _log_axis(axes: "Axes", x: Sequence[float]) -> None:
    """Make the axis logarithmic, with few plain numbers at it: names are drawn without markup."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415 - as above

    axes.set_xscale("log")
    decades = math.log10(max(x) / min(x)) if x else 0.0
    steps = (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_choice(
    axes: "Axes", palette: Palette, effect: Effect, limits: tuple[float, float]
) -> None:
    points = _extremes(effect.points)
    colour = _colour(palette, effect)
    if effect.average is not None:
        axes.axvline(effect.average, color=palette.muted, linewidth=0.9, linestyle=(0, (2, 2)))
    for row, point in enumerate(points):
        face = colour if point.n_candidates else palette.paper
        axes.plot([point.low, point.high], [row, row], color=colour, linewidth=1.6)
        axes.plot([point.mean], [row], **_dots(colour, face))
        axes.annotate(
            f"{point.n_candidates:,}",
            (point.high, row),
            xytext=(4, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=7.5,
            color=palette.muted,
        )
    _tell(axes, [(point, row) for row, point in enumerate(points)], on_y=True)
    axes.set_yticks(range(len(points)), [short(point.label, 16) for point in points])
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.set_xlim(limits[0], limits[1] + 0.12 * (limits[1] - limits[0]))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=palette.ink, length=0)
    more = len(effect.points) - len(points)
    axes.set_title(short(effect.parameter, 34) + (f" (and {more} more)" if more else ""))


def _extremes(points: Sequence[EffectPoint]) -> list[EffectPoint]:
    """Return all points, or of many those of the highest mean rewards and the lowest."""
    if len(points) <= _MAX_CHOICES:
        return list(points)
    ordered = sorted(points, key=lambda point: -point.mean)
    return [*ordered[: _MAX_CHOICES - 2], *ordered[-2:]]


def _colour(palette: Palette, effect: Effect) -> str:
    return palette.winner if effect.is_sure or effect.share is None else palette.dot


def _dots(colour: str, face: str) -> dict[str, Any]:
    return {"color": colour, "marker": "o", "markersize": 4.5, "markerfacecolor": face}
