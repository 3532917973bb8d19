"""Export of decisions and rewards to the parquet tables, each once.

A range of numbers is written down before its files and marked when they are there. A fold that was
killed in between writes the same rows under the same names again, for a row never changes: files
appear whole, twice is once. Rows of a range are split by UTC day.
"""

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from convergence_core.ports import Row
from tasks.store.layout import writing
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.columns import Table
from tasks.store.tables.object_storage import mirror_of
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import DECISIONS, REWARDS

MOST_ROWS = 100_000
"""Rows of one range."""

_SELECT = {
    DECISIONS.name: (
        "SELECT d.seq, g.system, g.agent_type, d.decision_id, d.user_id, d.arm_id, d.version, "
        "d.propensity, d.fresh, d.context_json, d.created_us, d.expires_us, a.run_id "
        "FROM decisions d JOIN groups g ON g.id = d.group_id "
        "JOIN arms a ON a.group_id = d.group_id AND a.arm_id = d.arm_id "
        "WHERE d.seq BETWEEN ? AND ? ORDER BY d.seq"
    ),
    REWARDS.name: (
        "SELECT r.seq, g.system, r.decision_id, r.reward, r.status, r.received_us, "
        "CAST(r.received_us - d.created_us AS DOUBLE PRECISION) / 1e6 FROM rewards r "
        "LEFT JOIN decisions d ON d.decision_id = r.decision_id AND d.group_id = r.group_id "
        "LEFT JOIN groups g ON g.id = r.group_id WHERE r.seq BETWEEN ? AND ? ORDER BY r.seq"
    ),
}
_NAMES = {
    DECISIONS.name: (
        "seq", "system", "agent_type", "decision_id", "user_id", "arm_id", "policy_version",
        "propensity", "fresh", "context_json", "created_at", "expires_at", "run_id",
    ),
    REWARDS.name: (
        "seq", "system", "decision_id", "reward", "status", "received_at", "delay_s",
    ),
}  # fmt: skip
_TIME = {DECISIONS.name: "created_at", REWARDS.name: "received_at"}


def export(store: RuntimeStore, root: Path) -> dict[str, int]:
    """Export what is new; return table → rows.

    Args:
        store: the runtime state.
        root: folder of the results store.

    Raises:
        StoreWriteError: a file could not be written; the next export goes on from there.
    """
    files, counts = ParquetFiles(mirror_of(root)), {DECISIONS.name: 0, REWARDS.name: 0}
    with writing(root):
        for table in (DECISIONS, REWARDS):
            while (span := _next_range(store, table.name)) is not None:
                counts[table.name] += _write(store, files, root, table, span)
                with store.database.transaction() as connection:
                    connection.execute(
                        "UPDATE exports SET is_done = 1 WHERE table_name = ? AND lo = ?",
                        (table.name, span[0]),
                    )
    return counts


def _next_range(store: RuntimeStore, table: str) -> tuple[int, int] | None:
    """Return a range that was begun and not done, or begin the next one; ``None``: all is done."""
    with store.database.transaction(alone=True) as connection:
        begun: Any = connection.execute(
            "SELECT lo, hi FROM exports WHERE table_name = ? AND is_done = 0", (table,)
        ).fetchone()
        if begun is not None:
            return int(begun[0]), int(begun[1])
        last: Any = connection.execute(
            "SELECT coalesce(max(hi), 0) FROM exports WHERE table_name = ?", (table,)
        ).fetchone()
        newest: Any = connection.execute(
            f"SELECT coalesce(max(seq), 0) FROM {table}"  # noqa: S608 - a registry's name
        ).fetchone()
        lo, hi = last[0] + 1, min(newest[0], last[0] + MOST_ROWS)
        if hi < lo:
            return None
        connection.execute("INSERT INTO exports VALUES (?, ?, ?, 0)", (table, lo, hi))
    return lo, hi


def _write(
    store: RuntimeStore, files: ParquetFiles, root: Path, table: Table, span: tuple[int, int]
) -> int:
    with store.database.reading() as connection:
        rows: Any = connection.execute(_SELECT[table.name], span).fetchall()
    by_day: dict[str, list[Row]] = defaultdict(list)
    for values in rows:
        row = dict(zip(_NAMES[table.name], values, strict=True))
        if "fresh" in row:
            row["fresh"] = bool(row["fresh"])
        at = datetime.fromtimestamp(row[_TIME[table.name]] / 1e6, UTC)
        by_day[f"{at:%Y-%m-%d}"].append(row)
    for day, found in by_day.items():
        name = f"seq-{span[0]:012d}-{span[1]:012d}.parquet"
        files.write(table, found, root / "final" / table.name / f"day={day}" / name)
    return len(rows)
