"""The plots of a Pareto run: its front, and how much of the unit cube it came to dominate."""

from typing import TYPE_CHECKING

from convergence_core.result import Front, FrontPoint, RunResult
from tasks.report.figures import Palette
from tasks.report.phrases import percent, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_front(figure: "Figure", palette: Palette, result: RunResult) -> None:
    """Draw the first two objectives of the front with intervals, dominated ones behind."""
    front = result.front
    assert front is not None  # noqa: S101 - has_plot was asked
    axes = figure.subplots()
    y, x = front.objectives[:2]
    axes.scatter(
        [point.means[x] for point in front.dominated],
        [point.means[y] for point in front.dominated],
        s=14,
        color=palette.dot,
        alpha=0.45,
        linewidths=0,
        label="dominated",
    )
    _points(axes, front.points, (x, y), palette.winner, "on the front")
    chosen = None if result.winner is None else result.winner.candidate_id
    mine = [p for p in (*front.points, *front.dominated) if p.candidate_id == chosen]
    _points(axes, mine, (x, y), palette.default, "recommended by the weights", marker="D")
    more = len(front.objectives) - 2
    of_more = f" ({more} more in the table)" if more else ""
    axes.set_xlabel(f"{short(x, 40)}, 1 is good; {percent(front.level)} intervals{of_more}")
    axes.set_ylabel(f"{short(y, 40)}, 1 is good")
    figure.legend(loc="outside upper left", ncols=3, handletextpad=0.2, columnspacing=1.0)


def draw_hypervolume(figure: "Figure", palette: Palette, result: RunResult) -> None:
    """Draw the hypervolume by generation."""
    front = result.front
    assert front is not None  # noqa: S101 - has_plot was asked
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - takes half a second

    axes = figure.subplots()
    axes.plot(
        [point.generation for point in front.volume],
        [point.hypervolume for point in front.volume],
        color=palette.winner,
        marker="o" if len(front.volume) <= 40 else "",
        markersize=4.5,
    )
    axes.set_ylabel("hypervolume")
    axes.set_xlabel("generation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def has_front(front: Front | None) -> bool:
    """Whether there is a front to draw."""
    return front is not None and bool(front.points)


def _points(
    axes: "Axes",
    points: "tuple[FrontPoint, ...] | list[FrontPoint]",
    pair: tuple[str, str],
    colour: str,
    label: str,
    *,
    marker: str = "o",
) -> None:
    if not points:
        return
    x, y = pair

    def reach(name: str) -> tuple[list[float], list[float]]:
        below = [max(0.0, point.means[name] - point.lows[name]) for point in points]
        above = [max(0.0, point.highs[name] - point.means[name]) for point in points]
        return below, above

    axes.errorbar(
        [point.means[x] for point in points],
        [point.means[y] for point in points],
        xerr=reach(x),
        yerr=reach(y),
        color=colour,
        ecolor=colour,
        fmt=marker,
        markersize=5,
        elinewidth=0.8,
        capsize=0,
        label=label,
    )
