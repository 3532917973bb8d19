"""Artifacts of a run in Prefect: progress, leaderboard, learning curve, links.

Artifacts are a courtesy to people who watch; nothing reads them back. They are written per
generation, never per evaluation, while its calls are under way: tables and pictures cost half a
second. Where generations take a moment only, they are written every few seconds and at the end.
"""

import base64
import shlex
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from prefect import get_client, get_run_logger, runtime
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from convergence_core.budget.terms import Limits
from convergence_core.events import RunNotice
from convergence_core.result import RunResult
from tasks.notify.system_events import budget_events
from tasks.report.markdown import markdown_of, report_markdown
from tasks.report.plots import learning_curve_png
from tasks.report.rlp_section import thinking_blocks
from tasks.report.sao_section import preference_blocks, preference_report
from tasks.report.tables import leaderboard_rows, racing_rows, spending
from tasks.run.active_runs import run_of
from tasks.run.result import collect_progress
from tasks.run.run import Run

NAME = "configuration"
"""Column that names a candidate."""
SHOWN_EVERY_S = 15.0
"""Seconds from one leaderboard and picture to the next, at least."""
_PROGRESS: dict[str, UUID] = {}
_SHOWN: dict[str, float] = {}
"""Run → when they were last shown, or the run was, by the monotonic clock."""
_PROGRESS_LOCK = threading.Lock()


def notices(system: str) -> Callable[[RunNotice], None]:
    """Return what writes notices of budget and providers into this flow run's log.

    Of what is spent it emits events, too. Notices come from the session's own thread, which Prefect
    knows nothing of.
    """
    logger, emit = get_run_logger(), budget_events(system)

    def tell(notice: RunNotice) -> None:
        logger.warning("%s", notice.text)
        emit(notice)

    return tell


def show_start(run: Run) -> None:
    """Name the flow run after the run, tag it, and begin its progress bar."""
    show_tags(run, name=run.label)
    artifact_id = create_progress_artifact(
        progress=_percent(run), key=_key(run, "progress"), description=f"Search of {run.label}"
    )
    assert isinstance(artifact_id, UUID)  # noqa: S101 - a coroutine only in async flows
    with _PROGRESS_LOCK:
        _PROGRESS[run.run_id] = artifact_id
        _SHOWN[run.run_id] = time.monotonic()


def show_tags(run: Run, *, name: str | None = None) -> None:
    """Give the flow run the tag of its system, and a name if there is one."""
    flow_run_id = runtime.flow_run.id
    if flow_run_id:
        tags = sorted({*runtime.flow_run.tags, run.tag})
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(flow_run_id), name=name, tags=tags)


def show_progress(run_id: str) -> None:
    """Move the bar; show leaderboard and learning curve so far if the last ones have aged."""
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
    """Show the last findings, the report in words and where its files are."""
    with _PROGRESS_LOCK:
        artifact_id = _PROGRESS.pop(run.run_id, None)
        _SHOWN.pop(run.run_id, None)
    if artifact_id is not None:
        update_progress_artifact(artifact_id=artifact_id, progress=100.0)
    _show_findings(run, result, "at its end")
    _show_text(run, "report", report_markdown(result), run.label)
    page = result.files.get("report.html")
    if page is not None:
        location = report_location(run, Path(page).resolve())
        title = f"Report of {run.label}, on the machine that made it"
        _show_text(run, "report-page", location, title)


def show_rounds(run: Run) -> None:
    """Show what rounds without an optimization came to."""
    report = preference_report(run.store, run.run_id, run.record.name)
    if report is not None:
        _show_text(
            run,
            "preferences",
            markdown_of(preference_blocks(report)),
            f"Preferences of {run.label}",
        )


def report_location(run: Run, page: Path) -> str:
    """Return where a report lies and what shows it; browsers follow no link from here to a file."""
    command = shlex.join(
        [
            "convergence", "report", run.label,
            "--format", "html", "--output", "report.html", "--store", str(run.store.path),
        ]
    )  # fmt: skip
    return (
        "The report with its plots is a file on the machine that made it. Open it there:\n\n"
        f"{_block(str(page))}\n\nAnywhere that sees the store, this writes it again:\n\n"
        f"{_block(command)}\n"
    )


def _show_findings(run: Run, result: RunResult, when: str) -> None:
    of = f"of {run.label} {when}"
    picture = base64.b64encode(learning_curve_png(result)).decode("ascii")
    spent = spending(result, Limits.of(run.configuration.budget), run.spent)
    racing = f"Racing {of}: who got how many cells"
    _show_table(run, "leaderboard", leaderboard_rows(result, n=10), f"Leaderboard {of}")
    curve = f"![learning curve](data:image/png;base64,{picture})"
    _show_text(run, "learning-curve", curve, f"Learning curve {of}")
    _show_text(run, "spend", markdown_of(spent), f"Spend {of}")
    _show_table(run, "racing", racing_rows(run.store, result), racing)
    if result.thinking is not None:
        _show_text(
            run, "thoughts", markdown_of(thinking_blocks(result.thinking)), f"Thoughts {of}"
        )
    if result.preferences is not None:
        preferences = markdown_of(preference_blocks(result.preferences))
        _show_text(run, "preferences", preferences, f"Preferences {of}")


def _show_text(run: Run, what: str, markdown: str, title: str) -> None:
    create_markdown_artifact(markdown=markdown, key=_key(run, what), description=title)


def _show_table(run: Run, what: str, rows: list[dict[str, str]], title: str) -> None:
    """Show rows with the long name at the end: a page shows the first columns of a wide table."""
    table = [
        {name: text for name, text in row.items() if name != NAME} | {NAME: row[NAME]}
        for row in rows
    ]
    create_table_artifact(table=table, key=_key(run, what), description=title)


def _key(run: Run, what: str) -> str:
    """Return an artifact key: artifacts of one key form a history over runs."""
    name = "".join(c if c.isalnum() else "-" for c in run.record.name.lower())
    return f"{name}-{what}"


def _block(text: str) -> str:
    """Return text as a block of code, which a page offers to copy."""
    return "    " + " ".join(text.splitlines())


def _percent(run: Run) -> float:
    return round(100.0 * run.next_generation / run.study.schedule.n_generations, 1)
