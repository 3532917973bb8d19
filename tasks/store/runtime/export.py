"""Export of the rows of a database to the parquet tables, each once.

A range of numbers is written down before its files and marked when they are there. A fold that was
killed in between writes the same rows under the same names again, for a row never changes: files
appear whole, twice is once. Rows of a range are split by UTC day.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from convergence_core.ports import Row
from tasks.store.database import Database
from tasks.store.layout import writing
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.columns import Table
from tasks.store.tables.object_storage import mirror_of
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import DECISIONS, REWARDS

MOST_ROWS = 100_000
"""Rows of one range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSource:
    """Rows of a database that go to one parquet table."""

    table: Table
    """Of the same name in the database; its rows are numbered by ``seq`` and never change."""
    select: str = ""
    """Rows between two numbers, by number: the columns of the parquet table, times as microseconds. Empty:
    the table has them, times as ``…_us``."""
    time: str = "created_at"
    """Column whose day says in which folder a row lies."""
    ranges: str = "exports"
    """Table of the ranges that were exported."""

    @property
    def sql(self) -> str:
        """SELECT of the rows between two numbers, by number."""
        names = (column.name for column in self.table.columns)
        columns = ", ".join(f"{n[:-3]}_us" if n.endswith("_at") else n for n in names)
        plain = f"SELECT {columns} FROM {self.table.name} WHERE seq BETWEEN ? AND ? ORDER BY seq"  # noqa: S608 - a registry's names
        return self.select or plain


_SOURCES = (
    ExportSource(
        table=DECISIONS,
        select=(
            "SELECT g.system, g.agent_type, d.seq, d.decision_id, d.user_id, d.arm_id, d.version, "
            "d.propensity, d.fresh, d.context_json, d.created_us, d.expires_us, a.run_id "
            "FROM decisions d JOIN groups g ON g.id = d.group_id "
            "JOIN arms a ON a.group_id = d.group_id AND a.arm_id = d.arm_id "
            "WHERE d.seq BETWEEN ? AND ? ORDER BY d.seq"
        ),
    ),
    ExportSource(
        table=REWARDS,
        select=(
            "SELECT g.system, r.seq, r.decision_id, r.reward, r.status, r.received_us, "
            "CAST(r.received_us - d.created_us AS DOUBLE PRECISION) / 1e6 FROM rewards r "
            "LEFT JOIN decisions d ON d.decision_id = r.decision_id AND d.group_id = r.group_id "
            "LEFT JOIN groups g ON g.id = r.group_id WHERE r.seq BETWEEN ? AND ? ORDER BY r.seq"
        ),
        time="received_at",
    ),
)


def export(store: RuntimeStore, root: Path) -> dict[str, int]:
    """Export decisions and rewards that are new; return table → rows.

    Args:
        store: the runtime state.
        root: folder of the results store.

    Raises:
        StoreWriteError: a file could not be written; the next export continues from there.
    """
    return export_new(store.database, root, _SOURCES)


def export_new(database: Database, root: Path, sources: Sequence[ExportSource]) -> dict[str, int]:
    """Export what is new of a database; return table → rows.

    Args:
        database: where the rows are.
        root: folder of the results store.
        sources: what is exported.

    Raises:
        StoreWriteError: a file could not be written; the next export continues from there.
    """
    files, counts = ParquetFiles(mirror_of(root)), {source.table.name: 0 for source in sources}
    with writing(root):
        for source in sources:
            name = source.table.name
            while (span := _next_range(database, source)) is not None:
                counts[name] += _write(database, files, root, source, span)
                with database.transaction() as connection:
                    connection.execute(
                        f"UPDATE {source.ranges} SET is_done = 1 "  # noqa: S608 - a constant
                        "WHERE table_name = ? AND lo = ?",
                        (name, span[0]),
                    )
    return counts


def _next_range(database: Database, source: ExportSource) -> tuple[int, int] | None:
    """Return a range that was begun and not done, or begin the next one; ``None``: all is done."""
    table, ranges = source.table.name, source.ranges
    with database.transaction(alone=True) as connection:
        begun: Any = connection.execute(
            f"SELECT lo, hi FROM {ranges} WHERE table_name = ? AND is_done = 0",  # noqa: S608 - a constant
            (table,),
        ).fetchone()
        if begun is not None:
            return int(begun[0]), int(begun[1])
        last: Any = connection.execute(
            f"SELECT coalesce(max(hi), 0) FROM {ranges} WHERE table_name = ?",  # noqa: S608 - a constant
            (table,),
        ).fetchone()
        newest: Any = connection.execute(
            f"SELECT coalesce(max(seq), 0) FROM {table}"  # noqa: S608 - a registry's name
        ).fetchone()
        lo, hi = last[0] + 1, min(newest[0], last[0] + MOST_ROWS)
        if hi < lo:
            return None
        connection.execute(
            f"INSERT INTO {ranges} VALUES (?, ?, ?, 0)",  # noqa: S608 - a constant
            (table, lo, hi),
        )
    return lo, hi


def _write(
    database: Database,
    files: ParquetFiles,
    root: Path,
    source: ExportSource,
    span: tuple[int, int],
) -> int:
    with database.reading() as connection:
        rows: Any = connection.execute(source.sql, span).fetchall()
    names = [column.name for column in source.table.columns]
    flags = [column.name for column in source.table.columns if column.type == "bool"]
    by_day: dict[str, list[Row]] = defaultdict(list)
    for values in rows:
        row = dict(zip(names, values, strict=True))
        row |= {name: bool(row[name]) for name in flags}
        at = datetime.fromtimestamp(row[source.time] / 1e6, UTC)
        by_day[f"{at:%Y-%m-%d}"].append(row)
    for day, day_rows in by_day.items():
        name = f"seq-{span[0]:012d}-{span[1]:012d}.parquet"
        files.write(
            source.table, day_rows, root / "final" / source.table.name / f"day={day}" / name
        )
    return len(rows)


def rewrite(root: Path, table: Table, change: Callable[[Row], Row | None]) -> int:
    """Replace exported files of a table where rows change; return how many rows did.

    Args:
        root: folder of the results store.
        table: of exported rows.
        change: row → row as it should be; ``None`` if it is removed.

    Raises:
        StoreWriteError: a file could not be written; ask again, what is changed stays so.
    """
    mirror = mirror_of(root)
    files, n_changed = ParquetFiles(mirror), 0
    with writing(root):
        for path in sorted((root / "final" / table.name).glob("day=*/*.parquet")):
            rows = files.read(table, [str(path)], "ORDER BY seq")
            changed = [change(row) for row in rows]
            n = sum(new != row for new, row in zip(changed, rows, strict=True))
            if not n:
                continue
            n_changed += n
            if mirror is not None:
                mirror.drop(path)  # what is published there is not replaced
            if kept := [row for row in changed if row is not None]:
                files.write(table, kept, path)
            else:
                path.unlink()
    return n_changed


def anonymize_rows(root: Path, user_id: str, name: str) -> int:
    """Take a user out of exported decisions; return how many there were."""

    def anonymous(row: Row) -> Row:
        if row["user_id"] != user_id:
            return row
        return {**row, "user_id": name, "context_json": None}

    return rewrite(root, DECISIONS, anonymous)
