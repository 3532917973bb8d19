"""Addresses of the pages' data, and what each reads."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Parts of a request's address."""

    path: Mapping[str, str]
    query: Mapping[str, str]

    @classmethod
    def of(cls, request: Request) -> "Query":
        """Return those of a request."""
        return cls(path=request.path_params, query=request.query_params)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter.

        Raises:
            RequestRefusedError: it is not given.
        """
        value = self.query.get(name, default)
        if value is None:
            raise RequestRefusedError(422, f"`{name}` must be given.")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number.

        Raises:
            RequestRefusedError: it is none, or out of its range.
        """
        text = self.query.get(name, "").strip() or str(default)
        if not text.isdecimal() or len(text) > 12 or not low <= int(text) <= high:
            raise RequestRefusedError(422, f"`{name}` must be a number from {low:,} to {high:,}.")
        return int(text)


def _run(read: Callable[..., Page]) -> Callable[[PageSource, Query], Page]:
    """Return what reads a page of the run in the address."""
    return lambda source, query: read(source, source.run(query.path["run"]))


def _matrix(source: PageSource, query: Query) -> Page:
    return case_matrix.case_matrix(
        source,
        source.run(query.path["run"]),
        case_matrix.MatrixQuery(
            order=query.text("filter", "all"),
            search=query.text("search", ""),
            case_from=query.number("case_from", 0, 0, 10**9),
            n_cases=query.number("n_cases", 50, 1, MOST_PAGE),
            candidate_from=query.number("candidate_from", 0, 0, 10**9),
            n_candidates=query.number("n_candidates", 50, 1, MOST_PAGE),
        ),
    )


def _cell(source: PageSource, query: Query) -> Page:
    record = source.run(query.path["run"])
    return cell.cell(source, record, query.text("candidate"), query.text("case"))


def _sql(source: PageSource, query: Query) -> Page:
    most = query.number("limit", free_sql.MOST_ROWS, 1, free_sql.MOST_ROWS)
    return free_sql.free_sql(source, query.text("q"), most)


def _sql_csv(source: PageSource, query: Query) -> PageFile:
    return free_sql.free_sql_csv(source, query.text("q"), "query.csv")


def _table_csv(source: PageSource, query: Query) -> PageFile:
    record, table = source.run(query.path["run"]), query.text("of", "leaderboard")
    if table not in free_sql.RUN_TABLES:
        raise QueryError(f"`of` must be one of {', '.join(free_sql.RUN_TABLES)}.")
    sql = f"SELECT * FROM {table} WHERE run_id = '{record.run_id}'"  # noqa: S608 - one of our names
    return free_sql.free_sql_csv(source, sql, f"{_NAME.sub('-', record.label)}-{table}.csv")


def _text(source: PageSource, query: Query) -> PageFile:
    record = source.run(query.path["run"])
    return cell.whole_text(source, record, query.text("eval"), query.text("kind", "answer"))


def _release(flow_run_id: str) -> None:
    from deployments.nightly.services import release  # noqa: PLC0415 - only where one may wait

    release(flow_run_id)


PAGES: Mapping[str, Callable[[PageSource, Query], Any]] = {
    "overview": lambda source, _: overview.overview(source),
    "runs": lambda source, _: {"runs": overview.run_rows(source)},
    "runs/{run}": _run(run_summary.run_page),
    "runs/{run}/leaderboard": _run(search_course.leaderboard),
    "runs/{run}/allocation": _run(allocation.allocation),
    "runs/{run}/answers": _matrix,
    "runs/{run}/cell": _cell,
    "runs/{run}/prompts": lambda source, query: prompt_tree.prompt_tree(
        source, source.run(query.path["run"]), query.text("parameter", "")
    ),
    "compare": lambda source, query: side_by_side.side_by_side(
        source, query.text("a"), query.text("b")
    ),
    "production": lambda source, _: production.production(source),
    "production/{system}": lambda source, query: production.production(
        source, query.path["system"]
    ),
    "conversations": lambda source, query: conversations.conversations(
        source, query.text("user", "")
    ),
    "conversation": lambda source, query: conversations.conversation(
        source, query.text("id"), query.text("user")
    ),
    "review": lambda source, _: review.review(source),
    "training": lambda source, _: adapters.training(source),
    "training/{role:path}": lambda source, query: adapters.training(source, query.path["role"]),
    "sql": _sql,
    "sql/questions": lambda source, _: free_sql.questions(source),
}
"""Address below ``/ui/api/`` → what is answered as JSON."""

DOWNLOADS: Mapping[str, Callable[[PageSource, Query], PageFile]] = {
    "sql.csv": _sql_csv,
    "runs/{run}/table.csv": _table_csv,
    "runs/{run}/text": _text,
}
"""Address → what is answered as a file."""

WRITES: Mapping[str, Callable[[PageSource, Query, Mapping[str, Any]], str]] = {
    "production/{system}/promote": lambda source, query, body: writes.promote(
        source, query.path["system"], body, _release
    ),
    "production/{system}/rollback": lambda source, query, body: writes.roll_back(
        source, query.path["system"], body
    ),
    "review/approve": lambda source, _, body: review.approve(source, body),
    "review/reject": lambda source, _, body: review.reject(source, body),
    "training/{role:path}/activate": lambda source, query, body: adapters.activate(
        source, query.path["role"], body
    ),
    "training/{role:path}/rollback": lambda source, query, body: adapters.roll_back(
        source, query.path["role"], body
    ),
    "runs/{run}/stop": lambda source, query, body: writes.stop(
        source, source.run(query.path["run"]), body
    ),
    "runs/{run}/resume": lambda source, query, body: writes.resume(
        source, source.run(query.path["run"]), body
    ),
}
"""Address → what changes something, and says so in a sentence."""
