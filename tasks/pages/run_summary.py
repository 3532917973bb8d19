"""Summary of one run: progress between generations, counts, budget."""

import contextlib
from typing import Any

import apsw

from convergence_core.ports import RunRecord
from convergence_core.result.number_text import plural
from tasks.pages.overview import run_rows
from tasks.pages.source import Page, PageSource, line_of
from tasks.report import phrases
from tasks.store.layout import JOURNAL_FILE
from tasks.store.sqlite import rows_read_only

_COUNTS = """
SELECT count(*) FILTER (WHERE status <> 'skipped') AS n_evaluations,
       count(DISTINCT candidate_id) AS n_candidates, count(DISTINCT case_id) AS n_cases,
       count(*) FILTER (WHERE status NOT IN ('ok', 'skipped')) AS n_failed,
       count(*) FILTER (WHERE status <> 'skipped' AND reward IS NULL) AS n_missing
FROM evaluations WHERE run_id = $run
"""
_GENERATIONS = """
SELECT count(*) AS n, epoch_us(max(ended_at)) - epoch_us(min(started_at)) AS took_us
FROM generations WHERE run_id = $run
"""
_SETTLED = (
    "SELECT count(DISTINCT eval_id) FILTER (WHERE state IN ('done', 'cached')), "
    "count(*) FILTER (WHERE state <> 'cached'), count(*) FILTER (WHERE state = 'started'), "
    "sum(cost_usd) FROM attempts WHERE run_id = ? AND generation = ?"
)


_NOTHING = (0, 0, 0, None)


def run_summary(source: PageSource, record: RunRecord) -> Page:
    """Return how a run stands."""
    (row,) = run_rows(source, [record])
    counts = source.rows(_COUNTS, run=record.run_id)[0]
    has_verdict = source.result(record) is not None
    progress, n_calls, cost_usd = _progress(source, record)
    row["n_calls"] = (row["n_calls"] or 0) + n_calls
    if cost_usd is not None:
        row["spent_usd"] = (row["spent_usd"] or 0.0) + cost_usd
    return {
        **row,
        "command": None if has_verdict else _command(record),
        "reason": line_of(record.reason),
        "progress": progress,
        **counts,
    }


def _command(record: RunRecord) -> str | None:
    ended = record.status in {"stopped", "failed", "interrupted"}
    return f"convergence resume {record.label}" if ended else None


def _progress(source: PageSource, record: RunRecord) -> tuple[Page | None, int, float | None]:
    """Return how far a run is that continues, and calls and dollars that its journal has beyond the tables."""
    if record.status != "running":
        return None, 0, None
    done: dict[str, Any] = source.rows(_GENERATIONS, run=record.run_id)[0]
    n, most = done["n"], source.configuration(record).optimization.evolution.generations
    n_settled, n_calls, n_open, cost_usd = unpublished_calls(source, record.run_id, n)
    left = None
    if n and done["took_us"] and most is not None:
        left = max(0.0, (most - n) * done["took_us"] / n / 1e6)
    sentence = f"Generation {n + 1} of at most {most}: {plural(n_settled, 'evaluation')} settled"
    if n_open:
        sentence += f", {plural(n_open, 'call')} in flight"
    if left is not None:
        sentence += f"; about {_duration(left)} left at the pace of past generations"
    progress = {
        "generation": n,
        "max_generations": most,
        "n_settled": n_settled,
        "seconds_left": left,
        "sentence": f"{sentence}.",
    }
    return progress, n_calls, cost_usd


def unpublished_calls(
    source: PageSource, run_id: str, generation: int
) -> tuple[int, int, int, float | None]:
    """Return evaluations with an answer, calls, open calls and dollars of a generation by the store's journal."""
    with contextlib.suppress(OSError, apsw.Error):  # no journal, or locked for long
        for n_answered, n_calls, n_open, usd in rows_read_only(
            source.store.path / JOURNAL_FILE, _SETTLED, (run_id, generation)
        ):
            return n_answered, n_calls, n_open, usd
    return _NOTHING


def _duration(seconds: float) -> str:
    return phrases.duration(0, round(seconds * 1e6))
