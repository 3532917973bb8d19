"""What a ``RunResult`` takes from the store by SQL: counts, means and failures of a run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convergence_core.records import Role
from convergence_core.result import Failure, RoleCost
from convergence_core.store.protocols import Store
from tasks.process_redaction import redacted_text
from tasks.redaction import shortened

MAX_FAILURES = 50
"""Kinds of failures kept."""

_EXAMPLE_CHARS = 1_000

_COUNTS = """
SELECT count(*) FILTER (WHERE status <> 'skipped') AS n_evaluations,
       count(*) FILTER (WHERE status NOT IN ('ok', 'skipped')) AS n_failed,
       count(*) FILTER (WHERE status <> 'skipped' AND reward IS NULL) AS n_missing,
       count(*) FILTER (WHERE status = 'skipped') AS n_skipped
FROM evaluations WHERE run_id = $run
"""

_CELLS = """
SELECT candidate_id, count(*) FILTER (WHERE status NOT IN ('ok', 'skipped')) AS n_failed
FROM evaluations WHERE run_id = $run AND role = 'search' GROUP BY candidate_id
"""

_METRICS = """
SELECT candidate_id, role, metric, avg(value) AS value
FROM metrics WHERE run_id = $run GROUP BY candidate_id, role, metric ORDER BY metric
"""

_FAILURES = """
SELECT coalesce(error_type, status) AS reason,
       CASE WHEN status = 'skipped' THEN NULL ELSE fault END AS fault,
       count(*) AS n, min(error) AS example
FROM evaluations WHERE run_id = $run AND status <> 'ok'
GROUP BY ALL ORDER BY n DESC, reason, fault
"""

_GENERATIONS = """
WITH calls AS (
  SELECT generation, count(*) FILTER (WHERE state <> 'cached') AS n_calls,
         sum(cost_usd) AS cost_usd
  FROM attempts WHERE run_id = $run AND generation IS NOT NULL GROUP BY generation)
SELECT g.generation, g.n_evaluations, g.mean_reward, coalesce(c.n_calls, 0) AS n_calls,
       c.cost_usd
FROM generations g LEFT JOIN calls c USING (generation)
WHERE g.run_id = $run ORDER BY g.generation
"""

_FIRST_ASKED = """
SELECT candidate_id, case_id, replicate, min(generation) AS generation
FROM evaluations WHERE run_id = $run AND role = 'search'
GROUP BY candidate_id, case_id, replicate
"""

_COSTS = """
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
       CASE WHEN bool_and(state = 'cached') THEN 0.0
            ELSE sum(cost_usd) FILTER (WHERE state <> 'cached') END AS cost_usd,
       count(*) FILTER (WHERE state = 'done' AND cost_usd IS NULL) AS n_unpriced,
       coalesce(sum(maybe_usd), 0) AS maybe_usd
FROM attempts WHERE run_id = $run GROUP BY purpose, provider, model
ORDER BY cost_usd DESC NULLS LAST, purpose, provider, model
"""

_CACHED = "SELECT count(*) AS n FROM attempts WHERE run_id = $run AND state = 'cached'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many evaluations a run made, and how they ended."""

    n_evaluations: int
    n_failed: int
    n_missing: int
    n_skipped: int
    n_cached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCounts:
    """Search cells of one candidate."""

    n_failed: int = 0
    """Asked, and ended without an ``ok`` status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRow:
    """What one generation did."""

    generation: int
    n_evaluations: int
    mean_reward: float | None
    n_calls: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that ``collect`` reads of a run."""

    counts: Counts
    candidates: Mapping[str, CandidateCounts] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[Role, Mapping[str, float]]] = field(default_factory=dict)
    """Candidate → role → metric → mean."""
    generations: tuple[GenerationRow, ...] = ()
    failures: tuple[Failure, ...] = ()
    costs: tuple[RoleCost, ...] = ()
    cell_to_generation: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    """(candidate, case, repeat) → generation that asked it; search cells."""


def read_evidence(store: Store, run_id: str) -> Evidence:
    """Read what a run has committed.

    Raises:
        StoreDamagedError: a file of the run cannot be read.
    """
    run = {"run": run_id}
    metrics: dict[str, dict[Role, dict[str, float]]] = {}
    for row in _rows(store, _METRICS, run):
        if row["value"] is not None and math.isfinite(row["value"]):
            by_role = metrics.setdefault(row["candidate_id"], {})
            by_role.setdefault(row["role"], {})[row["metric"]] = row["value"]
    return Evidence(
        counts=Counts(
            **_rows(store, _COUNTS, run)[0], n_cached=_rows(store, _CACHED, run)[0]["n"]
        ),
        candidates={
            row["candidate_id"]: CandidateCounts(n_failed=row["n_failed"])
            for row in _rows(store, _CELLS, run)
        },
        metrics=metrics,
        generations=tuple(GenerationRow(**row) for row in _rows(store, _GENERATIONS, run)),
        costs=tuple(RoleCost(**row) for row in _rows(store, _COSTS, run)),
        failures=tuple(_failure(row) for row in _rows(store, _FAILURES, run)[:MAX_FAILURES]),
        cell_to_generation={
            (row["candidate_id"], row["case_id"], row["replicate"]): row["generation"]
            for row in _rows(store, _FIRST_ASKED, run)
        },
    )


def _rows(store: Store, sql: str, parameters: Mapping[str, object]) -> Sequence[dict[str, Any]]:
    return store.rows(sql, parameters)


def _failure(row: Mapping[str, Any]) -> Failure:
    example = row["example"]
    return Failure(
        reason=row["reason"],
        fault=row["fault"],
        n=row["n"],
        example=None if example is None else shortened(example, _EXAMPLE_CHARS, redacted_text),
    )
