"""Pictures: learning curves and the cost of choosing."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy.special import stdtrit

from benchmarks.optimizer.reporting import Results, curve
from benchmarks.optimizer.scaling import BatchCost

COLORS = ("#0b6e99", "#c8553d", "#6b8f3a", "#8a5a9e", "#b0892c", "#5f6b73", "#d1739f", "#3f9c8f")
"""Told apart with the common kinds of colour blindness, together with ``STYLES``."""
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)))
_INK = "#333333"
_LEVEL = 0.95
_LEAST_MS = 1.0
"""Where the picture of costs begins."""


def learning_curves(
    results: Results,
    opponents: Sequence[str],
    panels: Mapping[str, Sequence[str]],
    path: Path,
) -> None:
    """Draw mean regret against evaluations, one panel per set of tasks.

    Bands are 95 % intervals of the mean over seeds (Student's t).

    Args:
        results: the rows.
        opponents: in the order of the legend.
        panels: title → tasks.
        path: PNG or SVG to write.

    Raises:
        ValueError: nobody was run on all tasks of a panel.
    """
    figure = Figure(figsize=(5.4 * len(panels), 4.0), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (title, tasks) in zip(axes, panels.items(), strict=True):
        _frame(ax, f"{title}: {len(tasks)} tasks")
        ends: list[tuple[float, str, str]] = []
        top = 0.0
        for i, opponent in enumerate(opponents):
            points = curve(results, opponent, tasks)
            if not points:
                continue
            color, style = COLORS[i % len(COLORS)], STYLES[i % len(STYLES)]
            x = np.array([budget for budget, _ in points])
            y = 100 * np.array([estimate.mean for _, estimate in points])
            half = 100 * np.array([e.error * _t(e.n_seeds) for _, e in points])
            ax.plot(x, y, color=color, linestyle=style, linewidth=1.8, marker="o", markersize=3)
            ax.fill_between(x, y - half, y + half, color=color, alpha=0.14, linewidth=0)
            ends.append((float(y[-1]), opponent, color))
            top = max(top, float(np.nanmax(y + np.nan_to_num(half))))
        if not ends:
            raise ValueError(f"nobody was run on all {len(tasks)} tasks of `{title}`")
        ax.set_xlabel("evaluations", color=_INK)
        ax.set_xticks(results.budgets)
        ax.set_ylim(0, top * 1.05 or 1)
        _label_ends(ax, ends)
    axes[0].set_ylabel("normalised regret x 100  (0: best known)", color=_INK)
    _save(figure, path)


def scaling_curves(costs: Sequence[BatchCost], path: Path) -> None:
    """Draw CPU of one batch against observations, one panel per number of parameters.

    Lines are medians over windows of batches; what costs less than ``_LEAST_MS`` is not shown.

    Args:
        costs: all batches.
        path: PNG or SVG to write.
    """
    sizes = sorted({cost.n_parameters for cost in costs})
    opponents = list(dict.fromkeys(cost.opponent for cost in costs))
    figure = Figure(figsize=(4.6 * len(sizes), 3.8), layout="constrained")
    axes = figure.subplots(1, len(sizes), squeeze=False, sharey=True)[0]
    ends: list[list[tuple[float, str, str]]] = []
    for ax, size in zip(axes, sizes, strict=True):
        _frame(ax, f"{size} parameters")
        ends.append([])
        for i, opponent in enumerate(opponents):
            run = [c for c in costs if (c.opponent, c.n_parameters) == (opponent, size)]
            color = COLORS[i % len(COLORS)]
            for name, style in (("ask_ms", "-"), ("tell_ms", ":")):
                # The first batch observes nothing, and a logarithm has no place for it.
                x, y = _smoothed(run[1:], name)
                ax.plot(x, y, color=color, linestyle=style, linewidth=1.6)
                if len(y) and y[-1] >= _LEAST_MS:
                    label = opponent if name == "ask_ms" else f"{opponent}, tell"
                    ends[-1].append((float(y[-1]), label, color))
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("observations", color=_INK)
    axes[0].set_ylim(bottom=_LEAST_MS)
    axes[0].set_ylabel("CPU of one batch, ms  (solid: ask, dotted: tell)", color=_INK)
    # The axis is shared, so places are known when all panels are drawn.
    for ax, panel in zip(axes, ends, strict=True):
        _label_ends(ax, panel)
    _save(figure, path)


def _t(n_seeds: int) -> float:
    """Return Student's quantile; no interval is drawn for a single seed."""
    return float(stdtrit(n_seeds - 1, 0.5 + _LEVEL / 2)) if n_seeds > 1 else float("nan")


def _smoothed(run: Sequence[BatchCost], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return medians of windows that grow with the observations."""
    if not run:
        return np.empty(0), np.empty(0)
    n_windows = min(len(run), 24)
    edges = np.unique(np.geomspace(1, len(run) + 1, n_windows + 1).astype(int)) - 1
    parts = [run[a:b] for a, b in pairwise(edges)]
    x = np.array([np.median([c.n_observations for c in part]) for part in parts])
    y = np.array([np.median([getattr(c, name) for c in part]) for part in parts])
    return x, y


def _frame(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=10, color=_INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=_INK, labelsize=9)


def _label_ends(ax: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names beside the last points, moved apart where they would touch."""
    if not ends:
        return
    is_log = ax.get_yscale() == "log"
    low, high = (np.log10(ax.get_ylim()) if is_log else np.array(ax.get_ylim())).tolist()
    gap = 0.055
    places: list[float] = []
    ordered = sorted(ends)
    for value, _, _ in ordered:
        place = ((np.log10(value) if is_log else value) - low) / (high - low)
        places.append(max(place, places[-1] + gap) if places else place)
    # A stack that left the top goes down again as a whole.
    overshoot = max(0.0, places[-1] - 0.99)
    for place, (_, name, color) in zip(places, ordered, strict=True):
        ax.text(
            1.015, place - overshoot, name, transform=ax.transAxes, color=color, fontsize=9,
            va="center", clip_on=False,
        )  # fmt: skip


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
