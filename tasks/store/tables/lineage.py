"""Runs that go on from a finished one, which stays as it is.

Such a run begins with the committed generations of the finished one, reads the answers that it paid
for, and counts what it has spent against the limits. A tag names the finished run and those that
that one went on from.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import add

from convergence_core.budget.terms import Spent
from convergence_core.errors import ResumeError
from convergence_core.ports import Checkpoint, Journal, Row, RunRecord
from tasks.store import ParquetStore, new_run_id
from tasks.store.clock import wall_clock_us
from tasks.store.tables.ids import begun_us, label_of

TAG = "continues"
"""Tag of a run that goes on from others: ``<run id>@<generations>``, newest first."""
RETRY_TAG = "retries_missing"
"""Tag of such a run that asks the cells without a reward before anything else."""
ROUNDS_TAG = "rounds_of_preferences"
"""Tag of a run that holds rounds of preferences alone: no search goes on with it or from it."""
TEST_TAG = "test"
"""Tag, and end of the system's name, of a run that tests the current settings alone."""
POLICY_TAG = "policy"
"""The same of rounds that compare policies of prompt changes."""
GAMES_TAG = "games"
"""The same of rounds of language games."""
OFFLINE = "offline"
"""Tag, and end of the system's name, of runs whose answers come from the mock."""
PARTS = frozenset({TEST_TAG, POLICY_TAG, GAMES_TAG, "sealed", "proposals"})
"""Tags of runs that are no search, two of them of earlier versions; each is a system of its own, so that no search takes it for one of its own."""
_WITHOUT_REWARD = """
SELECT count(*) AS n FROM (
  SELECT candidate_id, case_id, replicate, role FROM evaluations WHERE run_id = $run
  GROUP BY ALL HAVING count(reward) = 0)
"""


def ancestors(record: RunRecord) -> tuple[str, ...]:
    """Return the ids of the finished runs that a run goes on from, newest first."""
    return tuple(name.partition("@")[0] for name in record.tags.get(TAG, "").split())


def n_inherited(record: RunRecord) -> int:
    """Return how many generations a run has from the finished one; 0: it begins anew."""
    newest = record.tags.get(TAG, "").partition(" ")[0]
    return int(newest.partition("@")[2] or 0)


def owner(record: RunRecord, generation: int) -> str:
    """Return the id of the run that made a generation: a run's own, or one that it goes on from."""
    for text in reversed(record.tags.get(TAG, "").split()):  # oldest first
        name, _, n = text.partition("@")
        if generation < int(n):
            return name
    return record.run_id


def begins_at(record: RunRecord, generation: int) -> bool:
    """Return whether a generation is the first that a run adds to those of a finished one."""
    return TAG in record.tags and generation == n_inherited(record)


def retries(record: RunRecord, generation: int) -> bool:
    """Return whether a generation asks the cells again that a finished run has left missing."""
    return RETRY_TAG in record.tags and begins_at(record, generation)


def superseded(records: Iterable[RunRecord]) -> frozenset[str]:
    """Return the ids of the runs whose evidence another one of these holds as well."""
    return frozenset(run_id for record in records for run_id in ancestors(record))


def successor(
    finished: RunRecord, tags: Mapping[str, str], *, code_version: str, retry_missing: bool
) -> RunRecord:
    """Return the row of a new run that goes on from a finished one.

    Args:
        finished: with what is to hold for the new run, e.g. raised limits.
        tags: of the new run, before those of its lineage.
        code_version: of the program.
        retry_missing: whether it asks the cells without a reward again first.
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
        reason=f"begins where the finished run {finished.label} ended",
        started_us=started,
        ended_us=None,
        summary_json=None,
        code_version=code_version,
        tags={**tags, **lineage, **({RETRY_TAG: "true"} if retry_missing else {})},
    )


def check_missing(store: ParquetStore, record: RunRecord) -> None:
    """Raise if a finished run has no cell without a reward.

    Raises:
        ResumeError: every cell has one.
    """
    (row,) = store.rows(_WITHOUT_REWARD, {"run": record.run_id})
    if not row["n"]:
        raise ResumeError(
            f"every evaluation of run {record.label} has a reward: none is to be made again. Read it "
            f"with `convergence report {record.label}`."
        )


def inherit(store: ParquetStore, record: RunRecord) -> None:
    """Publish what a run has from the finished one, where a kill has left it undone.

    Raises:
        StoreError: a file cannot be read or written.
    """
    if _is_begun(store.checkpoint(record.run_id), record):
        return
    store.save_run(record)  # first: no rows are there without their run
    store.continue_run(ancestors(record)[0], record.run_id)


def last_checkpoint(store: ParquetStore, record: RunRecord) -> Checkpoint | None:
    """Return the last committed checkpoint of a run, its own or inherited; ``None``: none."""
    own = store.checkpoint(record.run_id)
    return own if _is_begun(own, record) else store.checkpoint(ancestors(record)[0])


def _is_begun(checkpoint: Checkpoint | None, record: RunRecord) -> bool:
    n_own = 0 if checkpoint is None else checkpoint.generation + 1
    return n_own >= n_inherited(record)


def spent_before(journal: Journal, record: RunRecord) -> Spent:
    """Return what the runs have spent that a run goes on from."""
    return reduce(add, (Spent.of(journal.totals(name)) for name in ancestors(record)), Spent())


def attempts(journal: Journal, record: RunRecord) -> list[Row]:
    """Return the ledger of a run and of those that it goes on from."""
    return [
        row
        for name in (record.run_id, *ancestors(record))
        for row in journal.attempts(name, generation=None, all_generations=True)
    ]


def payer(record: RunRecord) -> tuple[str, int]:
    """Return id and beginning of the run whose answers a run shares: the first of its lineage."""
    first = (record.run_id, *ancestors(record))[-1]
    return first, record.started_us if first == record.run_id else begun_us(first)


def describe_lineage(record: RunRecord, before: Spent) -> str | None:
    """Return a line on the finished run that a run goes on from; ``None``: it began anew.

    Args:
        record: of the run.
        before: what the runs have spent that it goes on from.
    """
    names = ancestors(record)
    if not names:
        return None
    label = label_of(record.name, names[0])
    calls = f"{before.calls:,} call{'s' * (before.calls != 1)}"
    return (
        f"goes on from the finished run {label}, which stays as it is; its {calls} count against "
        "the limits"
    )
