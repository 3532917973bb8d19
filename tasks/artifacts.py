"""Artifacts and log lines of a run in Prefect: leaderboard, spending, links.

Artifacts only inform users; nothing reads them back. They are written per generation while its
calls are in flight, never per evaluation, since tables and pictures take half a second. With short
generations they are written every few seconds and at the end.
"""

import base64
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect import get_client, get_run_logger, runtime
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from convergence_core.events import GenerationFinished, RunNotice
from convergence_core.result import RunResult, number_text
from convergence_core.result.number_text import plural
from convergence_core.result.verdict import verdict_of
from tasks.notify.system_events import budget_events
from tasks.report.blocks import Grid
from tasks.report.document import learner_blocks
from tasks.report.games_section import games_blocks
from tasks.report.markdown import markdown_of, report_markdown
from tasks.report.phrases import ending, named_label, spend
from tasks.report.sao_section import preference_blocks, preference_report
from tasks.report.stills import learning_curve_png
from tasks.report.tables import CAUTIOUS, RANKED_BY, leaderboard_grid, spending
from tasks.run.result import collect_progress
from tasks.run.run import Run, run_of
from tasks.secrets.process_redaction import redacted_text

if TYPE_CHECKING:
    from convergence_core.games.round_records import GamesReport
    from tasks.training.round import RoundReport

NAME = "configuration"
"""Column with a candidate's name."""
FIRST = ("rank", NAME, CAUTIOUS, "evaluations")
"""Columns that a page shows without scrolling."""
SHOWN_EVERY_S = 15.0
"""Minimum seconds between two leaderboards and pictures."""
_PROGRESS: dict[str, UUID] = {}
_SHOWN: dict[str, float] = {}
"""Run → monotonic time of its last artifacts or its start, in seconds."""
_PROGRESS_LOCK = threading.Lock()


def notices(system: str) -> Callable[[RunNotice], None]:
    """Return a listener that writes notices of budget and providers into the flow run's log.

    It also emits events on spending. Notices come from the session's thread, which Prefect does
    not know.
    """
    logger, emit = get_run_logger(), budget_events(system)

    def tell(notice: RunNotice) -> None:
        logger.warning("%s", notice.text)
        emit(notice)

    return tell


def show_start(run: Run) -> None:
    """Name the flow run after the run, tag it, and start its progress bar."""
    show_tags(run, name=run.label)
    _log(
        f"{run.label}: up to {plural(run.study.schedule.n_generations, 'generation')} of "
        f"{run.configuration.optimization.algorithm}, {plural(len(run.loaded.search_cases), 'test case')} to search by and "
        f"{len(run.loaded.holdout_cases):,} held out"
    )
    if run.next_generation:
        _log(f"Continues after {plural(run.next_generation, 'generation')}; repeats no paid call.")
    artifact_id = create_progress_artifact(
        progress=_percent(run), key=_key(run, "progress"), description=f"Search of {run.label}"
    )
    assert isinstance(artifact_id, UUID)  # noqa: S101 - a coroutine only in async flows
    with _PROGRESS_LOCK:
        _PROGRESS[run.run_id] = artifact_id
        _SHOWN[run.run_id] = time.monotonic()


def log_generation(finished: GenerationFinished) -> None:
    """Log a generation in the flow run: the best so far and the spending."""
    best = "no reward yet"
    if finished.best_name is not None and finished.best_interval is not None:
        mean = number_text.interval(finished.best_mean, *finished.best_interval)
        best = f"best so far {mean}, {named_label(finished.best_name, '')}"
    failed = f", {finished.n_failed:,} failed" if finished.n_failed else ""
    known = finished.cost_usd
    spent = "" if known is None else f", {number_text.spent(known, finished.n_unpriced)}"
    _log(
        f"Generation {finished.generation:02d}: {plural(finished.n_evaluations, 'evaluation')}"
        f"{failed}; {best}; spent so far {plural(finished.n_calls, 'call')}{spent}"
    )


def _log(text: str) -> None:
    get_run_logger().info("%s", redacted_text(text))


def show_tags(run: Run, *, name: str | None = None) -> None:
    """Tag the flow run with its system, and optionally name it."""
    flow_run_id = runtime.flow_run.id
    if flow_run_id:
        tags = sorted({*runtime.flow_run.tags, run.tag})
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(flow_run_id), name=name, tags=tags)


def show_progress(run_id: str) -> None:
    """Advance the progress bar, and refresh old leaderboards and learning curves."""
    run = run_of(run_id)
    if run.next_generation == 0:
        return
    with _PROGRESS_LOCK:
        artifact_id = _PROGRESS.get(run_id)
        is_due = time.monotonic() - _SHOWN.get(run_id, 0.0) >= SHOWN_EVERY_S
        if is_due:
            _SHOWN[run_id] = time.monotonic()
    if artifact_id is not None:
        update_progress_artifact(artifact_id=artifact_id, progress=_percent(run))
    if is_due:
        when = f"after generation {run.next_generation - 1:02d}"
        _show_findings(run, collect_progress(run), when)


def show_result(run: Run, result: RunResult) -> None:
    """Show the final findings, the report and its location."""
    with _PROGRESS_LOCK:
        artifact_id = _PROGRESS.pop(run.run_id, None)
        _SHOWN.pop(run.run_id, None)
    if artifact_id is not None:
        update_progress_artifact(artifact_id=artifact_id, progress=100.0)
    verdict = verdict_of(result)
    _log(f"{ending(result)} {verdict.sentence} Next: {verdict.next_step} {verdict.command or ''}")
    _log(f"Spent {plural(result.n_calls, 'call')}, {spend(result)}")
    _show_findings(run, result, "at its end")
    _show_text(run, "report", report_markdown(result), run.label)
    _show_text(
        run, "report-page", report_location(run, result), f"Links and report of {run.label}"
    )


def show_rounds(run: Run) -> None:
    """Show the result of rounds without an optimization."""
    report = preference_report(run.store, run.run_id, run.record.name)
    if report is not None:
        _show_text(
            run,
            "preferences",
            markdown_of(preference_blocks(report)),
            f"Preferences of {run.label}",
        )


def show_training(reports: "Sequence[RoundReport]") -> None:
    """Show each role's training result and the checks of its new adapter."""
    rows = [
        {
            "role": report.role,
            "status": report.status,
            "version": report.version or number_text.UNKNOWN,
            "check": check.name if check is not None else number_text.UNKNOWN,
            "passed": check.passed if check is not None else None,
            "measured": check.measured if check is not None else None,
            "limit": check.threshold if check is not None else None,
            "verdict": redacted_text(check.words if check is not None else report.sentence),
        }
        for report in reports
        for check in (report.checks or (None,))
    ]
    create_table_artifact(
        key="training", table=rows, description="New adapters and the verdicts on them"
    )


def show_games(report: "GamesReport") -> None:
    """Show a round of language games: plays, cost, and which games are kept and why."""
    name = "".join(c if c.isalnum() else "-" for c in report.system.lower())
    create_markdown_artifact(
        markdown=redacted_text(markdown_of(games_blocks(report))),
        key=f"{name}-games",
        description=f"Language games of {report.system}",
    )


def report_location(run: Run, result: RunResult) -> str:
    """Return links to a run's artifacts, its report's path and the command that rewrites it.

    The links are relative to the server, whatever its address. Browsers do not follow links to
    files.
    """
    shown = {
        "report": "Report in words",
        "leaderboard": "Leaderboard",
        "learning-curve": "Learning curve",
        "spend": "Spend",
    }
    if result.prompts is not None:
        shown["prompts"] = "Prompt edits"
    links = "\n".join(
        f"- [{title}](/artifacts/key/{_key(run, name)})" for name, title in shown.items()
    )
    text = f"On this server:\n\n{links}\n"
    if runtime.flow_run.id:
        text += f"- [Flow run](/runs/flow-run/{runtime.flow_run.id})\n"
    page = result.files.get("report.html")
    if page is None:
        return text
    command = shlex.join(
        [
            "convergence", "report", run.label,
            "--format", "html", "--output", "report.html", "--store", str(run.store.path),
        ]
    )  # fmt: skip
    return (
        f"{text}\nThe report with its plots is a file on the machine that made it. Open it there:\n\n"
        f"{_block(str(Path(page).resolve()))}\n\nAnywhere that sees the store, this writes it again:\n\n"
        f"{_block(command)}\n"
    )


def show_thought(run_id: str) -> None:
    """Show the hypothesis of the generation in progress, with its gain and the weights."""
    run = run_of(run_id)
    step = run.learner_step("rlp")
    if step is None:
        return
    payloads, updates = step.tables["payloads"], step.tables["policy_updates"]
    row: dict[str, Any] = dict(step.tables["thoughts"][0])
    stats: dict[str, float] = dict(updates[0]["stats"]) if updates else {}  # type: ignore[call-overload]  # a map of numbers
    gain: float | None = row["information_gain"]
    numbers = {
        "kind": row["agent_id"],
        "information gain, nats": number_text.UNKNOWN if gain is None else f"{gain:+.2f}",
        "forecasts scored": row["n_outcomes"],
        "proposed settings": row["n_own"],
        "weight in the draws before": f"{row['weight']:.3f}",
        **{name: f"{stats[name]:.3f}" for name in sorted(stats) if name.startswith(("p_", "w_"))},
    }
    text = _block(redacted_text(str(payloads[0]["text"]))) if payloads else str(row["reason"])
    grid = Grid(
        ("number", "value"), tuple((name, str(number)) for name, number in numbers.items())
    )
    markdown = f"{markdown_of([grid])}\n{text}\n"
    title = f"Thought of generation {row['generation']:02d} of {run.label}"
    _show_text(run, "thought", markdown, title)


def _show_findings(run: Run, result: RunResult, when: str) -> None:
    of = f"of {run.label} {when}"
    picture = base64.b64encode(learning_curve_png(result)).decode("ascii")
    spent = spending(result, run.configuration.budget, run.spent)
    _show_leaderboard(run, result, f"Leaderboard {of}, highest {RANKED_BY} first")
    curve = f"![learning curve](data:image/png;base64,{picture})"
    _show_text(run, "learning-curve", curve, f"Learning curve {of}")
    _show_text(run, "spend", markdown_of(spent), f"Spend {of}")
    for name, blocks in learner_blocks(result).items():
        _show_text(run, name, markdown_of(blocks), f"{name.capitalize()} {of}")


def _show_text(run: Run, name: str, markdown: str, title: str) -> None:
    create_markdown_artifact(markdown=markdown, key=_key(run, name), description=title)


def _show_leaderboard(run: Run, result: RunResult, title: str) -> None:
    """Show the rows with rank, name and order first, since a page is narrower than the table."""
    grid = leaderboard_grid(result, 10)
    rows = [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]
    table = [{name: row[name] for name in FIRST} | row for row in rows]
    create_table_artifact(table=table, key=_key(run, "leaderboard"), description=title)


def _key(run: Run, artifact: str) -> str:
    """Return the key of an artifact; artifacts of one key form a history over runs."""
    name = "".join(c if c.isalnum() else "-" for c in run.record.name.lower())
    return f"{name}-{artifact}"


def _block(text: str) -> str:
    """Return a string as a code block, which a page offers to copy."""
    return "    " + " ".join(text.splitlines())


def _percent(run: Run) -> float:
    return round(100.0 * run.next_generation / run.study.schedule.n_generations, 1)
