"""Opened store of the pages: runs, results, names and cases.

All access is read-only: DuckDB reads tables, and the journal's connection cannot write. Finished
runs never change, so a few results and loaded configurations are cached.
"""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from convergence_core.config import Configuration, parse_stored, stored_mapping
from convergence_core.errors import ConfigurationError, RunNotFoundError
from convergence_core.ports import RunRecord
from convergence_core.records import Case, Json
from convergence_core.result import RunResult, case_names
from convergence_core.result.number_text import UNKNOWN
from convergence_core.space import Space
from convergence_core.space.builder import widened
from tasks.inputs.loader import load, load_mapping
from tasks.report.blocks import Block, Inline, Paragraph, Span, json_of, page_link
from tasks.report.phrases import clean, iso, settings_text
from tasks.run.adoption import with_champion
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.promotions import champion_of
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.interrupted_runs import with_current_status
from tasks.store.tables.parquet_store import ParquetStore

Page = dict[str, Any]
LONGEST_LINE = 200
"""Maximum characters of a string in a list."""
_MOST_KEPT = 8
_CANDIDATE = "SELECT params_json FROM candidates WHERE run_id = $run AND candidate_id = $candidate"
_WRITTEN = """
SELECT parameter, text FROM mutation_effects WHERE run_id = $run AND verdict = 'kept'
ORDER BY generation, position
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """File that a page offers for download."""

    name: str
    content: bytes
    media_type: str


class PageSource:
    """Store opened for the pages. Thread-safe."""

    def __init__(self, store: ParquetStore, config: Path | None = None) -> None:
        """Open the pages' view of a store.

        Args:
            store: the store.
            config: configuration of the store, to whose file the pages add approved test cases;
                ``None`` without one.
        """
        self.store, self.config = store, config
        self._mutex = threading.Lock()
        self._results = lru_cache(_MOST_KEPT)(RunResult.from_json)
        self._configurations = lru_cache(_MOST_KEPT)(parse_stored)
        self._inputs = lru_cache(_MOST_KEPT)(_inputs)
        self._runtime: RuntimeStore | None = None
        self._feedback: FeedbackStore | None = None

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        return self.store.rows(sql, parameters)

    def runs(self) -> list[RunRecord]:
        """Return all runs, latest first; those without a process are ``interrupted``."""
        return with_current_status(self.store, self.store.runs())

    def run(self, name: str) -> RunRecord:
        """Return a run by id, label or unambiguous part of its id.

        Raises:
            RunNotFoundError: no run or several runs match.
        """
        (record,) = with_current_status(self.store, [self.store.run(name)])
        return record

    def result(self, record: RunRecord) -> RunResult | None:
        """Return the result of a run; ``None`` while it runs or if it ended without one."""
        text = record.summary_json
        if text is None or record.tags.get("test"):
            return None
        result, runtime = self._results(text), self.runtime()
        if runtime is None:
            return result
        return with_champion(result, champion_of(runtime, result.system))

    def configuration(self, record: RunRecord) -> Configuration:
        """Return a run's configuration."""
        return self._configurations(record.config_json)

    def present_configuration(self) -> Configuration | None:
        """Return the configuration of the store, else of its latest run, or ``None``."""
        try:
            if self.config is not None:
                return load(self.config).configuration
            runs = self.runs()
            return self.configuration(runs[0]) if runs else None
        except ConfigurationError:
            return None

    def cases(self, record: RunRecord) -> Mapping[str, Case]:
        """Return a run's test cases by id; empty if they have changed or are gone."""
        return self._inputs_of(record).cases

    def case_name(self, record: RunRecord, case_id: str) -> str:
        """Return the display name of a test case: its id, or its row if the id is a hash."""
        return clean(self._inputs_of(record).case_names.get(case_id, case_id))

    def space(self, record: RunRecord) -> Space | None:
        """Return a run's space with the prompts written so far; ``None`` if its files are gone."""
        space = self._inputs_of(record).space
        texts: dict[str, list[str]] = {}
        for row in self.rows(_WRITTEN, run=record.run_id):
            texts.setdefault(row["parameter"], []).append(row["text"])
        return None if space is None else widened(space, texts)

    def params(self, record: RunRecord, candidate_id: str) -> dict[str, Any] | None:
        """Return a candidate's parameters; ``None`` if the run has no such candidate."""
        rows = self.rows(_CANDIDATE, run=record.run_id, candidate=candidate_id)
        return json.loads(rows[0]["params_json"]) if rows else None

    def names(self, record: RunRecord, params: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Return candidate → display name as in the report, else its values."""
        result = self.result(record)
        known = {} if result is None else result.names
        others = {name: values for name, values in params.items() if name not in known}
        space = self.space(record) if others else None
        names = (
            {name: settings_text(values) for name, values in others.items()}
            if space is None
            else space.names(others, known)
        )
        return {name: clean({**names, **known}[name]) for name in params}

    def champion_name(self, champion: Champion) -> str:
        """Return the name of a candidate in production, as in its run."""
        known = champion.candidate_id
        try:
            record = self.run(champion.run_id or "")
        except RunNotFoundError:
            return settings_text(champion.params)
        return self.names(record, {known: champion.params})[known]

    def runtime(self) -> RuntimeStore | None:
        """Return the runtime state; ``None`` if the store has none."""
        with self._mutex:
            if self._runtime is None and RuntimeStore.exists_in(self.store.path):
                self._runtime = RuntimeStore(self.store.path)
            return self._runtime

    def feedback(self) -> FeedbackStore | None:
        """Return the human feedback; ``None`` if the store has none."""
        with self._mutex:
            if self._feedback is None and FeedbackStore.exists_in(self.store.path):
                self._feedback = FeedbackStore(self.store.path)
            return self._feedback

    def close(self) -> None:
        """Close everything that was opened."""
        with self._mutex:
            for opened in (self._runtime, self._feedback):
                if opened is not None:
                    opened.close()
            self._runtime = self._feedback = None
        self.store.close()

    def _inputs_of(self, record: RunRecord) -> "_Inputs":
        # With the id, since the files may be others than when an earlier run was read.
        return self._inputs(
            record.run_id, record.config_json, record.base_dir, record.cases_sha256
        )


class _Inputs(NamedTuple):
    """Space and test cases of a run."""

    space: Space | None
    cases: Mapping[str, Case]
    """By id; empty if they changed since the run."""
    case_names: Mapping[str, str]


def _inputs(_run_id: str, config_json: str, base_dir: str, cases_sha256: str) -> _Inputs:
    try:
        loaded = load_mapping(stored_mapping(config_json), Path(base_dir), allow_callable=True)
    except ConfigurationError:  # its files are gone
        return _Inputs(None, {}, {})
    cases = loaded.cases if loaded.cases_sha256 == cases_sha256 else ()
    return _Inputs(loaded.space, {case.case_id: case for case in cases}, case_names(cases))


def time_of(time_us: int | None) -> str | None:
    """Return a time as ISO 8601 in UTC; ``None`` if it is unknown."""
    return None if time_us is None else iso(time_us)


def line_of(text: str | None, most: int = LONGEST_LINE) -> str | None:
    """Redact a string and return it on one line, shortened."""
    if text is None:
        return None
    return " ".join(clean(shortened(text, most, redacted_text)).split())


def page_of(blocks: Iterable[Block], **more: Json) -> Page:
    """Return blocks for the page that draws them, with further fields of the answer."""
    return {**more, "blocks": [json_of(block) for block in blocks]}


def tabs_of(page: str, names: Sequence[str]) -> list[Block]:
    """Return links to the pages of all names; empty for a single one."""
    links = tuple(page_link(clean(name), page, name) for name in names)
    return [Paragraph(links, "tabs")] if len(links) > 1 else []


def span_of_time(time_us: int | None) -> Inline:
    """Return a time as a part of a line."""
    return UNKNOWN if time_us is None else Span(iso(time_us), "time")
