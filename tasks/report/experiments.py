"""Raw results in the file formats of version 0.1: candidates and evaluations.

``score`` is a candidate's posterior mean reward, as in the report. Candidates ran on different
cases, so the plain means next to it, ``raw_mean_reward`` and the metrics under ``raw_metric.`` or
``raw_metrics``, do not compare candidates.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, TextIO, TypeAlias

from convergence_core.records import Case, Json
from tasks.report import phrases
from tasks.report.evidence import METRICS_BY_CASE, TEXTS, WEIGHTED_MEAN, WITH_TEXTS, parsed_text
from tasks.store.tables.csv_cells import csv_writer
from tasks.store.tables.parquet_store import ParquetStore

CELLS_AT_ONCE = 20_000
"""Maximum evaluations in memory while files are written."""

_CANDIDATES = f"""
WITH {METRICS_BY_CASE},
means AS (
  SELECT candidate_id, metric, {WEIGHTED_MEAN} AS value FROM by_case
  WHERE role = 'search' GROUP BY candidate_id, metric),
plain AS (
  SELECT candidate_id, map_from_entries(list((metric, value) ORDER BY metric)) AS metrics
  FROM means GROUP BY candidate_id)
SELECT c.candidate_id, c.generation, c.origin, c.params_json, plain.metrics, l.rank,
       coalesce(l.recommended, false) AS recommended, l.posterior_mean AS score, l.posterior_low,
       l.posterior_high, l.raw_mean_reward, coalesce(l.n_cases, 0) AS n_cases,
       coalesce(l.n_evaluations, 0) AS n_cells, coalesce(l.n_failed, 0) AS n_failed,
       (SELECT count(*) FROM evaluations e
        WHERE e.run_id = c.run_id AND e.candidate_id = c.candidate_id) AS n_rows
FROM candidates c LEFT JOIN leaderboard l USING (run_id, candidate_id)
     LEFT JOIN plain USING (candidate_id)
WHERE c.run_id = $run
ORDER BY c.generation, l.rank NULLS LAST, c.candidate_id
"""  # noqa: S608 - constants

_EVALUATIONS = f"""
WITH e AS (
  SELECT * FROM evaluations
  WHERE run_id = $run AND candidate_id IN (SELECT unnest($candidates))),
{TEXTS}
SELECT e.candidate_id, e.case_id AS test_case_id, e.replicate AS repeat, e.role, e.generation,
       e.status, e.error_type, e.error, e.reward AS score, e.metrics, e.latency_ms, e.cost_usd,
       e.status = 'ok' AS success, epoch_us(e.started_at) AS started_us,
       p.text AS request, r.text AS response, t.text AS thinking
FROM e {WITH_TEXTS}
ORDER BY e.candidate_id, e.role <> 'search', e.role, e.generation, e.case_id, e.replicate
"""  # noqa: S608 - constants


Experiment: TypeAlias = Mapping[str, Any]
"""A candidate: a row of ``_CANDIDATES`` with ``params``. ``rank``, ``score`` and its interval are
``None`` without a reward. ``metrics`` are weighted means over its own search cases, so they do not
compare candidates. ``n_rows`` counts evaluations of all roles, including skipped ones.
"""


def experiments(store: ParquetStore, run_id: str) -> list[Experiment]:
    """Return a run's candidates by generation, the highest rank first.

    Args:
        store: store with the run.
        run_id: id of the run.
    """
    return [
        {**row, "params": json.loads(row["params_json"]), "metrics": row["metrics"] or {}}
        for row in store.rows(_CANDIDATES, {"run": run_id})
    ]


def write_experiments_csv(stream: TextIO, rows: Sequence[Experiment]) -> None:
    """Write ``experiments.csv``: a line per candidate, a column per parameter and metric."""
    names = _names(rows)
    metrics = sorted({name for row in rows for name in row["metrics"]})
    columns = [
        *("generation", "score", "parameters", "candidate_id", "origin", "n_cells", "n_failed"),
        *("rank", "recommended", "posterior_low", "posterior_high", "raw_mean_reward", "n_cases"),
    ]
    write = _writer(stream)
    write([*columns, *_columns(names, {*columns}), *(f"raw_metric.{name}" for name in metrics)])
    for row in rows:
        values = {**row, "parameters": json.dumps(row["params"], ensure_ascii=False)}
        write(
            [
                *(values[name] for name in columns),
                *(row["params"].get(name) for name in names),
                *(row["metrics"].get(name) for name in metrics),
            ]
        )


def write_detailed_csv(
    stream: TextIO, store: ParquetStore, run_id: str, rows: Sequence[Experiment]
) -> None:
    """Write ``detailed_results.csv``: a line per evaluation."""
    names = _names(rows)
    keys = ["generation", "test_case_id", "role", "repeat", "candidate_id"]
    measured = ["score", "latency_ms", "cost_usd", "success", "error_type"]
    write = _writer(stream)
    write([*keys, *_columns(names, {*keys, *measured}), *measured])
    for row, evaluations in _with_evaluations(store, run_id, rows):
        params = [row["params"].get(name) for name in names]
        for evaluation in evaluations:
            values = [evaluation[name] for name in keys]
            write([*values, *params, *(evaluation[name] for name in measured)])


def write_detailed_json(
    stream: TextIO,
    store: ParquetStore,
    run_id: str,
    rows: Sequence[Experiment],
    cases: Mapping[str, Case] | None,
    *,
    keep_text: bool,
) -> None:
    """Write ``detailed_results.json``: a list of candidates with all their evaluations.

    Args:
        stream: an open text file.
        store: store with the run.
        run_id: id of the run.
        rows: candidates to write.
        cases: test cases by id, for inputs and expected values; ``None`` shows the requests.
        keep_text: whether to show those; answers appear as stored.
    """
    separator = "[\n"
    for row, evaluations in _with_evaluations(store, run_id, rows):
        starts = [e["started_us"] for e in evaluations if e["started_us"] is not None]
        ranked = ("score", "rank", "recommended", "posterior_low", "posterior_high")
        entry = {
            "config": row["params"],
            **{name: row[name] for name in (*ranked, "raw_mean_reward", "n_cases")},
            "raw_metrics": row["metrics"],
            "timestamp": phrases.iso(min(starts)) if starts else None,
            **{name: row[name] for name in ("generation", "candidate_id", "origin")},
            "test_results": [_test_result(e, cases, keep_text=keep_text) for e in evaluations],
        }
        stream.write(separator + json.dumps(entry, ensure_ascii=False, allow_nan=False))
        separator = ",\n"
    stream.write("[]\n" if separator == "[\n" else "\n]\n")


def _with_evaluations(
    store: ParquetStore, run_id: str, rows: Sequence[Experiment]
) -> Iterator[tuple[Experiment, list[dict[str, Any]]]]:
    """Yield candidates with their evaluations, read in portions that fit into memory."""
    for portion in _portions(rows):
        ids = [row["candidate_id"] for row in portion]
        by_candidate: dict[str, list[dict[str, Any]]] = {name: [] for name in ids}
        for evaluation in store.rows(_EVALUATIONS, {"run": run_id, "candidates": ids}):
            by_candidate[evaluation["candidate_id"]].append(evaluation)
        for row in portion:
            yield row, by_candidate[row["candidate_id"]]


def _portions(rows: Sequence[Experiment]) -> Iterator[list[Experiment]]:
    """Yield candidates in order, in groups of about ``CELLS_AT_ONCE`` evaluations."""
    ends = accumulate(row["n_rows"] for row in rows)
    for _, portion in groupby(zip(rows, ends, strict=True), lambda pair: pair[1] // CELLS_AT_ONCE):
        yield [row for row, _ in portion]


def _test_result(
    evaluation: Mapping[str, Any], cases: Mapping[str, Case] | None, *, keep_text: bool
) -> dict[str, Json]:
    response = parsed_text(evaluation["response"])
    case = None if cases is None else cases.get(evaluation["test_case_id"])
    shown_input = parsed_text(evaluation["request"]) if case is None else case.input
    metrics = sorted((evaluation["metrics"] or {}).items())
    return {
        "test_case_id": evaluation["test_case_id"],
        "input": shown_input if keep_text else None,
        "expected": case.expected if case is not None and keep_text else None,
        "response_text": response if isinstance(response, str) else evaluation["response"],
        "response": response,
        "thinking": evaluation["thinking"],
        "score": evaluation["score"],
        "metrics": {name: v if math.isfinite(v) else None for name, v in metrics},
        **{name: evaluation[name] for name in ("latency_ms", "cost_usd", "success")},
        "error": evaluation["error"] or evaluation["error_type"],
        **{name: evaluation[name] for name in ("role", "repeat", "generation", "status")},
    }


def _names(rows: Sequence[Experiment]) -> list[str]:
    """Return the parameters in the order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row["params"]))


def _columns(names: Sequence[str], taken: set[str]) -> list[str]:
    """Return column names of parameters; a taken name becomes ``parameter.<name>``."""
    return [f"parameter.{name}" if name in taken else name for name in names]


def _writer(stream: TextIO) -> Callable[[Sequence[object]], object]:
    """Return a function that writes a line of CSV, with booleans as in JSON."""
    write_row = csv_writer(stream)
    return lambda values: write_row(
        [str(value).lower() if isinstance(value, bool) else value for value in values]
    )
