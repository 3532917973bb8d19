"""SQLite full-text search as a target, and reciprocal rank as a metric."""

import asyncio
import json
import re
import sqlite3
import threading
import time
from pathlib import Path

from convergence.plugins import (
    CandidateFault,
    Case,
    ConfigurationError,
    Json,
    Params,
    PluginContext,
    Reply,
    WorstCase,
)

OPTIONS = ("documents",)


class SqliteSearch:
    """BM25 ranking of documents, with tunable title and body weights and prefix matching."""

    provider = "sqlite-search"

    def __init__(self, documents: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(
            "CREATE VIRTUAL TABLE documents USING fts5(id UNINDEXED, title, body)"
        )
        self._database.executemany(
            "INSERT INTO documents VALUES (:id, :title, :body)",
            json.loads(documents.read_text(encoding="utf-8")),
        )

    def request(self, params: Params, case: Case) -> Json:
        """Return everything that shapes the answer, without secrets."""
        asked = case.input.get("query") if isinstance(case.input, dict) else None
        if not isinstance(asked, str):
            raise CandidateFault("the case has no text `query`", error_type="bad_case")
        return {"query": asked, **params}

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        """Return the maximum cost of a call: nothing."""
        return WorstCase(usd=0.0, tokens=0)

    async def call(self, params: Params, case: Case) -> Reply:
        """Search once, in a thread, because SQLite blocks."""
        request = self.request(params, case)
        begun = time.perf_counter()
        found = await asyncio.to_thread(self._search, request)
        return Reply(value=found, latency_ms=(time.perf_counter() - begun) * 1000, cost_usd=0.0)

    async def aclose(self) -> None:
        """Close the database; safe to call twice."""
        self._database.close()

    def _search(self, request: Json) -> list[str]:
        words = re.findall(r"\w+", request["query"].lower())[:32]
        if not words:
            return []
        end = "*" if request["prefixes"] else ""
        query = " OR ".join(f'"{word}"{end}' for word in words)
        with self._lock:
            rows = self._database.execute(
                "SELECT id FROM documents WHERE documents MATCH ? "
                "ORDER BY bm25(documents, 0, ?, ?), id LIMIT 5",
                (query, request["title_weight"], request["body_weight"]),
            ).fetchall()
        return [row[0] for row in rows]


def make_target(context: PluginContext) -> SqliteSearch:
    """Return the target of ``api.plugin: sqlite-search``."""
    check_options(context, OPTIONS)
    documents = context.base_dir / str(context.options.get("documents", "documents.json"))
    if not documents.is_file():
        rule, fix = "must name a file of documents", f"There is no {documents}."
        raise ConfigurationError.of(f"{context.key}.plugin_options.documents", rule, fix)
    return SqliteSearch(documents)


def make_reciprocal_rank(context: PluginContext):
    """Return the metric of ``plugin: reciprocal-rank``: 1 for rank one, 1/2 for rank two."""
    check_options(context, ("missing",))
    missing = float(context.options.get("missing", 0.0))

    def reciprocal_rank(result, expected):
        if not isinstance(result, list) or expected not in result:
            return missing
        return 1.0 / (1 + result.index(expected))

    return reciprocal_rank


def check_options(context: PluginContext, known: tuple[str, ...]) -> None:
    """Reject unknown options."""
    for name in context.options:
        if name not in known:
            key = f"{context.key}.plugin_options.{name}"
            raise ConfigurationError.of(
                key, "is not a known key", f"Known are {', '.join(known)}."
            )
