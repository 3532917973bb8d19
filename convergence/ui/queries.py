"""Addresses of the pages' data, and what each reads."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from convergence.service.problems import RequestRefusedError
from convergence_core.errors import QueryError
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
"""Cases, or candidates, of one page of the matrix."""
_NAME = re.compile(r"[^\w.-]+")


def _text(request: Request, name: str, default: str | None = None) -> str:
    """Return a parameter of the address.

    Raises:
        RequestRefusedError: it is not given.
    """
    value = request.query_params.get(name, default)
    if value is None:
        raise RequestRefusedError(422, f"`{name}` must be given.")
    return value


def _number(request: Request, name: str, default: int, low: int, high: int) -> int:
    """Return a whole number of the address.

    Raises:
        RequestRefusedError: it is none, or out of its range.
    """
    text = request.query_params.get(name, "").strip() or str(default)
    if not text.isdecimal() or len(text) > 12 or not low <= int(text) <= high:
        raise RequestRefusedError(422, f"`{name}` must be a number from {low:,} to {high:,}.")
    return int(text)


def _run(read: Callable[..., Page]) -> Callable[[PageSource, Request], Page]:
    """Return what reads a page of the run in the address."""
    return lambda source, request: read(source, source.run(request.path_params["run"]))


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


def _run_rows(source: PageSource, run: str) -> list[Page]:
    """Return the rows of all runs, or of one."""
    return overview.run_rows(source, [source.run(run)] if run else None)


def _cell(source: PageSource, request: Request) -> Page:
    record = source.run(request.path_params["run"])
    return cell.cell(source, record, _text(request, "candidate"), _text(request, "case"))


def _sql(source: PageSource, request: Request) -> Page:
    most = _number(request, "limit", free_sql.MOST_ROWS, 1, free_sql.MOST_ROWS)
    return free_sql.free_sql(source, _text(request, "q"), most)


def _sql_csv(source: PageSource, request: Request) -> PageFile:
    return free_sql.free_sql_csv(source, _text(request, "q"), "query.csv")


def _table_csv(source: PageSource, request: Request) -> PageFile:
    record, table = source.run(request.path_params["run"]), _text(request, "of", "leaderboard")
    if table not in free_sql.RUN_TABLES:
        raise QueryError(f"`of` must be one of {', '.join(free_sql.RUN_TABLES)}.")
    sql = f"SELECT * FROM {table} WHERE run_id = '{record.run_id}'"  # noqa: S608 - one of our names
    return free_sql.free_sql_csv(source, sql, f"{_NAME.sub('-', record.label)}-{table}.csv")


def _whole_text(source: PageSource, request: Request) -> PageFile:
    record = source.run(request.path_params["run"])
    return cell.whole_text(
        source, record, _text(request, "eval"), _text(request, "kind", "answer")
    )


def _release(flow_run_id: str) -> None:
    from deployments.nightly.services import release  # noqa: PLC0415 - only where one may wait

    release(flow_run_id)


PAGES: Mapping[str, Callable[[PageSource, Request], Any]] = {
    "overview": lambda source, _: overview.overview(source),
    "runs": lambda source, request: {"runs": _run_rows(source, _text(request, "of", ""))},
    "runs/{run}": _run(run_summary.run_page),
    "runs/{run}/leaderboard": _run(search_course.leaderboard),
    "runs/{run}/allocation": _run(allocation.allocation),
    "runs/{run}/answers": _matrix,
    "runs/{run}/cell": _cell,
    "runs/{run}/prompts": lambda source, request: prompt_tree.prompt_tree(
        source, source.run(request.path_params["run"]), _text(request, "parameter", "")
    ),
    "compare": lambda source, request: side_by_side.side_by_side(
        source, _text(request, "a"), _text(request, "b")
    ),
    "production": lambda source, _: production.production(source),
    "production/{system}": lambda source, request: production.production(
        source, request.path_params["system"]
    ),
    "conversations": lambda source, request: conversations.conversations(
        source, _text(request, "user", "")
    ),
    "conversation": lambda source, request: conversations.conversation(
        source, _text(request, "id"), _text(request, "user")
    ),
    "review": lambda source, _: review.review(source),
    "training": lambda source, _: adapters.training(source),
    "training/{role:path}": lambda source, request: adapters.training(
        source, request.path_params["role"]
    ),
    "sql": _sql,
    "sql/questions": lambda source, _: free_sql.questions(source),
}
"""Address below ``/ui/api/`` → what is answered as JSON."""

DOWNLOADS: Mapping[str, Callable[[PageSource, Request], PageFile]] = {
    "sql.csv": _sql_csv,
    "runs/{run}/table.csv": _table_csv,
    "runs/{run}/text": _whole_text,
}
"""Address → what is answered as a file."""

WRITES: Mapping[str, Callable[[PageSource, Request, Mapping[str, Any]], str]] = {
    "production/{system}/promote": lambda source, request, body: writes.promote(
        source, request.path_params["system"], body, _release
    ),
    "production/{system}/rollback": lambda source, request, body: writes.roll_back(
        source, request.path_params["system"], body
    ),
    "review/approve": lambda source, _, body: review.approve(source, body),
    "review/reject": lambda source, _, body: review.reject(source, body),
    "training/{role:path}/activate": lambda source, request, body: adapters.activate(
        source, request.path_params["role"], body
    ),
    "training/{role:path}/rollback": lambda source, request, body: adapters.roll_back(
        source, request.path_params["role"], body
    ),
    "runs/{run}/stop": lambda source, request, body: writes.stop(
        source, source.run(request.path_params["run"]), body
    ),
    "runs/{run}/resume": lambda source, request, body: writes.resume(
        source, source.run(request.path_params["run"]), body
    ),
}
"""Address → what changes something, and says so in a sentence."""
