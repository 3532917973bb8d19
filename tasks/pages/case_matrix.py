"""Matrix of cases and candidates, with paging, filters and search."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from convergence_core.errors import QueryError
from convergence_core.ports import RunRecord
from tasks.json_values import as_text
from tasks.pages.allocation import standings, tags_of
from tasks.pages.source import Page, PageSource, line_of
from tasks.report.evidence import OUTCOMES

ORDERS: Mapping[str, str] = {
    "all": "case_id",
    "failed": "n_failed DESC, case_id",
    "worst": "mean NULLS FIRST, case_id",
    "disagreement": "spread DESC NULLS LAST, case_id",
}
"""Filter → order of its cases."""
LONGEST_SEARCH = 500
_CASES = """
WITH found AS ({found})
SELECT case_id, CASE WHEN bool_or(role = 'holdout') THEN 'holdout' ELSE 'search' END AS role, avg(reward) AS mean, stddev_pop(reward) AS spread,
       count(*) FILTER (WHERE status <> 'ok') AS n_failed, count(*) OVER () AS n_all
FROM {outcomes} WHERE status <> 'skipped' AND case_id IN (SELECT case_id FROM found)
GROUP BY case_id {having} ORDER BY {order} LIMIT $n OFFSET $first
"""
_EVERY = "SELECT DISTINCT case_id FROM evaluations WHERE run_id = $run"
_HOLDING = """
  WITH texts AS (
    SELECT DISTINCT payload_sha256 FROM payloads
    WHERE run_id = $run
      AND (contains(lower(text), lower($search)) OR contains(lower(text), lower($escaped))))
  SELECT DISTINCT case_id FROM evaluations
  WHERE run_id = $run AND (
    contains(lower(case_id), lower($search))
    OR payload_sha256 IN (SELECT payload_sha256 FROM texts)
    OR request_sha256 IN (SELECT payload_sha256 FROM texts))
"""
_CELLS = f"""
SELECT candidate_id, case_id, avg(reward) AS reward, count(*) AS n,
       coalesce(min(status) FILTER (WHERE status <> 'ok'), 'ok') AS status, min(fault) AS fault
FROM {OUTCOMES} WHERE status <> 'skipped' AND case_id IN (SELECT unnest($cases))
  AND candidate_id IN (SELECT unnest($candidates))
GROUP BY candidate_id, case_id
"""  # noqa: S608 - constants
_SENT = """
WITH sent AS (
  SELECT case_id, min(request_sha256) AS payload_sha256 FROM evaluations
  WHERE run_id = $run AND case_id IN (SELECT unnest($cases)) GROUP BY case_id)
SELECT case_id, min(text) AS text FROM sent JOIN payloads USING (payload_sha256)
WHERE run_id = $run GROUP BY case_id
"""


def case_matrix(
    source: PageSource,
    record: RunRecord,
    *,
    order: str,
    search: str,
    case_from: int,
    n_cases: int,
    candidate_from: int,
    n_candidates: int,
) -> Page:
    """Return part of the matrix.

    Args:
        source: the store.
        record: row of the run.
        order: ``all``, ``failed``, ``worst`` or ``disagreement``.
        search: case-insensitive text in a case's id, prompts or answers; empty for all.
        case_from: index of the first case.
        n_cases: maximum cases.
        candidate_from: index of the first candidate.
        n_candidates: maximum candidates.

    Raises:
        QueryError: the filter is unknown, or the search too long.
    """
    if order not in ORDERS:
        raise QueryError(f"`filter` must be one of {', '.join(ORDERS)}.")
    if len(search) > LONGEST_SEARCH:
        raise QueryError(f"`search` must have at most {LONGEST_SEARCH} characters.")
    ranking = standings(source, record)
    shown = ranking[candidate_from:][:n_candidates]
    cases = _cases(source, record, order, search, n=n_cases, first=case_from)
    ids = [row["case_id"] for row in cases]
    cells = {
        (row["case_id"], row["candidate_id"]): row
        for row in source.rows(
            _CELLS,
            run=record.run_id,
            cases=ids,
            candidates=[row["candidate_id"] for row in shown],
        )
    }
    tags, titles = tags_of(source, record), _titles(source, record, ids)
    return {
        "n_cases": cases[0]["n_all"] if cases else 0,
        "n_candidates": len(ranking),
        "case_from": case_from,
        "candidate_from": candidate_from,
        "cases": [
            {
                "case_id": row["case_id"],
                "name": source.case_name(record, row["case_id"]),
                "role": row["role"],
                "title": titles.get(row["case_id"]) or row["case_id"],
                **{name: row[name] for name in ("mean", "spread", "n_failed")},
            }
            for row in cases
        ],
        "candidates": [
            {
                "candidate_id": row["candidate_id"],
                "name": row["name"],
                **{end: row[end] for end in ("mean", "low", "high")},
                "tags": tags.get(row["candidate_id"], []),
            }
            for row in shown
        ],
        "cells": [
            [_cell(cells.get((case_id, row["candidate_id"]))) for row in shown] for case_id in ids
        ],
    }


def _cases(
    source: PageSource, record: RunRecord, order: str, search: str, **part: int
) -> list[dict[str, Any]]:
    sql = _CASES.format(
        outcomes=OUTCOMES,
        found=_HOLDING if search else _EVERY,
        having="HAVING n_failed > 0" if order == "failed" else "",
        order=ORDERS[order],
    )
    # Stored contents are JSON unless they are plain strings, so quotes and line ends are escaped.
    escaped = json.dumps(search, ensure_ascii=False)[1:-1]
    parameters = {"search": search, "escaped": escaped} if search else {}
    return source.rows(sql, run=record.run_id, **part, **parameters)


def _titles(source: PageSource, record: RunRecord, ids: Sequence[str]) -> dict[str, str | None]:
    """Return case → its input on one line, or the request if the cases are unknown."""
    if not source.configuration(record).storage.keep_text:
        return {}
    known = source.cases(record)
    if known:
        return {
            case_id: line_of(as_text(known[case_id].input)) for case_id in ids if case_id in known
        }
    return {
        row["case_id"]: line_of(row["text"])
        for row in source.rows(_SENT, run=record.run_id, cases=list(ids))
    }


def _cell(row: Mapping[str, Any] | None) -> Page | None:
    if row is None:
        return None
    return {name: row[name] for name in ("reward", "status", "n", "fault")}
