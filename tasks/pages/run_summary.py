"""Page of one run: progress, counts, budget, and its report."""

import contextlib
from collections.abc import Iterator
from typing import Any

import apsw

from convergence_core.errors import ConfigurationError
from convergence_core.ports import RunRecord
from convergence_core.result.number_text import interval, plural
from tasks.pages.overview import run_rows, spent_of
from tasks.pages.search_course import report_sections
from tasks.pages.source import Page, PageSource, line_of, page_of, span_of_time
from tasks.report import phrases
from tasks.report.blocks import Action, Block, Grid, Heading, Paragraph, Span, code, page_action
from tasks.report.evidence import counts_of
from tasks.report.phrases import clean
from tasks.store.layout import JOURNAL_FILE
from tasks.store.sqlite import rows_read_only

_COUNTS = """
SELECT count(DISTINCT candidate_id) AS n_candidates, count(DISTINCT case_id) AS n_cases
FROM evaluations WHERE run_id = $run
"""
_GENERATIONS = """
SELECT count(*) AS n, epoch_us(max(ended_at)) - epoch_us(min(started_at)) AS took_us
FROM generations WHERE run_id = $run
"""
_SETTLED = (
    "SELECT count(DISTINCT eval_id) FILTER (WHERE state IN ('done', 'cached')), "
    "count(*) FILTER (WHERE state = 'started') FROM attempts WHERE run_id = ? AND generation = ?"
)


def run_page(source: PageSource, record: RunRecord) -> Page:
    """Return the state of a run and the sections of its report."""
    blocks = [*_standing(source, record)]
    try:
        blocks += report_sections(source, record)
    except ConfigurationError as error:  # of another version, or damaged; its state is still shown
        blocks += [Heading("Report"), Paragraph((line_of(str(error), 1_000) or "",), "note")]
    return page_of(blocks, title=clean(record.label))


def _standing(source: PageSource, record: RunRecord) -> Iterator[Block]:
    (row,) = run_rows(source, [record])
    counts = source.rows(_COUNTS, run=record.run_id)[0] | counts_of(source.store, record.run_id)
    progress = _progress(source, record)
    ended = (", ended ", span_of_time(record.ended_us)) if record.ended_us else ()
    state = Span(record.status, "tag")
    started = f" {clean(record.name)}, started ", span_of_time(record.started_us)
    yield Paragraph((state, *started, *ended, " ", *_actions(record)))
    if source.result(record) is None and record.status in _ENDED:
        yield Paragraph(("Next: ", code(f"convergence resume {record.label}")))
    best = row["best"]
    spent, _, share = spent_of(row).partition(" (")
    figures = {
        f"reward of {row['best_name']}, on {row['best_on']}": best and interval(*best.values()),
        f"spent ({share}" if share else "spent": spent,
        f"configurations in {plural(row['n_generations'], 'generation')}, "
        f"{plural(counts['n_cases'], 'test case')}": f"{counts['n_candidates']:,}",
        f"evaluations, {counts['n_failed']:,} failed, {counts['n_missing']:,} missing": (
            f"{counts['n_evaluations']:,}"
        ),
    }
    known = {name: value for name, value in figures.items() if value}
    yield Grid((*known,), ((*known.values(),),))
    if record.reason:
        yield Paragraph((f"Why it ended: {line_of(record.reason, 1_000)}",), "note")
    if progress is not None:
        yield from (Heading("Progress"), Paragraph((progress,)))


_ENDED = frozenset({"stopped", "failed", "interrupted"})


def _actions(record: RunRecord) -> tuple[Action, ...]:
    """Return the button that stops or resumes a run; empty for a finished one."""
    place, label = ("runs", record.run_id), record.label
    if record.status == "running":
        ask = "The run stops after the evaluations in flight and keeps its results. You can resume it."
        return (page_action("Stop", *place, "stop", ask=ask, confirm=label),)
    if record.status in _ENDED:
        ask = "The run continues where it stopped, within the remaining budget."
        return (page_action("Resume", *place, "resume", ask=ask, confirm=label),)
    return ()


def _progress(source: PageSource, record: RunRecord) -> str | None:
    """Return a running run's progress."""
    if record.status != "running":
        return None
    done: dict[str, Any] = source.rows(_GENERATIONS, run=record.run_id)[0]
    n, most = done["n"], source.configuration(record).optimization.evolution.generations
    n_settled = n_open = 0
    with contextlib.suppress(OSError, apsw.Error):  # no journal, or locked for long
        journal = source.store.path / JOURNAL_FILE
        ((n_settled, n_open),) = rows_read_only(journal, _SETTLED, (record.run_id, n))
    sentence = f"Generation {n + 1} of at most {most}: {plural(n_settled, 'evaluation')} settled"
    if n_open:
        sentence += f", {plural(n_open, 'call')} in flight"
    if n and done["took_us"] and most is not None:
        left = phrases.duration(0, round(max(0.0, (most - n) * done["took_us"] / n)))
        sentence += f"; about {left} left at the pace of past generations"
    return f"{sentence}."
