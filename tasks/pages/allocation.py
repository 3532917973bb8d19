"""Allocation of cells to candidates, and their standings."""

import json
from typing import Any

import numpy as np

from convergence_core.ports import RunRecord
from tasks.pages.source import Page, PageSource
from tasks.report.evidence import OUTCOMES
from tasks.store.runtime.promotions import champion_of

_STANDINGS = """
SELECT c.candidate_id, c.generation, c.origin, c.params_json, c.parent_ids, s.rank, s.mean, s.low,
       s.high, s.level, s.cautious, s.feasible, coalesce(s.recommended, false) AS leads
FROM candidates c LEFT JOIN posteriors s USING (run_id, candidate_id)
WHERE c.run_id = $run ORDER BY s.rank NULLS LAST, c.generation, c.candidate_id
"""
_CELLS = f"""
WITH cells AS (
  SELECT candidate_id, case_id, count(*)::INTEGER AS n, avg(reward)::FLOAT AS reward
  FROM {OUTCOMES} WHERE role = 'search' AND status <> 'skipped'
  GROUP BY candidate_id, case_id),
cases AS (
  SELECT case_id, row_number() OVER (ORDER BY case_id)::INTEGER - 1 AS "case"
  FROM (SELECT DISTINCT case_id FROM cells)),
places AS (
  SELECT unnest($candidates) AS candidate_id,
         generate_subscripts($candidates, 1)::INTEGER - 1 AS candidate)
SELECT candidate, "case", n, reward
FROM cells JOIN cases USING (case_id) JOIN places USING (candidate_id)
"""  # noqa: S608 - constants
_CASES = """
SELECT DISTINCT case_id FROM evaluations
WHERE run_id = $run AND role = 'search' AND status <> 'skipped' ORDER BY case_id
"""


_COUNTS = ("candidate", "case", "n")
"""Integer columns, each ``(n_cells,)``."""


def standings(source: PageSource, record: RunRecord) -> list[dict[str, Any]]:
    """Return all candidates with names and newest posteriors, best first."""
    rows = source.rows(_STANDINGS, run=record.run_id)
    for row in rows:
        row["params"] = json.loads(row["params_json"])
    names = source.names(record, {row["candidate_id"]: row["params"] for row in rows})
    for row in rows:
        row["name"] = names[row["candidate_id"]]
    return rows


def tags_of(source: PageSource, record: RunRecord) -> dict[str, list[str]]:
    """Return candidate → its special roles, as in the report."""
    result, runtime = source.result(record), source.runtime()
    tags: dict[str, list[str]] = {}
    if result is not None:
        for role, report in result.roles.items():
            tags.setdefault(report.candidate_id, []).append(role)
    champion = None if runtime is None else champion_of(runtime, record.name)
    if champion is not None:
        tags.setdefault(champion.candidate_id, []).append("champion")
    return tags


def allocation(source: PageSource, record: RunRecord) -> Page:
    """Return the cells of the search as columns, with candidates best first."""
    order = standings(source, record)
    ids = [row["candidate_id"] for row in order]
    known = {"run": record.run_id, "candidates": ids}
    cells = source.store.columns(_CELLS, known) if ids else {}
    cases = [row["case_id"] for row in source.rows(_CASES, run=record.run_id)]
    reward = np.ma.filled(cells.get("reward", np.zeros(0)), np.nan)
    return {
        "candidates": [
            {"candidate_id": row["candidate_id"], "name": row["name"]} for row in order
        ],
        "cases": cases,
        "case_names": [source.case_name(record, case_id) for case_id in cases],
        **{
            name: np.ma.filled(cells.get(name, np.zeros(0, dtype=np.int32)), 0) for name in _COUNTS
        },
        "reward": np.round(reward.astype(np.float32), 3),  # (n_cells,)
    }
