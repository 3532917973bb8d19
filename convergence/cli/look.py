"""``runs``, ``report`` and ``query``: commands that read results, without Prefect."""

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.finished_runs import finished_run
from convergence_core.errors import QueryError
from tasks.store.tables.csv_cells import csv_writer

if TYPE_CHECKING:
    from convergence_core.ports import RunRecord
    from convergence_core.result import RunResult
    from tasks.store.tables.query import QueryResult

MOST_ROWS = 1_000
"""Rows of a table in the terminal; laying out more takes longer than the query."""


class QueryFormat(StrEnum):
    """Formats of a query's result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


class ReportFormat(StrEnum):
    """Formats of a report."""

    MD = "md"
    HTML = "html"
    JSON = "json"


def runs(
    system: options.System = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """List the runs of a store, latest first."""
    opened = locations.open_store(store, config)
    from tasks.store.tables.interrupted_runs import with_current_status  # noqa: PLC0415 - brings SQLite
    from tasks.store.tables.lineage import PARTS  # noqa: PLC0415 - as above

    records = with_current_status(opened, opened.runs(system))

    def show() -> None:
        if not records:
            of = f" of {system}" if system else ""
            console.say(f"The store {console.short_path(opened.path)} holds no runs{of} yet.")
            return
        console.show(console.table_of(records, _COLUMNS, right=("generations", "reward", "seed")))
        for record in records:
            if record.status == "interrupted" and not PARTS & {*record.tags}:
                options = locations.resume_options(store, config, offline="offline" in record.tags)
                console.say(f"Continue with: convergence resume {record.label}{options}")

    console.emit([_run_row(record) for record in records], show)


def _run_row(record: "RunRecord") -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "label": record.label,
        "system": record.name,
        "status": record.status,
        "started_at": _time(record.started_us),
        "ended_at": _time(record.ended_us),
        "generations": record.n_generations,
        "seed": record.seed,
        "reason": record.reason,
        "config_path": record.config_path,
        "result": None if record.summary_json is None else json.loads(record.summary_json),
    }


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)


def _reward(record: "RunRecord") -> str:
    """Return the recommended candidate's least biased mean reward, and its kind."""
    summary = json.loads(record.summary_json) if record.summary_json else {}
    winner = summary.get("winner") or {}
    for role, kind in (("holdout", "held-out"), ("fresh", "repeated"), ("search", "posterior")):
        if winner.get(role):
            return f"{winner[role]['mean']:.3f} {kind}"
    return ""


def _started(record: "RunRecord") -> str:
    started = _time(record.started_us)
    return f"{started:%Y-%m-%d %H:%M}" if started else ""


_COLUMNS: dict[str, Callable[["RunRecord"], str]] = {
    "run": lambda record: record.label,
    "status": lambda record: record.status,
    "started": _started,
    "generations": lambda record: str(record.n_generations),
    "reward": _reward,
    "seed": lambda record: str(record.seed),
    "reason": lambda record: record.reason or "",
}


def query(  # noqa: PLR0917 - Typer's options
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help='One SELECT; "-" reads it from standard input.')
    ],
    form: Annotated[
        QueryFormat, options.format_option(help="parquet needs --output.")
    ] = QueryFormat.TABLE,
    output: Annotated[
        Path | None, options.output_option(help="Write csv, json or parquet to this file.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="Value for $NAME in the SQL; numbers, true, false and null are read as such. Repeatable.",
        ),
    ] = None,
    store: options.Store = None,
    config: options.Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Query the results store in SQL.

    The dialect is DuckDB's, read-only. "show tables" lists the views, "describe runs" the columns of
    one view.
    """
    form = QueryFormat.JSON if as_json else form
    console.settings.json = form is QueryFormat.JSON and output is None
    if form is QueryFormat.PARQUET and output is None:
        raise QueryError("--format parquet needs a file. Add --output FILE.")
    if form is QueryFormat.TABLE and output is not None:
        raise QueryError("--output needs --format csv, json or parquet. Add one of them.")
    parameters = _parameters(param or [])
    text = sys.stdin.read() if sql == "-" else sql
    opened = locations.open_store(store, config)
    if form is QueryFormat.PARQUET and output is not None:
        opened.export(text, output, parameters)
        console.say(f"Wrote {output}.")
        return
    result = opened.query(text, parameters)
    match form:
        case QueryFormat.JSON:
            rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
            console.write(console.json_text(rows), output)
        case QueryFormat.CSV:
            console.write(_csv_text(result), output)
        case _:
            _show_table(result)


def _show_table(result: "QueryResult") -> None:
    numeric = [
        name
        for name, kind in zip(result.columns, result.types, strict=True)
        if kind.startswith(("DOUBLE", "FLOAT", "DECIMAL")) or "INT" in kind
    ]
    cells = [[_cell(value) for value in row] for row in result.rows[:MOST_ROWS]]
    console.show(console.simple_table(result.columns, cells, right=numeric))
    n = len(result.rows)
    console.say(f"{n:,} row{'' if n == 1 else 's'}")
    if n > MOST_ROWS:
        console.say(f"Shown: the first {MOST_ROWS:,}; --format csv or json has all.")


def _csv_text(result: "QueryResult") -> str:
    text = io.StringIO()
    write_row = csv_writer(text)
    write_row(result.columns)
    for row in result.rows:
        write_row([_csv_cell(value) for value in row])
    return text.getvalue()


def _parameters(assignments: Sequence[str]) -> dict[str, object]:
    parameters: dict[str, object] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise QueryError(
                f"--param must be NAME=VALUE, but got {text!r}. Write e.g. --param n=10."
            )
        parameters[name] = _value(value)
    return parameters


def _value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, bool | int | float) else text


def _cell(value: object) -> str:
    """Return a value as a table cell."""
    plain = console.plain(value)
    if plain is None:
        return ""
    if isinstance(plain, float):
        return f"{plain:.6g}"
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _csv_cell(value: object) -> object:
    """Return a value as a CSV cell: lists and maps as JSON, an unknown value as empty."""
    plain = console.plain(value)
    if isinstance(plain, Mapping | list | bool):
        return json.dumps(plain, ensure_ascii=False)
    return plain


def report(  # noqa: PLR0917 - Typer's options
    run: options.FinishedRun = None,
    form: Annotated[
        ReportFormat, options.format_option(help="Format; html has plots and needs no network.")
    ] = ReportFormat.MD,
    output: options.Output = None,
    store: options.Store = None,
    config: options.Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Show the report of a finished run, with intervals and plots."""
    form = ReportFormat.JSON if as_json else form
    console.settings.json = form is ReportFormat.JSON and output is None
    opened = locations.open_store(store, config)
    from tasks.run.adoption import stored_result  # noqa: PLC0415 - brings pydantic

    record = finished_run(opened, run)
    console.write(_rendered(stored_result(record, opened.path), form), output)


def _rendered(result: "RunResult", form: ReportFormat) -> str:
    from convergence_core.result import result_json  # noqa: PLC0415 - brings pydantic

    match form:
        case ReportFormat.JSON:
            return console.json_text(result_json(result))
        case ReportFormat.HTML:
            from tasks.report.page import report_html  # noqa: PLC0415 - as above

            return report_html(result)
        case ReportFormat.MD:
            from tasks.report.markdown import report_markdown  # noqa: PLC0415 - with its only user

            return report_markdown(result)
