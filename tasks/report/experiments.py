"""The raw results as files in the original's shapes: every candidate and every evaluation.

``score`` of a candidate is its posterior mean reward, as in the report: candidates were asked
different cases, so the plain means of the rows beside it, ``raw_mean_reward`` and those of metrics
under ``raw_metric.`` or ``raw_metrics``, do not compare.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from convergence_core.ports import Store
from convergence_core.records import Case, Json
from tasks.report import phrases
from tasks.store.tables.csv_cells import neutral_row

CELLS_AT_ONCE = 20_000
"""Evaluations held in memory while files are written."""

_CANDIDATES = """
SELECT c.candidate_id, c.generation, c.origin, c.params_json, l.rank,
       coalesce(l.recommended, false) AS recommended, l.posterior_mean, l.posterior_low,
       l.posterior_high, l.raw_mean_reward, coalesce(l.n_cases, 0) AS n_cases,
       coalesce(l.n_evaluations, 0) AS n_cells, coalesce(l.n_failed, 0) AS n_failed,
       (SELECT count(*) FROM evaluations e
        WHERE e.run_id = c.run_id AND e.candidate_id = c.candidate_id) AS n_rows
FROM candidates c LEFT JOIN leaderboard l USING (run_id, candidate_id)
WHERE c.run_id = $run
ORDER BY c.generation, l.rank NULLS LAST, c.candidate_id
"""

_METRICS = """
SELECT candidate_id, metric, avg(value) AS value
FROM metrics WHERE run_id = $run AND role = 'search' GROUP BY candidate_id, metric
"""

_EVALUATIONS = """
WITH texts AS (
  SELECT payload_sha256, min(text) AS text FROM payloads WHERE run_id = $run GROUP BY ALL)
SELECT e.candidate_id, e.case_id, e.replicate, e.role, e.generation, e.status, e.error_type,
       e.error, e.reward, e.metrics, e.latency_ms, e.cost_usd, epoch_us(e.started_at) AS started_us,
       p.text AS request, r.text AS response
FROM evaluations e
     LEFT JOIN texts p ON p.payload_sha256 = e.request_sha256
     LEFT JOIN texts r ON r.payload_sha256 = e.payload_sha256
WHERE e.run_id = $run AND e.candidate_id IN (SELECT unnest($candidates))
ORDER BY e.candidate_id, e.role <> 'search', e.role, e.generation, e.case_id, e.replicate
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One candidate, as the original's files show it."""

    candidate_id: str
    generation: int
    origin: str
    params: Mapping[str, Any]
    rank: int | None
    """From 1; ``None``: it has no reward."""
    recommended: bool
    score: float | None
    """Posterior mean reward; ``None``: it has no reward."""
    low: float | None
    """Lower end of the posterior's interval."""
    high: float | None
    raw_mean_reward: float | None
    """Mean reward over its own search cases, which other candidates were not asked."""
    n_cases: int
    """Distinct search cases with a reward."""
    n_cells: int
    n_failed: int
    n_rows: int
    """Evaluations of all roles, skipped ones included."""
    metrics: Mapping[str, float]


def experiments(
    store: Store, run_id: str, *, keep_all: bool, always: Sequence[str] = ()
) -> list[Experiment]:
    """Return a run's candidates by generation, the highest rank first.

    Args:
        store: where the run is kept.
        run_id: the run.
        keep_all: whether all are returned; otherwise each generation's first.
        always: candidates that are returned in any case.
    """
    metrics: dict[str, dict[str, float]] = {}
    for row in store.rows(_METRICS, {"run": run_id}):
        metrics.setdefault(str(row["candidate_id"]), {})[str(row["metric"])] = _float(row["value"])
    found = []
    seen: set[object] = set()
    for row in store.rows(_CANDIDATES, {"run": run_id}):
        candidate_id = str(row["candidate_id"])
        if keep_all or candidate_id in always or row["generation"] not in seen:
            found.append(_experiment(row, metrics.get(candidate_id, {})))
        seen.add(row["generation"])
    return found


def write_experiments_csv(stream: TextIO, rows: Sequence[Experiment]) -> None:
    """Write ``experiments.csv``: a line per candidate, a column per parameter and metric."""
    names = _names(row.params for row in rows)
    metrics = sorted({name for row in rows for name in row.metrics})
    fixed = [
        *("generation", "score", "parameters", "candidate_id", "origin", "n_cells", "n_failed"),
        *("rank", "recommended", "posterior_low", "posterior_high", "raw_mean_reward", "n_cases"),
    ]
    writer = csv.writer(stream, lineterminator="\n")
    header = [*fixed, *_columns(names, {*fixed}), *(f"raw_metric.{name}" for name in metrics)]
    writer.writerow(neutral_row(header))
    for row in rows:
        writer.writerow(
            neutral_row(
                [
                    row.generation,
                    row.score,
                    json.dumps(row.params, ensure_ascii=False),
                    row.candidate_id,
                    row.origin,
                    row.n_cells,
                    row.n_failed,
                    row.rank,
                    _csv_value(row.recommended),
                    row.low,
                    row.high,
                    row.raw_mean_reward,
                    row.n_cases,
                    *(_csv_value(row.params.get(name)) for name in names),
                    *(row.metrics.get(name) for name in metrics),
                ]
            )
        )


def write_detailed_csv(
    stream: TextIO, store: Store, run_id: str, rows: Sequence[Experiment]
) -> None:
    """Write ``detailed_results.csv``: a line per evaluation."""
    names = _names(row.params for row in rows)
    fixed = ["generation", "test_case_id", "role", "repeat", "candidate_id"]
    measured = ["score", "latency_ms", "cost_usd", "success", "error_type"]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(neutral_row([*fixed, *_columns(names, {*fixed, *measured}), *measured]))
    for row, evaluations in _with_evaluations(store, run_id, rows):
        params = [_csv_value(row.params.get(name)) for name in names]
        for evaluation in evaluations:
            writer.writerow(
                neutral_row(
                    [
                        evaluation["generation"],
                        evaluation["case_id"],
                        evaluation["role"],
                        evaluation["replicate"],
                        row.candidate_id,
                        *params,
                        evaluation["reward"],
                        evaluation["latency_ms"],
                        evaluation["cost_usd"],
                        "true" if evaluation["status"] == "ok" else "false",
                        evaluation["error_type"],
                    ]
                )
            )


def write_detailed_json(
    stream: TextIO,
    store: Store,
    run_id: str,
    rows: Sequence[Experiment],
    cases: Mapping[str, Case] | None,
    *,
    keep_text: bool,
) -> None:
    """Write ``detailed_results.json``: a list of candidates with all their evaluations.

    Args:
        stream: an open text file.
        store: where the run is kept.
        run_id: the run.
        rows: the candidates to write.
        cases: test cases by id, whose inputs are shown; ``None``: the requests are.
        keep_text: whether inputs are shown; answers are as the store kept them.
    """
    separator = "[\n"
    for row, evaluations in _with_evaluations(store, run_id, rows):
        starts = [e["started_us"] for e in evaluations if e["started_us"] is not None]
        entry = {
            "config": dict(row.params),
            "score": row.score,
            "rank": row.rank,
            "recommended": row.recommended,
            "posterior_low": row.low,
            "posterior_high": row.high,
            "raw_mean_reward": row.raw_mean_reward,
            "n_cases": row.n_cases,
            "raw_metrics": dict(row.metrics),
            "generation": row.generation,
            "timestamp": phrases.iso(min(starts)) if starts else None,
            "candidate_id": row.candidate_id,
            "origin": row.origin,
            "test_results": [_test_result(e, cases, keep_text=keep_text) for e in evaluations],
        }
        stream.write(separator + json.dumps(entry, ensure_ascii=False, allow_nan=False))
        separator = ",\n"
    stream.write("[]\n" if separator == "[\n" else "\n]\n")


def _with_evaluations(
    store: Store, run_id: str, rows: Sequence[Experiment]
) -> Iterator[tuple[Experiment, list[dict[str, Any]]]]:
    """Yield candidates with their evaluations, read in portions that fit into memory."""
    for portion in portions(rows):
        ids = [row.candidate_id for row in portion]
        by_candidate: dict[str, list[dict[str, Any]]] = {name: [] for name in ids}
        for evaluation in store.rows(_EVALUATIONS, {"run": run_id, "candidates": ids}):
            by_candidate[str(evaluation["candidate_id"])].append(evaluation)
        for row in portion:
            yield row, by_candidate[row.candidate_id]


def portions(
    rows: Sequence[Experiment], n_at_once: int = CELLS_AT_ONCE
) -> Iterator[list[Experiment]]:
    """Yield candidates in order, as many together as have ``n_at_once`` evaluations, or one."""
    portion: list[Experiment] = []
    n_rows = 0
    for row in rows:
        if portion and n_rows + row.n_rows > n_at_once:
            yield portion
            portion, n_rows = [], 0
        portion.append(row)
        n_rows += row.n_rows
    if portion:
        yield portion


def _test_result(
    evaluation: Mapping[str, Any], cases: Mapping[str, Case] | None, *, keep_text: bool
) -> dict[str, Json]:
    response = _parsed(evaluation["response"])
    case = None if cases is None else cases.get(evaluation["case_id"])
    shown_input = _parsed(evaluation["request"]) if case is None else case.input
    return {
        "test_case_id": evaluation["case_id"],
        "input": shown_input if keep_text else None,
        "response_text": response if isinstance(response, str) else evaluation["response"],
        "response": response,
        "score": evaluation["reward"],
        "metrics": {k: v if math.isfinite(v) else None for k, v in _map(evaluation["metrics"])},
        "latency_ms": evaluation["latency_ms"],
        "cost_usd": evaluation["cost_usd"],
        "success": evaluation["status"] == "ok",
        "error": evaluation["error"] or evaluation["error_type"],
        "role": evaluation["role"],
        "repeat": evaluation["replicate"],
        "generation": evaluation["generation"],
        "status": evaluation["status"],
    }


def _experiment(row: Mapping[str, Any], metrics: Mapping[str, float]) -> Experiment:
    return Experiment(
        candidate_id=row["candidate_id"],
        generation=row["generation"],
        origin=row["origin"],
        params=json.loads(row["params_json"]),
        rank=row["rank"],
        recommended=row["recommended"],
        score=row["posterior_mean"],
        low=row["posterior_low"],
        high=row["posterior_high"],
        raw_mean_reward=row["raw_mean_reward"],
        n_cases=row["n_cases"],
        n_cells=row["n_cells"],
        n_failed=row["n_failed"],
        n_rows=row["n_rows"],
        metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
    )


def _names(all_params: Any) -> list[str]:
    """Return the parameters that occur, in the order in which they first do."""
    return list(dict.fromkeys(name for params in all_params for name in params))


def _columns(names: Sequence[str], taken: set[str]) -> list[str]:
    """Return column names of parameters; one that is taken is written ``parameter.<name>``."""
    return [f"parameter.{name}" if name in taken else name for name in names]


def _csv_value(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _map(value: Mapping[str, float] | None) -> list[tuple[str, float]]:
    return sorted((value or {}).items())


def _parsed(text: str | None) -> Json:
    """Return the JSON value a text holds, or the text itself where it is none."""
    if text is None:
        return None
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    return value
