"""Addresses of the pages' data and their handlers."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request

from convergence.service.problems import RequestRefusedError
from convergence_core.errors import QueryError
from convergence_core.ports import RunRecord
from tasks.pages import (
    adapters,
    allocation,
    case_matrix,
    cell,
    conversations,
    free_sql,
    overview,
    production,
    prompt_tree,
    review,
    run_summary,
    search_course,
    side_by_side,
    writes,
)
from tasks.pages.source import Page, PageFile, PageSource

MOST_PAGE = 200
"""Cases, or candidates, on one page of the matrix."""
_NAME = re.compile(r"[^\w.-]+")


def _text(request: Request, name: str, default: str | None = None) -> str:
    """Return a query parameter.

    Raises:
        RequestRefusedError: it is missing.
    """
    value = request.query_params.get(name, default)
    if value is None:
        raise RequestRefusedError(422, f"`{name}` must be given.")
    return value


def _number(request: Request, name: str, default: int, low: int, high: int) -> int:
    """Return a query parameter as a whole number.

    Raises:
        RequestRefusedError: it is not a whole number, or out of range.
    """
    text = request.query_params.get(name, "").strip() or str(default)
    if not text.isdecimal() or len(text) > 12 or not low <= int(text) <= high:
        raise RequestRefusedError(422, f"`{name}` must be a number from {low:,} to {high:,}.")
    return int(text)


def _placed(work: Callable[..., Any], **queries: str | None) -> Callable[..., Any]:
    """Return a handler that passes the store, path and query to ``work``.

    Args:
        work: gets the source, the names in the path (a run as its record), texts of the query, and
            the body of a writing request.
        queries: query parameter → default; ``None`` means required.
    """

    def handle(source: PageSource, request: Request, *body: Mapping[str, Any]) -> Any:
        texts = [_text(request, name, default) for name, default in queries.items()]
        names = [
            source.run(value) if name == "run" else value
            for name, value in request.path_params.items()
        ]
        return work(source, *names, *texts, *body)

    return handle


def _matrix(source: PageSource, request: Request) -> Page:
    return case_matrix.case_matrix(
        source,
        source.run(request.path_params["run"]),
        order=_text(request, "filter", "all"),
        search=_text(request, "search", ""),
        case_from=_number(request, "case_from", 0, 0, 10**9),
        n_cases=_number(request, "n_cases", 50, 1, MOST_PAGE),
        candidate_from=_number(request, "candidate_from", 0, 0, 10**9),
        n_candidates=_number(request, "n_candidates", 50, 1, MOST_PAGE),
    )


def _runs(source: PageSource, run: str) -> Page:
    """Return the rows of all runs, or of the named one."""
    return {"runs": overview.run_rows(source, [source.run(run)] if run else None)}


def _sql(source: PageSource, request: Request) -> Page:
    most = _number(request, "limit", free_sql.MOST_ROWS, 1, free_sql.MOST_ROWS)
    return free_sql.free_sql(source, _text(request, "q"), most)


def _table_csv(source: PageSource, record: RunRecord, table: str) -> PageFile:
    if table not in free_sql.RUN_TABLES:
        raise QueryError(f"`of` must be one of {', '.join(free_sql.RUN_TABLES)}.")
    sql = f"SELECT * FROM {table} WHERE run_id = '{record.run_id}'"  # noqa: S608 - a fixed table name
    return free_sql.free_sql_csv(source, sql, f"{_NAME.sub('-', record.label)}-{table}.csv")


def _release(flow_run_id: str) -> None:
    from deployments.nightly.services import release  # noqa: PLC0415 - only if one may wait

    release(flow_run_id)


READS: Mapping[str, Callable[[PageSource, Request], Any]] = {
    "overview": _placed(overview.overview),
    "runs": _placed(_runs, of=""),
    "runs/{run}": _placed(run_summary.run_page),
    "runs/{run}/leaderboard": _placed(search_course.leaderboard),
    "runs/{run}/allocation": _placed(allocation.allocation),
    "runs/{run}/answers": _matrix,
    "runs/{run}/cell": _placed(cell.cell, candidate=None, case=None),
    "runs/{run}/prompts": _placed(prompt_tree.prompt_tree, parameter=""),
    "runs/{run}/table.csv": _placed(_table_csv, of="leaderboard"),
    "runs/{run}/text": _placed(cell.whole_text, eval=None, kind="answer"),
    "compare": _placed(side_by_side.side_by_side, a=None, b=None),
    "production": _placed(production.production),
    "production/{system}": _placed(production.production),
    "conversations": _placed(conversations.conversations, user=""),
    "conversation": _placed(conversations.conversation, id=None, user=None),
    "review": _placed(review.review),
    "training": _placed(adapters.training),
    "training/{role:path}": _placed(adapters.training),
    "sql": _sql,
    "sql.csv": _placed(free_sql.free_sql_csv, q=None),
    "sql/questions": _placed(free_sql.questions),
}
"""Address below ``/ui/api/`` → function that returns JSON or a file."""

WRITES: Mapping[str, Callable[[PageSource, Request, Mapping[str, Any]], str]] = {
    "production/{system}/promote": _placed(partial(writes.promote, release=_release)),
    "production/{system}/rollback": _placed(writes.roll_back),
    "review/approve": _placed(review.approve),
    "review/reject": _placed(review.reject),
    "training/{role:path}/activate": _placed(adapters.activate),
    "training/{role:path}/rollback": _placed(adapters.roll_back),
    "runs/{run}/stop": _placed(writes.stop),
    "runs/{run}/resume": _placed(writes.resume),
}
"""Address → function that changes something and returns a sentence about it."""
