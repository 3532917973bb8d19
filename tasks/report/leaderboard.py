"""The leaderboard as rows of text, for pages and Prefect's tables."""

from convergence_core.result import LeaderboardRow, RunResult
from tasks.report import phrases
from tasks.report.blocks import Inline
from tasks.report.phrases import clean, named_label, short


def leaderboard_grid(
    result: RunResult, n_rows: int
) -> tuple[tuple[str, ...], frozenset[int], tuple[tuple[Inline, ...], ...]]:
    """Return the leaderboard's columns, which of them are numeric, and its first rows."""
    rows = leaderboard_rows(result, n_rows)
    columns = tuple(rows[0]) if rows else ("rank", "configuration", "posterior mean")
    numeric = frozenset({0, *range(2, len(columns) - 1)} if rows else {0, 2})
    return columns, numeric, tuple(tuple(row.values()) for row in rows)


_LEADERBOARD_COLUMNS = (
    *("rank", "configuration", "posterior mean", "cautious", "keeps constraints"),
    *("cases", "cells", "failed", "origin"),
)


def leaderboard_rows(result: RunResult, n: int = 10) -> list[dict[str, str]]:
    """Return the first ``n`` rows of the leaderboard as texts by column, for tables."""
    rows = []
    for row in result.leaderboard[:n]:
        label = named(result, row)
        texts = {
            "rank": str(row.rank),
            "configuration": label,
            "posterior mean": phrases.interval(row.mean, row.low, row.high),
        }
        if any(one.cautious is not None for one in result.leaderboard):
            texts["cautious"] = phrases.reward(row.cautious)
        if any(one.feasible is not None for one in result.leaderboard):
            kept = row.feasible
            texts["keeps constraints"] = phrases.UNKNOWN if kept is None else phrases.percent(kept)
        texts["cases"] = phrases.UNKNOWN if row.n_cases is None else f"{row.n_cases:,}"
        texts |= {"cells": f"{row.n_cells:,}", "failed": f"{row.n_failed:,}"}
        for metric in result.metrics:
            name = clean(metric.name)
            name = f"metric {name}" if name in _LEADERBOARD_COLUMNS else name
            texts[name] = phrases.number(row.metrics.get(metric.name))
        rows.append({**texts, "origin": short(row.origin)})
    return rows


def named(result: RunResult, row: LeaderboardRow) -> str:
    """Return a row's name for people, with what is special about its candidate."""
    return named_label(row.label, row.candidate_id) + _mark(result, row.candidate_id)


def _mark(result: RunResult, candidate_id: str) -> str:
    marks = []
    if result.winner is not None and result.winner.candidate_id == candidate_id:
        marks.append("recommended")
    if result.baseline is not None and result.baseline.candidate_id == candidate_id:
        marks.append("default")
    return f" ({', '.join(marks)})" if marks else ""
