"""Racing as a table: which candidates earned how many cells, and when."""

from collections import defaultdict
from collections.abc import Mapping

from convergence_core.ports import Store
from convergence_core.result import RunResult
from tasks.report import phrases
from tasks.report.leaderboard import named

MAX_GENERATIONS = 8
"""Columns of single generations: the latest ones."""

_CELLS = """
SELECT candidate_id, generation, count(*) AS n FROM evaluations
WHERE run_id = $run AND role = 'search' AND status <> 'skipped' GROUP BY ALL
"""


def racing_rows(store: Store, result: RunResult, n: int = 20) -> list[dict[str, str]]:
    """Return the candidates with the most cells, most first, as texts by column.

    A cell is one candidate asked on one test case; a candidate starts with few and earns more as long
    as it may be the best. Candidates are those of the leaderboard.

    Args:
        store: that holds the run.
        result: of the run, also of one that goes on.
        n: rows at most.
    """
    cells: Mapping[str, dict[int, int]] = defaultdict(dict)
    for row in store.rows(_CELLS, {"run": result.run_id}):
        cells[str(row["candidate_id"])][int(str(row["generation"]))] = int(str(row["n"]))
    asked = sorted({generation for found in cells.values() for generation in found})
    shown = asked[-MAX_GENERATIONS:]
    racers = sorted(
        (row for row in result.leaderboard if row.candidate_id in cells),
        key=lambda row: (-sum(cells[row.candidate_id].values()), row.rank),
    )
    return [
        {
            "configuration": named(result, row),
            "first asked": f"generation {row.generation:02d}",
            **{
                f"g{generation:02d}": f"{cells[row.candidate_id].get(generation, 0) or ''}"
                for generation in shown
            },
            "cells": f"{sum(cells[row.candidate_id].values()):,}",
            "posterior mean": phrases.interval(row.mean, row.low, row.high),
        }
        for row in racers[:n]
    ]
