"""Finished runs of a store, by label, id or part of an id."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from convergence_core.errors import RunNotFoundError
from convergence_core.records import short_id

if TYPE_CHECKING:
    from convergence_core.ports import RunRecord
    from convergence_core.records import Params
    from tasks.store.tables.parquet_store import ParquetStore


class CandidateNames:
    """Names of candidates in their runs' reports; a shortened id if there is none."""

    def __init__(self, path: Path) -> None:
        """Read the names of all finished runs of the store at ``path``."""
        from convergence_core.result import RunResult  # noqa: PLC0415 - brings pydantic
        from tasks.store.tables.parquet_store import ParquetStore  # noqa: PLC0415 - brings DuckDB

        self._names: dict[str, str] = {}
        for record in reversed(ParquetStore(path).runs()):
            if record.summary_json is not None:
                self._names |= RunResult.from_json(record.summary_json).names

    def of(self, candidate_id: str, params: "Params") -> str:
        """Return a candidate's name, or its values if no run of the store names it."""
        from tasks.report.phrases import settings_text  # noqa: PLC0415 - brings NumPy

        return self._names.get(candidate_id) or settings_text(params)

    def __call__(self, text: str | None) -> str:
        """Replace candidates' ids in a text by their names."""
        return re.sub(
            r"\b[0-9a-f]{16}\b", lambda m: self._names.get(m[0], short_id(m[0])), text or ""
        )


def finished_run(store: "ParquetStore", name: str | None) -> "RunRecord":
    """Return a finished run by its label, id or part of an id; by default the latest.

    Raises:
        RunNotFoundError: there is none, or it has not finished.
    """
    if name is None:
        finished = [record for record in store.runs() if record.summary_json is not None]
        if not finished:
            raise RunNotFoundError(
                f"the store {store.path} holds no finished run yet. See `convergence runs`."
            )
        return finished[0]
    record = store.run(name)
    if record.summary_json is None and record.tags.get("test"):
        raise RunNotFoundError(
            f"run {record.label} must be an optimization, but it tested the current settings. Its "
            "answers are in the store: convergence query "
            f"\"from answers where run_id = '{record.run_id}'\""
        )
    if record.summary_json is None:
        from tasks.store.tables.interrupted_runs import with_current_status  # noqa: PLC0415 - brings SQLite

        (record,) = with_current_status(store, [record])
        raise RunNotFoundError(
            f"run {record.label} must be finished to have a report, but is {record.status} after "
            f"{record.n_generations} generations. Finish it with `convergence resume "
            f"{record.label}`, or look at what it has: convergence query "
            f"\"from leaderboard where run_id = '{record.run_id}'\""
        )
    return record
