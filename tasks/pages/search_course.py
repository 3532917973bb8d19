"""Course of a search: curve, leaderboard, effects, front, spend, thoughts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from convergence_core.ports import RunRecord
from convergence_core.result import FrontPoint
from convergence_core.result.number_text import percent, usd
from convergence_core.result.verdict import FREE, are_free
from tasks.pages.allocation import standings, tags_of
from tasks.pages.source import Page, PageSource, line_of
from tasks.report.evidence import costs_of, curve_of
from tasks.report.explanation import about_effects
from tasks.report.front import front_sentence
from tasks.report.phrases import clean
from tasks.report.rlp_section import thinking_lines
from tasks.report.sao_section import preference_lines, preference_report
from tasks.report.tables import cost_sentences, ranked_by
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened

MOST_TEXT = 4_000
"""Characters of a thought."""
_CELLS = """
SELECT candidate_id, count(*) FILTER (WHERE status <> 'skipped') AS n_cells,
       count(DISTINCT case_id) AS n_cases,
       count(*) FILTER (WHERE status NOT IN ('ok', 'skipped')) AS n_failed
FROM evaluations WHERE run_id = $run AND role = 'search' GROUP BY candidate_id
"""
_BY_GENERATION = """
SELECT generation, sum(cost_usd) AS cost_usd, count(*) FILTER (WHERE state <> 'cached') AS n_calls
FROM attempts WHERE run_id = $run GROUP BY generation ORDER BY generation NULLS LAST
"""
_THOUGHTS = """
WITH texts AS (
  SELECT payload_sha256, min(text) AS text FROM payloads
  WHERE run_id = $run AND kind = 'thought' GROUP BY ALL)
SELECT t.thought_id, t.generation, t.agent_id AS strategy, texts.text, t.information_gain AS gain,
       t.gain_se, t.resolution, t.e_value, t.n_outcomes, t.reason, t.ignored_reason, t.cost_usd
FROM thoughts t LEFT JOIN texts ON texts.payload_sha256 = t.text_sha256
WHERE t.run_id = $run ORDER BY t.generation, t.information_gain DESC NULLS LAST
"""


def curve(source: PageSource, record: RunRecord) -> Page:
    """Return what was known after each generation."""
    note = (
        "Posterior mean of what would have been handed over, with its interval: what the search says "
        "of the one it chose is biased upward by selection."
    )
    return {
        "points": [asdict(point) for point in curve_of(source.store, record.run_id)],
        "note": note,
    }


def leaderboard(source: PageSource, record: RunRecord) -> Page:
    """Return all candidates as the search ranks them."""
    ranking = standings(source, record)
    cells = {row["candidate_id"]: row for row in source.rows(_CELLS, run=record.run_id)}
    result = source.result(record)
    metrics = (
        {} if result is None else {row.candidate_id: row.metrics for row in result.leaderboard}
    )
    tags = tags_of(source, record)
    level = next((row["level"] for row in ranking if row["level"] is not None), 0.95)
    rows = [
        {
            "rank": row["rank"],
            "candidate_id": row["candidate_id"],
            "name": row["name"],
            "params": row["params"],
            "mean": row["mean"],
            "low": row["low"],
            "high": row["high"],
            "cautious": row["cautious"],
            "feasible": row["feasible"],
            **_cells_of(cells.get(row["candidate_id"], {})),
            "origin": row["origin"],
            "parents": row["parent_ids"],
            "generation": row["generation"],
            "metrics": metrics.get(row["candidate_id"], {}),
            "tags": tags.get(row["candidate_id"], []),
        }
        for row in ranking
    ]
    ordered = "cautious estimate" if result is None else ranked_by(result)
    note = (
        f"Ordered by {ordered}. Posterior means with {percent(level)} intervals: they compare "
        "candidates that were asked different cases."
    )
    return {"rows": rows, "parameters": _parameters(record), "level": level, "note": note}


def _cells_of(row: Mapping[str, Any]) -> Page:
    return {name: row.get(name, 0) for name in ("n_cells", "n_cases", "n_failed")}


def _parameters(record: RunRecord) -> list[Page]:
    space = json.loads(record.search_space_json)
    return [
        {
            "name": name,
            "kind": parameter.get("type"),
            "values": parameter.get("choices") or parameter.get("variants"),
            "low": parameter.get("min"),
            "high": parameter.get("max"),
            "log": bool(parameter.get("log")),
            "default": parameter.get("default"),
        }
        for name, parameter in space.get("parameters", {}).items()
    ]


def effects(source: PageSource, record: RunRecord) -> Page:
    """Return what each parameter does, once the run has ended."""
    result = source.result(record)
    shown = (
        [] if result is None else [effect for effect in result.effects if len(effect.points) > 1]
    )
    known = [effect for effect in shown if effect.share is not None]
    return {
        "effects": [
            {
                **{name: value for name, value in asdict(effect).items() if name != "points"},
                "points": [
                    {
                        "value": point.label if point.x is None else point.x,
                        "label": clean(point.label),
                        "mean": point.mean,
                        "low": point.low,
                        "high": point.high,
                        "n_candidates": point.n_candidates,
                    }
                    for point in effect.points
                ],
            }
            for effect in shown
        ],
        "sentences": [about_effects(result, known)] if result is not None and known else [],
    }


def front(source: PageSource, record: RunRecord) -> Page:
    """Return the front of trade-offs of a Pareto run that has ended."""
    result = source.result(record)
    if result is None or result.front is None:
        return {"objectives": [], "points": [], "dominated": [], "sentence": None}
    pareto = result.front
    return {
        "objectives": [
            {"name": name, "direction": "higher", "unit": None} for name in pareto.objectives
        ],
        "points": _points(pareto.points),
        "dominated": _points(pareto.dominated),
        "volume": [asdict(point) for point in pareto.volume],
        "level": pareto.level,
        "sentence": front_sentence(pareto, result.n_candidates),
    }


def _points(points: Sequence[FrontPoint]) -> list[Page]:
    return [{**asdict(point), "name": clean(point.label)} for point in points]


def spend(source: PageSource, record: RunRecord) -> Page:
    """Return what a run has paid, by role and model and by generation."""
    costs = costs_of(source.store, record.run_id)
    free = {"cost_usd": 0.0} if are_free(costs) else {}
    sentences = cost_sentences(costs, is_offline="offline" in record.tags)
    return {
        "rows": [
            {
                **asdict(cost),
                "tokens_in": cost.prompt_tokens,
                "tokens_out": cost.completion_tokens,
                **free,
            }
            for cost in costs
        ],
        "by_generation": source.rows(_BY_GENERATION, run=record.run_id),
        "sentences": [*sentences, *([f"{usd(0.0)}: {FREE}."] if free else [])],
    }


def thoughts(source: PageSource, record: RunRecord) -> Page:
    """Return thoughts with their gain."""
    result = source.result(record)
    report = None if result is None else result.thinking
    sentences = [] if report is None else [report.sentence, *thinking_lines(report)]
    rows = [
        {
            **row,
            "text": None
            if row["text"] is None
            else shortened(row["text"], MOST_TEXT, redacted_text),
            "reason": line_of(row["reason"]),
        }
        for row in source.rows(_THOUGHTS, run=record.run_id)
    ]
    return {"rows": rows, "sentences": sentences}


def preferences(source: PageSource, record: RunRecord) -> Page:
    """Return rounds of preference pairs."""
    report = preference_report(source.store, record.run_id, record.name)
    if report is None:
        return {"rounds": [], "sentences": []}
    return {
        "rounds": [{**asdict(each), "sentence": each.why_disbelieved} for each in report.rounds],
        "sentences": preference_lines(report),
    }
