"""Runs that continue a finished run, which stays unchanged.

Such a run starts with the committed generations of the finished run, reads its paid answers, and
counts its spending against the limits. A tag names the finished run and that run's ancestors.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import add

from convergence_core.budget.limits import Spent
from convergence_core.errors import ResumeError
from convergence_core.ports import Checkpoint, Row, RunRecord
from tasks.store.clock import wall_clock_us
from tasks.store.journal.sql_journal import Journal
from tasks.store.layout import begun_us, label_of, new_run_id
from tasks.store.tables.parquet_store import ParquetStore

TAG = "continues"
"""Tag of a run that continues others: ``<run id>@<generations>``, newest first."""
RETRY_TAG = "retries_missing"
"""Tag of such a run that first re-evaluates the cells without a reward."""
ROUNDS_TAG = "rounds_of_preferences"
"""Tag of a run of preference rounds; no search continues it, and it continues none."""
TEST_TAG = "test"
"""Tag and system suffix of a run that tests only the current settings."""
GAMES_TAG = "games"
"""Tag and system suffix of rounds of language games."""
OFFLINE = "offline"
"""Tag and system suffix of runs with the mock's answers."""
PARTS = frozenset({TEST_TAG, GAMES_TAG, "policy"})
"""Tags of runs that are not searches; ``policy`` is from an earlier version. Each is a separate
system, so that no search treats it as its predecessor.
"""
_WITHOUT_REWARD = """
SELECT count(*) AS n FROM (
  SELECT candidate_id, case_id, replicate, role FROM evaluations WHERE run_id = $run
  GROUP BY ALL HAVING count(reward) = 0)
"""


def ancestors(record: RunRecord) -> tuple[str, ...]:
    """Return the ids of the finished runs that a run continues, newest first."""
    return tuple(name.partition("@")[0] for name in record.tags.get(TAG, "").split())


def n_inherited(record: RunRecord) -> int:
    """Return the number of generations that a run inherits; 0 if it starts from scratch."""
    newest = record.tags.get(TAG, "").partition(" ")[0]
    return int(newest.partition("@")[2] or 0)


def owner(record: RunRecord, generation: int) -> str:
    """Return the id of the run that made a generation: this run or one that it continues."""
    for text in reversed(record.tags.get(TAG, "").split()):  # oldest first
        name, _, n = text.partition("@")
        if generation < int(n):
            return name
    return record.run_id


def begins_at(record: RunRecord, generation: int) -> bool:
    """Return whether a generation is the first that a run adds to the inherited ones."""
    return TAG in record.tags and generation == n_inherited(record)


def retries(record: RunRecord, generation: int) -> bool:
    """Return whether a generation re-evaluates the cells that a finished run left missing."""
    return RETRY_TAG in record.tags and begins_at(record, generation)


def superseded(records: Iterable[RunRecord]) -> frozenset[str]:
    """Return the ids of runs whose evidence is contained in another of these runs."""
    return frozenset(run_id for record in records for run_id in ancestors(record))


def successor(
    finished: RunRecord, tags: Mapping[str, str], *, code_version: str, retry_missing: bool
) -> RunRecord:
    """Return the row of a new run that continues a finished one.

    Args:
        finished: row of the finished run, with the new run's changes, e.g. raised limits.
        tags: further tags of the new run.
        code_version: version of the program.
        retry_missing: whether to re-evaluate the cells without a reward first.
    """
    started = wall_clock_us()
    run_id = new_run_id(started, os.urandom(10))
    before = finished.tags.get(TAG, "")
    lineage = {TAG: f"{finished.run_id}@{finished.n_generations} {before}".rstrip()}
    return replace(
        finished,
        run_id=run_id,
        label=label_of(finished.name, run_id),
        status="stopped",
        reason=f"continues the finished run {finished.label} ended",
        started_us=started,
        ended_us=None,
        summary_json=None,
        code_version=code_version,
        tags={**tags, **lineage, **({RETRY_TAG: "true"} if retry_missing else {})},
    )


def check_missing(store: ParquetStore, record: RunRecord) -> None:
    """Check that a finished run has a cell without a reward.

    Raises:
        ResumeError: every cell has a reward.
    """
    (row,) = store.rows(_WITHOUT_REWARD, {"run": record.run_id})
    if not row["n"]:
        raise ResumeError(
            f"every evaluation of run {record.label} has a reward, so nothing needs repeating. Read it "
            f"with `convergence report {record.label}`."
        )


def inherit(store: ParquetStore, record: RunRecord) -> None:
    """Publish the inherited generations of a run, unless an earlier process has done so.

    Raises:
        StoreError: a file cannot be read or written.
    """
    if _is_begun(store.checkpoint(record.run_id), record):
        return
    store.save_run(record)  # first, because rows need their run
    store.continue_run(ancestors(record)[0], record.run_id)


def last_checkpoint(store: ParquetStore, record: RunRecord) -> Checkpoint | None:
    """Return the last checkpoint of a run, possibly inherited; ``None`` before the first."""
    checkpoint = store.checkpoint(record.run_id)
    return checkpoint if _is_begun(checkpoint, record) else store.checkpoint(ancestors(record)[0])


def _is_begun(checkpoint: Checkpoint | None, record: RunRecord) -> bool:
    n_own = 0 if checkpoint is None else checkpoint.generation + 1
    return n_own >= n_inherited(record)


def spent_before(journal: Journal, record: RunRecord) -> Spent:
    """Return the total spending of the runs that a run continues."""
    return reduce(add, (Spent.of(journal.totals(name)) for name in ancestors(record)), Spent())


def attempts(journal: Journal, record: RunRecord) -> list[Row]:
    """Return the ledger of a run and of those that it continues."""
    return [
        row
        for name in (record.run_id, *ancestors(record))
        for row in journal.attempts(name, generation=None, all_generations=True)
    ]


def payer(record: RunRecord) -> tuple[str, int]:
    """Return id and start of the run whose answers a run shares: the first of its lineage."""
    first = (record.run_id, *ancestors(record))[-1]
    return first, record.started_us if first == record.run_id else begun_us(first)


def describe_lineage(record: RunRecord, before: Spent) -> str | None:
    """Return a line on the finished run that a run continues; ``None`` for a run from scratch.

    Args:
        record: row of the run.
        before: spending of the runs that it continues.
    """
    names = ancestors(record)
    if not names:
        return None
    label = label_of(record.name, names[0])
    calls = f"{before.calls:,} call{'s' * (before.calls != 1)}"
    return (
        f"continues the finished run {label}, which stays as it is; its {calls} count against "
        "the limits"
    )
