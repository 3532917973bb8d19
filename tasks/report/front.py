"""Front of a Pareto run: its candidates and their intervals."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from convergence_core.objective import dominated
from convergence_core.records import PROBABLY
from convergence_core.result import Front, FrontPoint, RunResult, number_text
from convergence_core.result.number_text import plural
from tasks.report import phrases
from tasks.report.blocks import Block, Columns, Grid, Heading, Inline, Paragraph, Plots, table
from tasks.report.phrases import clean, named_label
from tasks.report.plots import plots_of

if TYPE_CHECKING:
    from convergence_core.search.goals import FittedGoals
    from convergence_core.search.sampler import SearchState

MAX_DOMINATED = 200
"""Maximum dominated candidates in a result."""
MAX_ROWS = 50


def pareto_front(
    goals: "FittedGoals | None", search: "SearchState", names: Mapping[str, str], *, level: float
) -> Front | None:
    """Return the Pareto front of the evaluated candidates.

    Args:
        goals: goals fitted to the search's archive.
        search: state of the search.
        names: candidate → display name.
        level: probability of the intervals, in (0, 1).

    Returns:
        The front; ``None`` for a run without objectives or evaluations.
    """
    members = [member for member in search.archive if member.n]
    if goals is None or not goals.objectives or not members:
        return None
    candidates = [member.candidate for member in members]
    ids = [candidate.candidate_id for candidate in candidates]
    places = goals.encoding.encode([candidate.params for candidate in candidates])
    means = goals.means(ids, places)  # (n, n_objectives)
    lows, highs = goals.intervals(ids, places, level)
    feasible = np.flatnonzero(goals.probability_feasible(ids, places) >= PROBABLY)
    is_behind = dominated(means[feasible])

    def by_objective(values: np.ndarray) -> dict[str, float]:
        return dict(zip(goals.objectives, values.tolist(), strict=True))

    def points(rows: np.ndarray) -> tuple[FrontPoint, ...]:
        ordered = sorted(rows.tolist(), key=lambda i: (*(-means[i]).tolist(), ids[i]))
        return tuple(
            FrontPoint(
                candidate_id=ids[i],
                label=names[ids[i]],
                params=dict(candidates[i].params),
                means=by_objective(means[i]),
                lows=by_objective(lows[i]),
                highs=by_objective(highs[i]),
                n_cells=members[i].n,
            )
            for i in ordered
        )

    return Front(
        objectives=goals.objectives,
        level=level,
        points=points(feasible[~is_behind]),
        dominated=points(feasible[is_behind])[:MAX_DOMINATED],
        n_dominated=int(is_behind.sum()),
        n_infeasible=len(members) - len(feasible),
    )


def front_blocks(result: RunResult) -> list[Block]:
    """Return the section on the front; empty without one."""
    front = result.front
    if front is None:
        return []
    blocks: list[Block] = [
        Heading("The front of trade-offs"),
        Paragraph((front_sentence(front, result.n_candidates),), "note"),
        Plots(plots_of(result, "front")),
        _grid(result, front, front.points),
    ]
    if front.dominated:
        shown = front.dominated[:MAX_ROWS]
        folded = plural(front.n_dominated, "dominated configuration")
        if len(shown) < front.n_dominated:
            folded += f", the first {len(shown)}"
        note = Paragraph(("Configurations that another one dominates:",), "note")
        blocks += [note, _grid(result, front, shown, folded=folded)]
    return blocks


def front_sentence(front: Front, n_candidates: int) -> str:
    """Return a sentence on the front and its assumptions."""
    text = (
        f"{plural(len(front.points), 'configuration')} of "
        f"{n_candidates:,}: by posterior means no other is better in one metric and no worse in all. "
        f"Metrics range from 0 (bad) to 1 (good), with {number_text.percent(front.level)} intervals from "
        "the search's evaluations alone: biased upward by selection. If intervals overlap, the front may "
        "hold others too. The weights of the metrics choose the recommendation."
    )
    if front.n_infeasible:
        breaks, are = ("breaks", "is") if front.n_infeasible == 1 else ("break", "are")
        text += (
            f" {plural(front.n_infeasible, 'configuration')} that probably {breaks} a hard "
            f"constraint too often {are} left out."
        )
    return text


def _grid(
    result: RunResult, front: Front, points: tuple[FrontPoint, ...], *, folded: str = ""
) -> Grid:
    def name(point: FrontPoint) -> Inline:
        special = phrases.special(result, point.candidate_id)
        return named_label(point.label, point.candidate_id) + special

    def of(metric: str) -> Callable[[FrontPoint], Inline]:
        return lambda p: number_text.interval(p.means[metric], p.lows[metric], p.highs[metric])

    columns: Columns[FrontPoint] = {
        "configuration": name,
        **{clean(metric): of(metric) for metric in front.objectives},
        "evaluations": lambda point: f"{point.n_cells:,}",
    }
    return table(points, columns, numeric=[*columns][1:], folded=folded)
