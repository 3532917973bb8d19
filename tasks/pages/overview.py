"""Overview of a store: systems, runs, spending, and what needs the user."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apsw

from convergence_core.ports import RunRecord
from convergence_core.records import fields_of
from convergence_core.result import is_offline, verdict_of
from convergence_core.result.number_text import (
    UNKNOWN,
    interval,
    left_out,
    plural,
    spent,
    usd,
    whole_percent,
)
from tasks.pages.source import Page, PageSource, line_of, page_of, span_of_time
from tasks.report.blocks import (
    Block,
    Bullets,
    Columns,
    Heading,
    Inline,
    Paragraph,
    Span,
    code,
    page_link,
    table,
)
from tasks.report.phrases import clean
from tasks.run.case_review import hard_cases
from tasks.store.feedback.proposals import proposed_cases, reviewed
from tasks.store.journal.ledger import BY_ROLE, KNOWN_USD, N_UNPRICED, UNPRICED
from tasks.store.layout import JOURNAL_FILE
from tasks.store.runtime.promotions import champion_of
from tasks.store.runtime.watches import alarms
from tasks.store.sqlite import rows_read_only
from tasks.store.tables.lineage import GAMES_TAG, OFFLINE, TEST_TAG, ancestors

MOST_RUNS = 500
_LEADERS = """
SELECT run_id, candidate_id, params_json, mean, low, high
FROM posteriors JOIN candidates USING (run_id, candidate_id)
WHERE recommended AND run_id IN (SELECT unnest($runs))
"""
_SPENT = f"""
SELECT run_id, {KNOWN_USD} AS usd, count(*) FILTER (WHERE state <> 'cached') AS n_calls,
       {N_UNPRICED} AS n_unpriced
FROM ({BY_ROLE} WHERE run_id IN (SELECT {{runs}})) AS attempts GROUP BY run_id
"""  # noqa: S608 - constants
_ANSWERED = f"""
SELECT regexp_extract(run_id, '^answers/(.*)/', 1) AS system, {KNOWN_USD} AS usd,
       count(*) FILTER (WHERE state <> 'cached') AS n_calls,
       count(*) FILTER (WHERE {UNPRICED}) AS n_unpriced
FROM attempts WHERE starts_with(run_id, 'answers/') GROUP BY ALL
"""  # noqa: S608 - constants
_DAY_US = 86_400 * 10**6
_RECENT = 7
"""Days for which an alarm is shown."""


def overview(source: PageSource) -> Page:
    """Return the overview of a store."""
    records, runtime = source.runs(), source.runtime()
    served = set() if runtime is None else {system for system, _ in runtime.systems()}
    answered = {row["system"]: row for row in source.rows(_ANSWERED)}
    systems = sorted({record.name for record in records} | served | answered.keys())
    if not systems:
        text = (
            "This page lists runs, systems and what needs you. This store holds no run yet. Next: "
        )
        return page_of([Paragraph((text, code("convergence optimize")))])
    needs = tuple(_needs(source, records))
    columns: dict[str, Callable[[str], Inline]] = {
        "system": lambda name: (
            page_link(clean(name), "production", name) if name in served else clean(name)
        ),
        "runs": lambda name: f"{sum(record.name == name for record in records):,}",
        "champion": lambda name: _champion(source, name),
    }
    if answered:
        columns["paid answers"] = lambda name: _paid(answered[name]) if name in answered else ""
    counts = f"{plural(len(records), 'run')} of {plural(len(systems), 'system')} in "
    blocks: list[Block] = [Paragraph((counts, code(str(source.store.path))), "note")]
    if needs:
        blocks += [Heading("Needs your attention"), Bullets(needs)]
    blocks += [Heading("Systems"), table(systems, columns, numeric=("runs",)), Heading("Runs")]
    return page_of([*blocks, table(run_rows(source, records), _RUNS, numeric=("generations",))])


def _paid(row: Page) -> str:
    """Return the cost of a service's answers up to the last export."""
    return f"{plural(row['n_calls'], 'call')}, {spent(row['usd'], row['n_unpriced'])}"


def _champion(source: PageSource, system: str) -> Inline:
    runtime = source.runtime()
    champion = None if runtime is None else champion_of(runtime, system)
    if champion is None:
        return "none yet: the defaults are in production"
    return code(source.champion_name(champion))


def _reward(row: Page) -> str:
    return interval(*(row["best"] or dict.fromkeys(("mean", "low", "high"))).values())


def spent_of(row: Page) -> str:
    """Return the spending of a run, and of those that it continues, against its budget."""
    max_usd, max_calls, left = row["max_usd"], row["max_calls"], left_out(row["n_unpriced"])
    if max_usd:
        counted = row["counted_usd"]
        return f"{usd(counted)} of {usd(max_usd)}{left} ({whole_percent(counted / max_usd)})"
    if max_calls:
        n_calls = row["counted_calls"]
        return f"{n_calls:,} of {plural(max_calls, 'call')} ({whole_percent(n_calls / max_calls)})"
    spent_usd = row["spent_usd"]
    return plural(row["n_calls"] or 0, "call") if spent_usd is None else usd(spent_usd) + left


_RUNS: Columns[Page] = {
    "run": lambda row: page_link(row["label"], "runs", row["run_id"]),
    "": lambda row: page_link("answers", "runs", row["run_id"], "answers"),
    "reward, with its interval": _reward,
    "on": lambda row: row["best_on"] if row["best"] else "",
    "configuration": lambda row: code(row["best_name"] or UNKNOWN),
    "status": lambda row: Span(row["status"], "tag"),
    "spent": spent_of,
    "generations": lambda row: f"{row['n_generations']:,}",
    "started": lambda row: span_of_time(row["started_us"]),
}


def run_rows(source: PageSource, records: Sequence[RunRecord] | None = None) -> list[Page]:
    """Return one row per run, latest first."""
    shown = (source.runs() if records is None else records)[:MOST_RUNS]
    open_ones = [record.run_id for record in shown if record.summary_json is None]
    leading = source.rows(_LEADERS, runs=open_ones) if open_ones else []
    leaders, spent = {row["run_id"]: row for row in leading}, _spent(source, open_ones)
    for record in shown:
        if record.run_id in leaders:
            row = leaders[record.run_id]
            given = {row["candidate_id"]: json.loads(row["params_json"])}
            row["name"] = source.names(record, given)[row["candidate_id"]]
    rows = [run_row(r, leaders.get(r.run_id, {}), spent.get(r.run_id, {})) for r in shown]
    known = {r.run_id: r for r in source.store.runs()} if any(map(ancestors, shown)) else {}
    for record, row in zip(shown, rows, strict=True):
        earlier = [run_row(known[i], {}, {}) for i in ancestors(record) if i in known]
        row["counted_calls"] = sum(r["n_calls"] or 0 for r in (row, *earlier))
        row["counted_usd"] = sum(r["spent_usd"] or 0.0 for r in (row, *earlier))
    return rows


def _spent(source: PageSource, run_ids: list[str]) -> dict[str, Page]:
    """Return what runs without a result spent, by the journal; where it cannot be read, by the tables."""
    if not run_ids:
        return {}
    rows = source.rows(_SPENT.format(runs="unnest($runs)"), runs=run_ids)
    found, journal = [tuple(row.values()) for row in rows], source.store.path / JOURNAL_FILE
    with contextlib.suppress(OSError, apsw.Error):  # no journal, or locked for long
        sql = _SPENT.format(runs="value FROM json_each(?)")
        found += rows_read_only(journal, sql, (json.dumps(run_ids),))
    return {name: {"usd": cost, "n_calls": n, "n_unpriced": m} for name, cost, n, m in found}


def run_row(record: RunRecord, leader: Mapping[str, Any], spent: Mapping[str, Any]) -> Page:
    """Return the row of a run.

    Args:
        record: row of the run.
        leader: row of the leading candidate, for a run without a result.
        spent: dollars, calls and calls of unknown price, for a run without a result.
    """
    summary = json.loads(record.summary_json) if record.summary_json else {}
    budget = json.loads(record.config_json).get("budget") or {}
    winner = summary.get("winner") or {}
    role = next((role for role in _BASES if winner.get(role)), "search")
    best = winner.get(role) or leader
    if summary:
        spent = {"usd": summary.get("cost_usd"), "n_calls": summary.get("n_calls")}
    free = ("function", None)  # as in ``are_free``
    priced = (c for c in summary.get("costs", ()) if (c["provider"], c["cost_usd"]) != free)
    name = winner.get("label") or leader.get("name")
    return {
        "run_id": record.run_id,
        "label": clean(record.label),
        "system": clean(record.name),
        **fields_of(record, "status", "started_us", "ended_us", "n_generations"),
        "best": {end: best[end] for end in ("mean", "low", "high")} if best else None,
        "best_name": None if name is None else clean(name),
        "best_on": _BASES[role],
        "spent_usd": spent.get("usd"),
        "max_usd": budget.get("max_usd"),
        "n_calls": spent.get("n_calls"),
        "n_unpriced": spent.get("n_unpriced", sum(c["n_unpriced"] for c in priced)),
        "max_calls": budget.get("max_calls"),
    }


_BASES = {"holdout": "held-out cases", "fresh": "search cases, repeated", "search": "posterior"}
"""Role → cells behind a run's number, the most trustworthy first."""


def _needs(source: PageSource, records: Sequence[RunRecord]) -> Iterator[tuple[Inline, ...]]:
    """Yield what needs the user: the latest run of each system, and alarms."""
    seen: set[str] = set()
    runtime = source.runtime()
    for record in records:
        if record.tags.get("test") or record.name in seen:
            continue
        seen.add(record.name)
        if record.status in {"interrupted", "stopped", "failed"}:
            sentence = f"{record.label} is {record.status}: {line_of(record.reason or '')}"
            command = f"convergence resume {record.label}"
            yield page_link(sentence, "runs", record.run_id), " ", code(command)
        result = source.result(record)
        if result is None or result.gate is None or result.gate.decision != "promote":
            continue
        if is_offline(result):  # mock results are not for production
            continue
        champion = None if runtime is None else champion_of(runtime, record.name)
        if champion is None or (
            result.winner is not None and champion.candidate_id != result.winner.candidate_id
        ):
            verdict = verdict_of(result)
            sentence = f"{record.label}: {verdict.sentence} {verdict.next_step}"
            yield page_link(sentence, "runs", record.run_id), " ", code(verdict.command or "")
    alarm_rows = [] if runtime is None else alarms(runtime)
    newest = max((alarm.created_us for alarm in alarm_rows), default=0)
    for alarm in alarm_rows:
        if alarm.created_us >= newest - _RECENT * _DAY_US:
            yield (page_link(alarm.sentence, "production", alarm.system),)
    yield from _cases(source, records)


def _cases(source: PageSource, records: Sequence[RunRecord]) -> Iterator[tuple[Inline, ...]]:
    """Yield a link to test cases that bad ratings and games propose, if any."""
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
        become = "a test case" if len(rated) + len(broken) == 1 else "test cases"
        sentence = f"{' and '.join(sentences)} may become {become}."
        yield page_link(sentence, "review"), " ", code("convergence review")
