"""Overview of a store: systems, runs, spend against budgets, what needs a person."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convergence_core.ports import RunRecord
from convergence_core.result import is_offline, verdict_of
from convergence_core.result.number_text import plural
from tasks.pages.source import Page, PageSource, line_of, time_of
from tasks.report.phrases import clean
from tasks.run.case_review import hard_cases
from tasks.store.feedback.proposals import proposed_cases, reviewed
from tasks.store.runtime.promotions import champion_of
from tasks.store.runtime.watches import alarms
from tasks.store.tables.lineage import GAMES_TAG, OFFLINE, TEST_TAG

MOST_RUNS = 500
_LEADERS = """
SELECT run_id, candidate_id, params_json, mean, low, high
FROM posteriors JOIN candidates USING (run_id, candidate_id)
WHERE recommended AND run_id IN (SELECT unnest($runs))
"""
_SPENT = """
SELECT run_id, sum(cost_usd) AS usd, count(*) FILTER (WHERE state <> 'cached') AS n_calls
FROM attempts WHERE run_id IN (SELECT unnest($runs)) GROUP BY ALL
"""
_DAY_US = 86_400 * 10**6
_RECENT = 7
"""Days for which an alarm is shown."""


def overview(source: PageSource) -> Page:
    """Return what a store holds."""
    records = source.runs()
    rows = run_rows(source, records)
    systems = sorted({record.name for record in records} | {*_in_production(source)})
    return {
        "store": str(source.store.path),
        "systems": [_system(source, name, records) for name in systems],
        "runs": rows,
        "needs": [*_needs(source, records)],
        "next_command": None if records else "convergence optimize",
    }


def run_rows(source: PageSource, records: Sequence[RunRecord] | None = None) -> list[Page]:
    """Return one row per run, latest first."""
    shown = (source.runs() if records is None else records)[:MOST_RUNS]
    open_ones = [record.run_id for record in shown if record.summary_json is None]
    leaders, spent = (
        {row["run_id"]: row for row in (source.rows(sql, runs=open_ones) if open_ones else ())}
        for sql in (_LEADERS, _SPENT)
    )
    for record in shown:
        if record.run_id in leaders:
            row = leaders[record.run_id]
            given = {row["candidate_id"]: json.loads(row["params_json"])}
            row["name"] = source.names(record, given)[row["candidate_id"]]
    return [
        run_row(record, leaders.get(record.run_id, {}), spent.get(record.run_id, {}))
        for record in shown
    ]


def run_row(record: RunRecord, leader: Mapping[str, Any], spent: Mapping[str, Any]) -> Page:
    """Return a run's row.

    Args:
        record: of the run.
        leader: row of the candidate that leads, where the run has no result yet.
        spent: dollars and calls, where the run has no result yet.
    """
    summary = json.loads(record.summary_json) if record.summary_json else {}
    budget = json.loads(record.config_json).get("budget") or {}
    winner = summary.get("winner") or {}
    best = next(
        (winner[role] for role in ("holdout", "fresh", "search") if winner.get(role)), leader
    )
    n_calls = summary["n_calls"] if "n_calls" in summary else spent.get("n_calls")
    usd = summary["cost_usd"] if "cost_usd" in summary else spent.get("usd")
    name = winner.get("label") or leader.get("name")
    return {
        "run_id": record.run_id,
        "label": clean(record.label),
        "system": clean(record.name),
        "status": record.status,
        "started_at": time_of(record.started_us),
        "ended_at": time_of(record.ended_us),
        "n_generations": record.n_generations,
        "best": {end: best[end] for end in ("mean", "low", "high")} if best else None,
        "best_name": None if name is None else clean(name),
        "best_on": _basis(winner),
        "spent_usd": usd,
        "max_usd": budget.get("max_usd"),
        "n_calls": n_calls,
        "max_calls": budget.get("max_calls"),
    }


def _basis(winner: Mapping[str, Any]) -> str:
    """Return which cells a run's number rests on."""
    names = {"holdout": "held-out cases", "fresh": "search cases, repeated"}
    return next((name for role, name in names.items() if winner.get(role)), "posterior")


def _in_production(source: PageSource) -> set[str]:
    runtime = source.runtime()
    return set() if runtime is None else {system for system, _ in runtime.systems()}


def _system(source: PageSource, system: str, records: Sequence[RunRecord]) -> Page:
    runtime = source.runtime()
    champion = None if runtime is None else champion_of(runtime, system)
    return {
        "system": system,
        "champion": None
        if champion is None
        else {
            "candidate_id": champion.candidate_id,
            "name": source.champion_name(champion),
        },
        "n_runs": sum(record.name == system for record in records),
        "in_production": system in _in_production(source),
    }


def _needs(source: PageSource, records: Sequence[RunRecord]) -> Iterator[Page]:
    """Yield what waits for a person: the latest run of each system, and alarms."""
    seen: set[str] = set()
    runtime = source.runtime()
    for record in records:
        if record.tags.get("test") or record.name in seen:
            continue
        seen.add(record.name)
        about = {"run_id": record.run_id, "system": record.name}
        if record.status in {"interrupted", "stopped", "failed"}:
            command = f"convergence resume {record.label}"
            sentence = f"{record.label} is {record.status}: {line_of(record.reason or '')}"
            yield {"kind": "resume", "sentence": sentence, "command": command, **about}
        result = source.result(record)
        if result is None or result.gate is None or result.gate.decision != "promote":
            continue
        if is_offline(result):  # nothing of it is for production
            continue
        champion = None if runtime is None else champion_of(runtime, record.name)
        if champion is None or (
            result.winner is not None and champion.candidate_id != result.winner.candidate_id
        ):
            verdict = verdict_of(result)
            sentence = f"{record.label}: {verdict.sentence} {verdict.next_step}"
            yield {"kind": "promote", "sentence": sentence, "command": verdict.command, **about}
    yield from _alarms(source)
    yield from _cases(source, records)


def _cases(source: PageSource, records: Sequence[RunRecord]) -> Iterator[Page]:
    """Yield that badly rated answers, and inputs by which games broke the system, propose test cases."""
    feedback = source.feedback()
    systems = {
        record.name.removesuffix(f".{GAMES_TAG}")
        for record in records
        if OFFLINE not in record.tags and not record.tags.get(TEST_TAG)
    }
    decided: frozenset[str] = frozenset() if feedback is None else reviewed(feedback)
    rated = {
        case.case_id
        for system in systems
        for case in ([] if feedback is None else proposed_cases(feedback, system))
    }
    broken = {case.case_id for name in systems for case in hard_cases(source.store, name, decided)}
    sentences = [
        *([plural(len(rated), "badly rated answer")] if rated else ()),
        *([f"{plural(len(broken), 'input')} that broke the system in a game"] if broken else ()),
    ]
    if sentences:
        n = len(rated) + len(broken)
        yield {
            "kind": "review",
            "sentence": f"{' and '.join(sentences)} may become {'a test case' if n == 1 else 'test cases'}.",
            "command": "convergence review", "run_id": None, "system": None,
        }  # fmt: skip


def _alarms(source: PageSource) -> Iterator[Page]:
    runtime = source.runtime()
    alarm_rows = [] if runtime is None else alarms(runtime)
    newest = max((alarm.created_us for alarm in alarm_rows), default=0)
    for alarm in alarm_rows:
        if alarm.created_us >= newest - _RECENT * _DAY_US:
            yield {"kind": "drift", "sentence": alarm.sentence, "command": None, "run_id": None,
                   "system": alarm.system}  # fmt: skip
