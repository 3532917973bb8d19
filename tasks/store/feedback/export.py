"""Export of feedback to the parquet tables, and its removal from them."""

from pathlib import Path
from typing import Final

from convergence_core.ports import Row
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.rows import COMPARISON_COLUMNS, INTERACTION_COLUMNS, RATING_COLUMNS
from tasks.store.runtime.export import ExportSource, export_new, rewrite
from tasks.store.tables.columns import Table
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import COMPARISONS, INTERACTIONS, RATINGS


def _source(table: Table, columns: tuple[str, ...]) -> ExportSource:
    names = ("seq", *columns)
    select = f"SELECT {', '.join(names)} FROM {table.name} WHERE seq BETWEEN ? AND ? ORDER BY seq"  # noqa: S608 - constants
    return ExportSource(
        table=table,
        select=select,
        names=tuple("created_at" if name == "created_us" else name for name in names),
        time="created_at",
        ranges="feedback_exports",
    )


_SOURCES: Final = (
    _source(INTERACTIONS, INTERACTION_COLUMNS),
    _source(RATINGS, RATING_COLUMNS),
    _source(COMPARISONS, COMPARISON_COLUMNS),
)


def export_feedback(store: FeedbackStore, root: Path) -> dict[str, int]:
    """Export what is new; return table → rows.

    Raises:
        StoreWriteError: a file could not be written; the next export goes on from there.
    """
    return export_new(store.database, root, _SOURCES)


def feedback_ids_of(root: Path, user_id: str) -> set[str]:
    """Return the answers of a user that the parquet tables name."""
    files = ParquetFiles()
    folder = root / "final" / INTERACTIONS.name
    found = sorted(str(path) for path in folder.glob("day=*/*.parquet"))
    rows = files.read(INTERACTIONS, found) if found else []
    return {str(row["interaction_id"]) for row in rows if row["user_id"] == user_id}


def remove_rows(root: Path, user_id: str, interaction_ids: frozenset[str]) -> int:
    """Remove a user's rows, and all that names these answers, from the parquet tables.

    A file that holds such rows is written anew without them, here and at the store's address.

    Args:
        root: folder of the results store.
        user_id: who is forgotten.
        interaction_ids: the user's answers.

    Returns:
        The number of rows that were removed.

    Raises:
        StoreWriteError: a file could not be written; ask again, what is removed stays so.
    """

    def kept(row: Row) -> Row | None:
        named = (row.get(name) for name in ("interaction_id", "low_id", "high_id"))
        is_theirs = row["user_id"] == user_id or any(one in interaction_ids for one in named)
        return None if is_theirs else row

    # Answers last: until they are gone, one that is asked again knows which they are.
    return sum(rewrite(root, source.table, kept) for source in reversed(_SOURCES))
