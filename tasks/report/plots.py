"""Plots of a report, each declared once with its data and encoding."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from convergence_core.explanation.records import Effect, EffectPoint
from convergence_core.records import Role
from convergence_core.result import CurvePoint, Estimate, FrontPoint, RunResult
from convergence_core.result.number_text import interval, percent
from tasks.report.blocks import Axis, Layer, Plot, Point
from tasks.report.phrases import best_label, clean, estimate, named_label, short

PlotName: TypeAlias = Literal["estimates", "learning_curve", "tradeoffs", "front", "shares"]

MAX_EFFECTS = 24
"""Maximum parameters in plots, those with the largest shares first."""
MAX_SHARES = 12
"""Maximum rows of parameters in the plot of shares."""
_MAX_CHOICES = 10
_ROLES: Mapping[Role, str] = {
    "holdout": "held-out\ncases\n(measured)",
    "fresh": "search cases,\nrepeated\n(measured)",
    "search": "search\n(posterior,\nbiased)",
}


def plots_of(result: RunResult, *names: PlotName) -> tuple[Plot, ...]:
    """Return plots by name, without those that would be empty."""
    declared: Mapping[PlotName, Callable[[RunResult], Plot | None]] = {
        "estimates": _estimates,
        "shares": _shares,
        "front": _front,
        "tradeoffs": _tradeoffs,
        "learning_curve": lambda result: learning_curve(result.curve, holdout_of(result)),
    }
    plots = (declared[name](result) for name in names)
    return tuple(plot for plot in plots if plot is not None and has_points(plot))


def has_points(plot: Plot) -> bool:
    """Return whether a plot has points."""
    return any(layer.points for layer in plot.layers)


# -- estimates


def _estimates(result: RunResult) -> Plot | None:
    if result.winner is None:
        return None
    name = best_label(result)
    reports = {name: result.best}
    if not result.best_is_baseline and result.baseline is not None:
        reports["default"] = result.baseline
    roles = [role for role in _ROLES if any(r and r.estimate(role) for r in reports.values())]
    layers = []
    for i, (label, report) in enumerate(reports.items()):
        shift = 0.0 if len(reports) == 1 else (-0.16, 0.16)[i]
        points = [
            Point(
                x=value.mean,
                y=y + shift,
                x_ends=(value.low, value.high),
                tip=f"{label}, {' '.join(_ROLES[role].split())}: {estimate(value)}",
            )
            for y, role in enumerate(roles)
            if report is not None and (value := report.estimate(role)) is not None
        ]
        look = Layer(points=tuple(points), label=label)
        layers.append(replace(look, colour="default", shape="rect") if i else look)
    return Plot(
        name="estimates",
        title="Mean rewards with their intervals",
        x=Axis(title=f"mean reward, with {percent(result.level)} intervals"),
        y=Axis(names=tuple(_ROLES[role] for role in roles)),
        layers=tuple(layers),
        height=2.5,
    )


# -- the course of the search


def holdout_of(result: RunResult) -> Estimate | None:
    """Return the final test's held-out estimate of the recommended configuration."""
    return None if result.winner is None else result.winner.holdout


def learning_curve(curve: Sequence[CurvePoint], holdout: Estimate | None = None) -> Plot:
    """Return the plot of the recommendation's reward after each generation.

    Args:
        curve: points of the generations.
        holdout: held-out estimate of the recommended configuration; ``None`` if not measured.
    """
    known = tuple(
        Point(
            x=point.generation,
            y=point.best_mean,
            y_ends=(point.low, point.high),
            tip=f"generation {point.generation}: "
            f"{interval(point.best_mean, point.low, point.high)}, recommended so far",
        )
        for point in curve
        if point.best_mean is not None and point.low is not None and point.high is not None
    )
    averages = tuple(
        Point(x=p.generation, y=p.asked_mean) for p in curve if p.asked_mean is not None
    )
    layers = [
        Layer(points=known, mark="band"),
        Layer(
            points=tuple(replace(point, y_ends=None) for point in known),
            mark="line",
            label="recommended so far (search)",
        ),
        Layer(
            points=averages,
            mark="line",
            colour="dot",
            is_dashed=True,
            label="average of the generation (search)",
        ),
    ]
    if holdout is not None:
        last = max((point.generation for point in curve), default=0)
        end = Point(
            x=last + 0.05 * max(last, 8),
            y=holdout.mean,
            y_ends=(holdout.low, holdout.high),
            tip=f"held-out cases: {estimate(holdout)}",
        )
        label = "recommended, held-out cases"
        layers.append(Layer(points=(end,), colour="ink", shape="diamond", label=label))
    return Plot(
        name="learning_curve",
        title="Mean reward by generation",
        x=_generations(curve),
        y=Axis(title="mean reward"),
        layers=tuple(layers),
    )


def _generations(curve: Sequence[CurvePoint]) -> Axis:
    """Return the axis of generations, with a single one in the middle."""
    axis = Axis(title="generation", kind="whole")
    if len(curve) != 1:
        return axis
    return replace(axis, low=curve[0].generation - 1, high=curve[0].generation + 1)


# -- trade-offs


def tradeoff_metrics(result: RunResult) -> tuple[str, str] | None:
    """Return the two metrics of the trade-off plot, (x, y); ``None`` if there are fewer.

    y is the metric of the largest weight, x the next; metrics without weight follow in order.
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


def _tradeoffs(result: RunResult) -> Plot | None:
    pair = tradeoff_metrics(result)
    if pair is None:
        return None

    def points(name: str, means: Mapping[str, float], candidate_id: str) -> tuple[Point, ...]:
        if not means.keys() >= set(pair):
            return ()
        x, y = (means[metric] for metric in pair)
        tip = f"{short(name, 120)}: {x:.4g}, {y:.4g}"
        return (Point(x=x, y=y, tip=tip, candidate_id=candidate_id),)

    special = [report for report in (result.best, result.baseline) if report is not None]
    ids = {report.candidate_id for report in special}
    others = tuple(
        point
        for row in result.leaderboard
        if row.candidate_id not in ids
        for point in points(
            named_label(row.label, row.candidate_id), row.metrics, row.candidate_id
        )
    )
    layers = [Layer(points=others, colour="dot", weight="faint", label="a configuration")]
    for report in reversed(special):
        is_found = report is result.best
        if not is_found and result.best_is_baseline:
            continue
        label = best_label(result) if is_found else "default"
        place = points(label, report.metrics.get("search", {}), report.candidate_id)
        look = Layer(points=place, weight="strong", label=label)
        layers.append(look if is_found else replace(look, colour="default", shape="rect"))
    directions = {metric.name: metric.direction for metric in result.metrics}
    x, y = (
        Axis(title=f"{short(name, 40)}, adjusted mean ({directions[name]} is good)")
        for name in pair
    )
    return Plot(
        name="tradeoffs",
        title="Two metrics of each configuration",
        x=x,
        y=y,
        layers=tuple(layer for layer in layers if layer.points),
        height=3.1,
    )


def _front(result: RunResult) -> Plot | None:
    """Return the plot of the front's first two objectives, with dominated points faint."""
    front = result.front
    if front is None or not front.points:
        return None
    y, x = front.objectives[:2]

    def points(members: Iterable[FrontPoint], *, has_ends: bool = True) -> tuple[Point, ...]:
        return tuple(
            Point(
                x=p.means[x],
                y=p.means[y],
                x_ends=(p.lows[x], p.highs[x]) if has_ends else None,
                y_ends=(p.lows[y], p.highs[y]) if has_ends else None,
                tip=f"{short(named_label(p.label, p.candidate_id), 120)}: "
                + ", ".join(
                    f"{short(name, 40)} {interval(p.means[name], p.lows[name], p.highs[name])}"
                    for name in front.objectives
                ),
                candidate_id=p.candidate_id,
            )
            for p in members
        )

    chosen = None if result.winner is None else result.winner.candidate_id
    recommended = [p for p in (*front.points, *front.dominated) if p.candidate_id == chosen]
    behind = points(front.dominated, has_ends=False)
    layers = (
        Layer(points=behind, colour="dot", weight="faint", label="dominated"),
        Layer(points=points(front.points), label="on the front"),
        Layer(
            points=points(recommended),
            colour="default",
            shape="diamond",
            label="recommended by the weights",
        ),
    )
    more = len(front.objectives) - 2
    of_more = f" ({more} more in the table)" if more else ""
    return Plot(
        name="front",
        title="The front of trade-offs with its intervals",
        x=Axis(title=f"{short(x, 40)}, 1 is good; {percent(front.level)} intervals{of_more}"),
        y=Axis(title=f"{short(y, 40)}, 1 is good"),
        layers=tuple(layer for layer in layers if layer.points),
        height=3.3,
    )


# -- parameters


def _shares(result: RunResult) -> Plot | None:
    """Return the plot of shares of the variance; insignificant ones are hollow."""
    effects = [
        (effect.parameter, effect.share, effect.share_low, effect.share_high, effect.is_sure)
        for effect in result.effects
    ]
    surface = None if result.explanation is None else result.explanation.surface
    pairs = [
        (f"{short(a, 16)} with {short(b, 16)}", pair.share, pair.low, pair.high, True)
        for pair in (() if surface is None else surface.interactions)
        if pair.is_sure
        for a, b in [pair.parameters]
    ]
    rows = sorted([*effects[:MAX_SHARES], *pairs], key=lambda row: -row[1])
    if not rows:
        return None
    sure, unsure = (
        tuple(
            Point(
                x=100 * share,
                y=y,
                x_ends=(100 * low, 100 * high),
                tip=f"{short(name, 60)}: {100 * share:.0f} % "
                f"[{100 * low:.0f}, {100 * high:.0f}] of the variance",
            )
            for y, (name, share, low, high, row_is_sure) in enumerate(rows)
            if row_is_sure is is_sure
        )
        for is_sure in (True, False)
    )
    return Plot(
        name="shares",
        title="Shares of the variance",
        x=Axis(title="share of the variance between configurations, %", low=0),
        y=Axis(names=tuple(short(name, 36) for name, *_ in rows)),
        layers=(Layer(points=sure), Layer(points=unsure, colour="dot", is_hollow=True)),
        height=0.9 + 0.24 * len(rows),
    )


def parameter_plots(result: RunResult) -> tuple[Plot, ...]:
    """Return one plot per parameter with two or more values, on one scale of rewards."""
    effects = [effect for effect in result.effects if len(effect.points) > 1]
    if not effects:
        return ()
    points = [point for effect in effects for point in effect.points]
    low, high = min(point.low for point in points), max(point.high for point in points)
    margin = 0.06 * max(high - low, 0.01)
    rewards = Axis(low=low - margin, high=high + margin)
    return tuple(
        (_number if effect.kind == "number" else _choice)(effect, f"effect{i}", rewards)
        for i, effect in enumerate(effects)
    )


def _number(effect: Effect, name: str, rewards: Axis) -> Plot:
    points = [
        (Point(x=p.x, y=p.mean, y_ends=(p.low, p.high)), p)
        for p in effect.points
        if p.x is not None
    ]
    line = tuple(point for point, _ in points)
    ends = [point.x for point in line[:: len(line) - 1 or 1]]
    dots = [(replace(point, y_ends=None, tip=_tip(p)), p) for point, p in points]
    look = Layer(points=line, colour=_colour(effect))
    return Plot(
        name=name,
        title=f"Mean reward by {clean(effect.parameter)}",
        x=Axis(kind="log" if effect.log else "number"),
        y=rewards,
        layers=(
            _average([Point(x=x, y=effect.average) for x in ends]),
            replace(look, mark="band"),
            replace(look, mark="line", points=tuple(replace(p, y_ends=None) for p in line)),
            *_dots(look, dots),
        ),
        heading=short(effect.parameter, 34),
        height=2.3,
    )


def _choice(effect: Effect, name: str, rewards: Axis) -> Plot:
    values = _extremes(effect.points)
    dots = [
        (Point(x=p.mean, y=row, x_ends=(p.low, p.high), tip=_tip(p)), p)
        for row, p in enumerate(values)
    ]
    ends = (-0.5, len(values) - 0.5)
    more = len(effect.points) - len(values)
    return Plot(
        name=name,
        title=f"Mean reward by {clean(effect.parameter)}",
        x=rewards,
        y=Axis(names=tuple(f"{short(p.label, 16)} ({p.n_candidates:,})" for p in values)),
        layers=(
            _average([Point(x=effect.average, y=y) for y in ends]),
            *_dots(Layer(points=(), colour=_colour(effect)), dots),
        ),
        heading=short(effect.parameter, 34) + (f" (and {more} more)" if more else ""),
        height=2.3,
    )


def _average(points: Sequence[Point]) -> Layer:
    return Layer(points=tuple(points), mark="line", colour="muted", weight="faint", is_dashed=True)


def _dots(look: Layer, dots: Sequence[tuple[Point, EffectPoint]]) -> Iterable[Layer]:
    """Yield the points, hollow for values that no configuration tried."""
    for is_hollow in (False, True):
        points = tuple(point for point, p in dots if (p.n_candidates == 0) is is_hollow)
        if points:
            yield replace(look, points=points, is_hollow=is_hollow)


def _tip(point: EffectPoint) -> str:
    return f"{short(point.label, 80)}: {interval(point.mean, point.low, point.high)}"


def _extremes(points: Sequence[EffectPoint]) -> list[EffectPoint]:
    """Return all points; of many, only the highest and the two lowest mean rewards."""
    if len(points) <= _MAX_CHOICES:
        return list(points)
    ordered = sorted(points, key=lambda point: -point.mean)
    return [*ordered[: _MAX_CHOICES - 2], *ordered[-2:]]


def _colour(effect: Effect) -> Literal["winner", "dot"]:
    return "winner" if effect.is_sure else "dot"
