"""Export of a database's rows to the parquet tables, each once.

The export records a range of row numbers before its files and marks it as done after them. An
export after a kill writes the same rows to the same names again. Rows never change and files
appear whole, so a repetition has no effect. Rows of a range are split by UTC day.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convergence_core.ports import Row
from tasks.store.database import Database
from tasks.store.layout import day_folder, writing
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.columns import Table
from tasks.store.tables.object_storage import mirror_of
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import DECISIONS, REWARDS

MOST_ROWS = 100_000
"""Maximum rows per range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSource:
    """Rows of a database for one parquet table."""

    table: Table
    """Parquet table. The table of the same name in the database numbers its immutable rows by
    ``seq``.
    """
    select: str = ""
    """SELECT of the rows between two numbers, in order: the columns of the parquet table, times in
    microseconds. Empty if the database's table has them, with times as ``…_us``.
    """
    time: str = "created_at"
    """Column whose day selects a row's folder."""
    ranges: str = "exports"
    """Table of the exported ranges."""

    @property
    def sql(self) -> str:
        """SELECT of the rows between two numbers, in order."""
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
    """Export new decisions and rewards; return table → number of rows.

    Args:
        store: the runtime state.
        root: folder of the results store.

    Raises:
        StoreWriteError: a file could not be written; the next export continues from there.
    """
    return export_new(store.database, root, _SOURCES)


def export_new(database: Database, root: Path, sources: Sequence[ExportSource]) -> dict[str, int]:
    """Export new rows of a database; return table → number of rows.

    Args:
        database: database with the rows.
        root: folder of the results store.
        sources: tables to export.

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
    """Return the unfinished range, or record the next one; ``None`` if all rows are exported."""
    table, ranges = source.table.name, source.ranges
    with database.transaction(alone=True) as connection:
        begun: Any = connection.execute(
            f"SELECT lo, hi FROM {ranges} WHERE table_name = ? AND is_done = 0",  # noqa: S608 - a constant
            (table,),
        ).fetchone()
        if begun is not None:
            return int(begun[0]), int(begun[1])
        bounds: Any = connection.execute(
            f"SELECT (SELECT coalesce(max(hi), 0) FROM {ranges} WHERE table_name = ?), "  # noqa: S608 - a registry's name
            f"(SELECT coalesce(max(seq), 0) FROM {table})",
            (table,),
        ).fetchone()
        lo, hi = bounds[0] + 1, min(bounds[1], bounds[0] + MOST_ROWS)
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
    by_folder: dict[Path, list[Row]] = defaultdict(list)
    for values in rows:
        row = dict(zip(names, values, strict=True))
        row |= {name: bool(row[name]) for name in flags}
        by_folder[day_folder(root, source.table.name, row[source.time])].append(row)
    for folder, day_rows in by_folder.items():
        files.write(source.table, day_rows, folder / f"seq-{span[0]:012d}-{span[1]:012d}.parquet")
    return len(rows)


def rewrite(root: Path, table: Table, change: Callable[[Row], Row | None]) -> int:
    """Replace the exported files of a table whose rows change; return the number of changed rows.

    Args:
        root: folder of the results store.
        table: table of the exported rows.
        change: row → new row; ``None`` to remove it.

    Raises:
        StoreWriteError: a file could not be written; call again to continue.
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
                mirror.drop(path)  # published files are immutable
            if kept := [row for row in changed if row is not None]:
                files.write(table, kept, path)
            else:
                path.unlink()
    return n_changed


def anonymize_rows(root: Path, user_id: str, name: str) -> int:
    """Anonymize a user in exported decisions; return the number of decisions."""

    def anonymous(row: Row) -> Row:
        if row["user_id"] != user_id:
            return row
        return {**row, "user_id": name, "context_json": None}

    return rewrite(root, DECISIONS, anonymous)
