"""Finished runs of a store, by label, id or a part of it."""

from typing import TYPE_CHECKING

from convergence_core.errors import RunNotFoundError

if TYPE_CHECKING:
    from convergence_core.ports import RunRecord
    from tasks.store import ParquetStore


def finished_run(store: "ParquetStore", name: str | None) -> "RunRecord":
    """Return a finished run by its label, its id or a part of it; by default the latest.

    Raises:
        RunNotFoundError: there is none, or it has not ended.
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
