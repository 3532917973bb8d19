"""The front of a Pareto run: which candidates, how sure, and how it grew."""

from typing import TYPE_CHECKING

import numpy as np

from convergence_core.objective.pareto import dominated, hypervolume
from convergence_core.result import Front, FrontPoint, RunResult, VolumePoint
from tasks.report import phrases
from tasks.report.blocks import Block, Grid, Heading, Inline, Paragraph, PlotName, Plots
from tasks.report.phrases import clean, named_label, plural

if TYPE_CHECKING:
    from convergence_core.objective.goals import FittedGoals
    from convergence_core.search.sampler import SearchState
    from convergence_core.space import Space

MAX_DOMINATED = 200
"""Dominated candidates kept in a result."""
MAX_ROWS = 50
"""Rows shown of a long table."""


def pareto_front(
    goals: "FittedGoals | None", search: "SearchState", space: "Space", *, level: float
) -> Front | None:
    """Return the front of the candidates asked; ``None`` where none was sought or nothing is known.

    Args:
        goals: as the search's archive tells them.
        search: what was learned.
        space: of the run, for labels.
        level: of the intervals, in (0, 1).
    """
    members = [member for member in search.archive if member.n]
    if goals is None or not goals.objectives or not members:
        return None
    candidates = [member.candidate for member in members]
    ids = [candidate.candidate_id for candidate in candidates]
    places = goals.encoding.encode([candidate.params for candidate in candidates])
    means = goals.means(ids, places)  # (n, n_objectives)
    lows, highs = goals.intervals(ids, places, level)
    from convergence_core.objective.goals import PROBABLY  # noqa: PLC0415 - brings the posterior

    feasible = np.flatnonzero(goals.probability_feasible(ids, places) >= PROBABLY)
    is_behind = dominated(means[feasible])

    def points(rows: np.ndarray) -> tuple[FrontPoint, ...]:
        ordered = sorted(rows.tolist(), key=lambda i: (*(-means[i]).tolist(), ids[i]))
        return tuple(
            FrontPoint(
                candidate_id=ids[i],
                label=space.label(candidates[i].params),
                params=dict(candidates[i].params),
                means=dict(zip(goals.objectives, means[i].tolist(), strict=True)),
                lows=dict(zip(goals.objectives, lows[i].tolist(), strict=True)),
                highs=dict(zip(goals.objectives, highs[i].tolist(), strict=True)),
                n_cells=members[i].n,
            )
            for i in ordered
        )

    first = np.array([members[i].generation for i in feasible], dtype=np.intp)
    return Front(
        objectives=goals.objectives,
        level=level,
        points=points(feasible[~is_behind]),
        dominated=points(feasible[is_behind])[:MAX_DOMINATED],
        n_dominated=int(is_behind.sum()),
        n_infeasible=len(members) - len(feasible),
        volume=tuple(
            VolumePoint(
                generation=generation,
                hypervolume=hypervolume(means[feasible[first <= generation]]),
            )
            for generation in range(max(member.generation for member in members) + 1)
        ),
    )


def front_blocks(result: RunResult) -> list[Block]:
    """Return the section of the front; nothing without one."""
    front = result.front
    if front is None:
        return []
    said = (
        f"{plural(len(front.points), 'configuration')} of "
        f"{result.n_candidates:,} asked: by posterior means no other one is better in one metric "
        "and nowhere worse. Metrics are on their scales, from 0 (bad) to 1 (good), with "
        f"{phrases.percent(front.level)} intervals from search cells alone: biased upward by "
        "selection. Overlapping intervals mean that the front may hold others too. The "
        "recommendation is made by the metrics' weights."
    )
    if front.n_infeasible:
        said += (
            f" {plural(front.n_infeasible, 'configuration')} that probably "
            f"{'breaks' if front.n_infeasible == 1 else 'break'} a hard constraint too often "
            f"{'is' if front.n_infeasible == 1 else 'are'} left out."
        )
    names: list[PlotName] = ["front"]
    if len(front.volume) > 1:
        names.append("hypervolume")
    blocks: list[Block] = [
        Heading("The front of trade-offs"),
        Paragraph((said,), "note"),
        Plots(tuple(names)),
        _grid(result, front, front.points),
    ]
    if front.dominated:
        shown = front.dominated[:MAX_ROWS]
        folded = plural(front.n_dominated, "dominated configuration")
        if len(shown) < front.n_dominated:
            folded += f", the first {len(shown)}"
        blocks += [
            Paragraph(("Configurations that another one dominates:",), "note"),
            _grid(result, front, shown, folded=folded),
        ]
    rows: list[tuple[Inline, ...]] = [
        (str(point.generation), f"{point.hypervolume:.4f}") for point in front.volume
    ]
    volume = (
        "Hypervolume: the share of the unit cube of all these metrics that the configurations asked "
        "by a generation dominate, by what is believed of them at the end."
    )
    columns = ("generation", "hypervolume")
    folded = "Hypervolume by generation"
    return [
        *blocks,
        Paragraph((volume,), "note"),
        Grid(columns, tuple(rows[-MAX_ROWS:]), frozenset({0, 1}), folded=folded),
    ]


def _grid(
    result: RunResult, front: Front, points: tuple[FrontPoint, ...], *, folded: str = ""
) -> Grid:
    rows = []
    for point in points:
        cells: list[Inline] = [named_label(point.label, point.candidate_id) + _mark(result, point)]
        cells += [
            phrases.interval(point.means[name], point.lows[name], point.highs[name])
            for name in front.objectives
        ]
        rows.append((*cells, f"{point.n_cells:,}"))
    columns = ("configuration", *(clean(name) for name in front.objectives), "cells")
    return Grid(columns, tuple(rows), frozenset(range(1, len(columns))), folded=folded)


def _mark(result: RunResult, point: FrontPoint) -> str:
    marks = [
        name
        for name, report in (("recommended", result.winner), ("default", result.baseline))
        if report is not None and report.candidate_id == point.candidate_id
    ]
    return f" ({', '.join(marks)})" if marks else ""
