"""SQL for users: documented questions, and any SELECT within limits."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from convergence_core.errors import QueryError
from convergence_core.records import Json
from tasks.pages.source import Page, PageFile, PageSource
from tasks.pages.sql_child import MEMORY
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened
from tasks.store.tables.csv_cells import csv_writer
from tasks.store.tables.tables import TABLES
from tasks.store.tables.views import DERIVED

MOST_ROWS = 10_000
MOST_CSV = 200_000
LONGEST_SQL = 20_000
LONGEST_CELL = 10_000
SECONDS = 10.0
AT_ONCE = 2
"""Maximum concurrent queries; others wait."""
_PLACES = threading.BoundedSemaphore(AT_ONCE)
RUN_TABLES = (
    *("leaderboard", "learning_curve", "evaluations", "candidates", "estimates", "attempts"),
    *("metrics", "parameters", "costs", "failures", "final_estimates", "generations", "thoughts"),
    *("preferences", "preference_rounds"),
)
"""Tables and views of one run that pages offer as CSV."""

QUESTIONS: Mapping[str, str] = {
    "How did my runs end?": "select label, status, reason, n_generations, started_at from runs order by started_at desc;",
    "Which configurations lead each run, and which one is recommended?": "select label, rank, recommended, candidate_id, posterior_mean, posterior_low, posterior_high, n_cases, params_json from leaderboard join runs using (run_id) where rank <= 3 order by label, rank;",
    "How did the run learn?": "select run_id, generation, recommended_id, best_so_far, best_low, best_high, cumulative_evaluations from learning_curve order by all;",
    "How did configurations score on held-out cases?": "select run_id, recommended, candidate_id, mean_reward, low, high, n_cases from final_estimates where role = 'holdout' order by run_id, recommended desc;",
    "Which test cases are hardest?": "select case_id, avg(reward) as mean, count(*) as n from evaluations where role = 'search' group by all order by mean limit 10;",
    "What failed, and why?": "select fault, error_type, count(*) as n, any_value(error) as example from evaluations where status <> 'ok' group by all order by n desc;",
    "How many calls did each run make, and what did they cost?": "select run_id, purpose, sum(n_calls) as n_calls, sum(cost_usd) as cost_usd, sum(n_unpriced) as n_unpriced from costs group by all order by all;",
    "How fast is each candidate?": "select candidate_id, median(latency_ms) as p50_ms, quantile_cont(latency_ms, 0.95) as p95_ms from evaluations group by all order by p50_ms;",
    "Which source of candidates worked best?": "select origin, count(*) as n, avg(posterior_mean) as mean, max(posterior_mean) as highest from leaderboard group by all order by highest desc;",
    "How does one metric move with one parameter?": "select parameter, p.value, metric, avg(m.value) as mean from parameters p join metrics m using (run_id, candidate_id) group by all order by all limit 20;",
}  # fmt: skip
"""Ten questions in SQL, on the SQL page and in docs/tables.md."""


def questions(source: PageSource) -> Page:
    """Return the documented questions, and the tables with their columns."""
    tables = {name: [column.name for column in table.columns] for name, table in TABLES.items()}
    for name in DERIVED:
        empty = f"SELECT * FROM {name} LIMIT 0"  # noqa: S608 - one of our names
        tables[name] = list(source.store.query(empty).columns)
    return {
        "questions": [{"title": title, "sql": sql} for title, sql in QUESTIONS.items()],
        "tables": tables,
    }


def free_sql(source: PageSource, sql: str, most: int) -> Page:
    """Return the first rows of one SELECT.

    Raises:
        QueryError: it is not a SELECT, is wrong, or exceeds a limit.
    """
    begun = time.perf_counter()
    columns, rows = _selected(source, sql, most + 1)
    return {
        "columns": columns,
        "rows": rows[:most],
        "n_rows": min(len(rows), most),
        "cut": len(rows) > most,
        "ms": round((time.perf_counter() - begun) * 1000, 1),
    }


def free_sql_csv(source: PageSource, sql: str, name: str = "query.csv") -> PageFile:
    """Return the rows of one SELECT as CSV, safe for spreadsheets.

    Raises:
        QueryError: see ``free_sql``.
    """
    columns, rows = _selected(source, sql, MOST_CSV)
    text = io.StringIO()
    write_row = csv_writer(text)
    write_row([column["name"] for column in columns])
    for row in rows:
        write_row(["" if value is None else value for value in row])
    return PageFile(
        name=name, content=text.getvalue().encode(), media_type="text/csv; charset=utf-8"
    )


def _selected(
    source: PageSource, sql: str, most: int
) -> tuple[list[dict[str, str]], list[list[Json]]]:
    """Return columns and rows of a SELECT from a child process with a time limit."""
    if len(sql) > LONGEST_SQL:
        raise QueryError(f"a query must have at most {LONGEST_SQL:,} characters.")
    if not _PLACES.acquire(timeout=SECONDS):
        raise QueryError(f"at most {AT_ONCE} queries run at once. Try again when one has ended.")
    try:
        answered = _answer({"root": str(source.store.path), "sql": sql, "most": most})
    finally:
        _PLACES.release()
    if "error" in answered:
        raise QueryError(redacted_text(answered["error"]))
    rows = [
        [
            shortened(value, LONGEST_CELL, redacted_text) if isinstance(value, str) else value
            for value in row
        ]
        for row in answered["rows"]
    ]
    return answered["columns"], rows


def _answer(request: Mapping[str, object]) -> Page:
    command = [sys.executable, "-P", "-m", "tasks.pages.sql_child"]
    # Without the secrets in this process's environment.
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(  # noqa: S603 - ours
        command,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        try:
            if child.stdout is not None:
                child.stdout.readline()  # ``ready``: its time starts now
            answer, _ = child.communicate(json.dumps(request), timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            message = f"a query must end within {SECONDS:g} seconds. Query less."
            raise QueryError(message) from error
        finally:
            child.kill()
    if child.returncode or not answer:
        raise QueryError(f"a query must use at most {MEMORY} of memory. Query less.")
    answered: Page = json.loads(answer)
    return answered
