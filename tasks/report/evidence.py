"""Counts, means, costs and failures of a run, from the store's tables."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, repeat
from typing import Any, TypeAlias

from convergence_core.posterior.case_effects import adjusted_means
from convergence_core.records import Json, Role
from convergence_core.result import CurvePoint, Failure, RoleCost
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened
from tasks.store.journal.ledger import BY_ROLE, KNOWN_USD, N_UNPRICED, UNPRICED
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.views import LAST_OF_CELL

Metrics: TypeAlias = Mapping[str, Mapping[Role, Mapping[str, float]]]
"""Candidate → role → metric → mean."""
MAX_FAILURES = 50

_EXAMPLE_CHARS = 1_000

OUTCOMES = f"(SELECT * FROM evaluations WHERE run_id = $run {LAST_OF_CELL})"  # noqa: S608 - constants
"""Evaluations of run `$run`, one per cell."""
_COUNTS = f"""
SELECT count(*) FILTER (WHERE status <> 'skipped') AS n_evaluations,
       count(*) FILTER (WHERE status NOT IN ('ok', 'skipped')) AS n_failed,
       count(*) FILTER (WHERE status <> 'skipped' AND reward IS NULL) AS n_missing,
       count(*) FILTER (WHERE status = 'skipped') AS n_skipped,
       (SELECT count(*) FROM attempts WHERE run_id = $run AND state = 'cached') AS n_cached
FROM {OUTCOMES}
"""  # noqa: S608 - constants

_CELLS = f"""
SELECT candidate_id, count(*) AS n_cells,
       count(DISTINCT case_id) FILTER (WHERE reward IS NOT NULL) AS n_cases,
       count(*) FILTER (WHERE status <> 'ok') AS n_failed
FROM {OUTCOMES} WHERE role = 'search' AND status <> 'skipped' GROUP BY candidate_id
"""  # noqa: S608 - constants

TEXTS = """texts AS (
  SELECT payload_sha256, min(text) AS text FROM payloads
  WHERE run_id = $run AND payload_sha256 IN (
    SELECT unnest([request_sha256, payload_sha256, thinking_sha256]) FROM e) GROUP BY ALL)"""
"""Texts of the evaluations ``e``, which ``WITH_TEXTS`` joins to them."""
WITH_TEXTS = """
     LEFT JOIN texts p ON p.payload_sha256 = e.request_sha256
     LEFT JOIN texts r ON r.payload_sha256 = e.payload_sha256
     LEFT JOIN texts t ON t.payload_sha256 = e.thinking_sha256"""
"""Joins of the prompt ``p``, the response ``r`` and the thinking ``t`` of each evaluation ``e``."""

METRICS_BY_CASE = """by_case AS (
  SELECT m.candidate_id, m.role, m.metric, m.case_id, avg(m.value) AS value,
         coalesce(max(e.weight), 1.0) AS w
  FROM metrics m JOIN evaluations e USING (run_id, eval_id)
  WHERE m.run_id = $run AND isfinite(m.value) GROUP BY ALL)"""
WEIGHTED_MEAN = "sum(w * value) / sum(w)"
"""Mean by case and then by the cases' weights, as for rewards."""

_METRICS = f"""
WITH {METRICS_BY_CASE},
measured AS (
  SELECT role, metric, count(DISTINCT candidate_id) AS n FROM by_case
  WHERE candidate_id IN (SELECT unnest($pair)) GROUP BY ALL),
common AS (
  SELECT role, metric, case_id FROM by_case JOIN measured USING (role, metric)
  WHERE candidate_id IN (SELECT unnest($pair)) GROUP BY role, metric, case_id, n HAVING count(*) = n)
SELECT candidate_id, role, metric, {WEIGHTED_MEAN} AS value
FROM by_case LEFT JOIN common c USING (role, metric, case_id)
WHERE role <> 'search' AND (c.case_id IS NOT NULL OR candidate_id NOT IN (SELECT unnest($pair)))
GROUP BY candidate_id, role, metric ORDER BY metric
"""  # noqa: S608 - constants

_METRIC_CELLS = """
SELECT metric, candidate_id, case_id, avg(value) AS value, count(*) AS n
FROM metrics WHERE run_id = $run AND role = 'search' AND isfinite(value)
  AND candidate_id IN (SELECT unnest($candidates))
GROUP BY ALL ORDER BY ALL
"""

_FAILURES = f"""
SELECT coalesce(error_type, status) AS reason,
       CASE WHEN status = 'skipped' THEN NULL ELSE fault END AS fault,
       count(*) AS n, min(error) AS example
FROM {OUTCOMES} WHERE status <> 'ok'
GROUP BY ALL ORDER BY n DESC, reason, fault
"""  # noqa: S608 - constants

_CURVE = f"""
WITH calls AS (
  SELECT generation, count(*) FILTER (WHERE state <> 'cached') AS n_calls,
         {N_UNPRICED} AS n_unpriced
  FROM ({BY_ROLE} WHERE run_id = $run) WHERE generation IS NOT NULL GROUP BY generation)
SELECT generation, n_evaluations, best_so_far AS best_mean, best_low AS low, best_high AS high,
       posterior_mean AS asked_mean,
       CAST(sum(coalesce(n_calls, 0)) OVER (ORDER BY generation) AS BIGINT) AS cumulative_calls,
       cumulative_usd,
       CAST(sum(coalesce(n_unpriced, 0)) OVER (ORDER BY generation) AS BIGINT) AS n_unpriced
FROM learning_curve LEFT JOIN calls USING (generation)
WHERE run_id = $run ORDER BY generation
"""  # noqa: S608 - constants

_COSTS = f"""
SELECT purpose, provider, model,
       count(*) FILTER (WHERE state <> 'cached') AS n_calls,
       count(*) FILTER (WHERE state = 'failed') AS n_failed,
       count(*) FILTER (WHERE state = 'cached' AND coalesce(payer_run_id, run_id) = run_id)
         AS n_reused,
       count(*) FILTER (WHERE state = 'cached' AND payer_run_id <> run_id) AS n_from_other_runs,
       CAST(sum(tokens_in) AS BIGINT) AS prompt_tokens,
       CAST(sum(cached_tokens) AS BIGINT) AS cached_tokens,
       CAST(sum(tokens_out) AS BIGINT) AS completion_tokens,
       CAST(sum(reasoning_tokens) AS BIGINT) AS reasoning_tokens,
       {KNOWN_USD} AS cost_usd,
       count(*) FILTER (WHERE {UNPRICED}) AS n_unpriced,
       coalesce(sum(maybe_usd), 0) AS maybe_usd
FROM attempts WHERE run_id = $run GROUP BY purpose, provider, model
ORDER BY cost_usd DESC NULLS LAST, purpose, provider, model
"""  # noqa: S608 - constants


def counts_of(store: ParquetStore, run_id: str) -> dict[str, Any]:
    """Return counts of evaluations, failures and the like, as fields of ``RunResult``."""
    return store.rows(_COUNTS, {"run": run_id})[0]


def cells_by_candidate(store: ParquetStore, run_id: str) -> dict[str, dict[str, int]]:
    """Return the search's ``n_cells``, ``n_cases`` and ``n_failed`` by candidate."""
    return {row.pop("candidate_id"): row for row in store.rows(_CELLS, {"run": run_id})}


def metrics_of(
    store: ParquetStore,
    run_id: str,
    *,
    compared: Sequence[str] = (),
    pair: Collection[str] = (),
    case_weights: Mapping[str, float] | None = None,
) -> Metrics:
    """Return the means of all metrics; ``search`` means are adjusted for the cases.

    Args:
        store: store with the run.
        run_id: id of the run.
        compared: candidates whose search metrics are returned, comparable by adjustment.
        pair: candidates whose measured means cover the cases where each of them has a value.
        case_weights: search case → positive weight; absent ones weigh 1.

    Raises:
        StoreDamagedError: a file of the run cannot be read.
    """
    run = {"run": run_id}
    metrics: dict[str, dict[Role, dict[str, float]]] = {}
    for row in store.rows(_METRICS, {**run, "pair": [*pair]}):
        if row["value"] is not None and math.isfinite(row["value"]):
            by_role = metrics.setdefault(row["candidate_id"], {})
            by_role.setdefault(row["role"], {})[row["metric"]] = row["value"]
    cells = store.rows(_METRIC_CELLS, {**run, "candidates": [*compared]}) if compared else ()
    for metric, group in groupby(cells, key=lambda row: row["metric"]):
        adjusted = adjusted_means(
            [(row["candidate_id"], row["case_id"], row["value"], row["n"]) for row in group],
            case_weights=case_weights,
        )
        for candidate_id, mean in adjusted.items():
            metrics.setdefault(candidate_id, {}).setdefault("search", {})[metric] = mean
    return metrics


def mean_of_known(
    values: Iterable[float | None], weights: Iterable[float] = repeat(1.0)
) -> float | None:
    """Return the weighted mean of the known values; ``None`` if there are none."""
    known = [(value, w) for value, w in zip(values, weights, strict=False) if value is not None]
    return sum(value * w for value, w in known) / sum(w for _, w in known) if known else None


def metric_or(
    name: str, metrics: Mapping[str, float] | None, measured: float | None
) -> float | None:
    """Return an answer's price or latency, from the metric ``name`` if there is one."""
    return (metrics or {}).get(name, measured)


def parsed_text(text: str | None) -> Json:
    """Return the JSON value of a stored string, or the string itself if it is not JSON."""
    if text is None:
        return None
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    return value


def curve_of(store: ParquetStore, run_id: str) -> tuple[CurvePoint, ...]:
    """Return the learning curve, one point per committed generation."""
    return tuple(CurvePoint(**row) for row in store.rows(_CURVE, {"run": run_id}))


def costs_of(store: ParquetStore, run_id: str) -> tuple[RoleCost, ...]:
    """Return the costs per role and model in a run's committed generations."""
    return tuple(RoleCost(**row) for row in store.rows(_COSTS, {"run": run_id}))


def failures_of(store: ParquetStore, run_id: str) -> tuple[Failure, ...]:
    """Return the reasons of failed evaluations, the most frequent first."""
    failures = []
    for row in store.rows(_FAILURES, {"run": run_id})[:MAX_FAILURES]:
        text = row["example"]
        example = None if text is None else shortened(text, _EXAMPLE_CHARS, redacted_text)
        failures.append(Failure(**{**row, "example": example}))
    return tuple(failures)
