"""Leaderboard of a run, and the sections of its report."""

import json
from collections.abc import Mapping

from convergence_core.ports import RunRecord
from convergence_core.result.number_text import percent
from tasks.pages.allocation import standings, tags_of
from tasks.pages.source import Page, PageSource
from tasks.report.blocks import Block
from tasks.report.document import course_blocks, document
from tasks.report.evidence import cells_by_candidate, costs_of, curve_of
from tasks.report.rlp_section import thinking_blocks, thinking_report
from tasks.report.sao_section import preference_blocks, preference_report
from tasks.report.tables import RANKED_BY, cost_blocks

_SHOWN = ("rank", "candidate_id", "name", "params", "mean", "low", "high", "origin", "generation")
_NO_CELLS = {"n_cells": 0, "n_cases": 0, "n_failed": 0}


def leaderboard(source: PageSource, record: RunRecord) -> Page:
    """Return all candidates in the search's order."""
    ranking = standings(source, record)
    cells = cells_by_candidate(source.store, record.run_id)
    result = source.result(record)
    metrics = (
        {} if result is None else {row.candidate_id: row.metrics for row in result.leaderboard}
    )
    tags = tags_of(source, record)
    level = next((row["level"] for row in ranking if row["level"] is not None), 0.95)
    rows = [
        {
            **{name: row[name] for name in _SHOWN},
            **cells.get(row["candidate_id"], _NO_CELLS),
            "metrics": metrics.get(row["candidate_id"], {}),
            "tags": tags.get(row["candidate_id"], []),
        }
        for row in ranking
    ]
    note = (
        f"Ordered by {RANKED_BY}. Posterior means with {percent(level)} intervals: they compare "
        "configurations that ran on different cases."
    )
    space = source.space(record)
    names = {} if space is None else space.named_values(row["params"] for row in ranking)
    return {"rows": rows, "parameters": _parameters(record, names), "level": level, "note": note}


def _parameters(record: RunRecord, names: Mapping[str, Mapping[str, str]]) -> list[Page]:
    space = json.loads(record.search_space_json)
    return [
        {
            "name": name,
            "kind": parameter.get("type"),
            "values": parameter.get("choices") or parameter.get("variants"),
            "names": {value: shown for shown, value in names.get(name, {}).items()},
            "low": parameter.get("min"),
            "high": parameter.get("max"),
            "log": bool(parameter.get("log")),
        }
        for name, parameter in space.get("parameters", {}).items()
    ]


def report_sections(source: PageSource, record: RunRecord) -> list[Block]:
    """Return the sections of a run's report, without a result those available so far."""
    result = source.result(record)
    if result is not None:
        return document(result, is_whole=False)
    store, run_id = source.store, record.run_id
    level = source.configuration(record).optimization.mab.confidence_level
    space = source.space(record)
    thinking = None if space is None else thinking_report(store, run_id, space=space, params_of={})
    return [
        *course_blocks(curve_of(store, run_id), level),
        *thinking_blocks(thinking),
        *preference_blocks(preference_report(store, run_id, record.name)),
        *cost_blocks(costs_of(store, run_id), is_offline="offline" in record.tags),
    ]
