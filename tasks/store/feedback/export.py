"""Export of feedback to the parquet tables, and its removal from them."""

from functools import partial
from pathlib import Path
from typing import Final

from convergence_core.ports import Row
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.export import ExportSource, export_new, rewrite
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import (
    ADAPTER_EVENTS,
    COMPARISONS,
    GATE_CHECKS,
    INTERACTIONS,
    LIVE_TESTS,
    RATINGS,
    TRAINING_ROUNDS,
)

_source = partial(ExportSource, ranges="feedback_exports")
_TEXTS: Final = tuple(_source(table=table) for table in (INTERACTIONS, RATINGS, COMPARISONS))
"""Tables with users' prompts, answers and marks."""
_ADAPTERS: Final = (
    _source(
        table=ADAPTER_EVENTS,
        select="SELECT e.seq, e.version, a.role, a.base_model, a.parent, a.objective, a.n_rows, "
        "a.folder_sha256, e.status, e.reason, e.changed_by, e.created_us FROM adapter_events e "
        "JOIN adapters a ON a.version = e.version WHERE e.seq BETWEEN ? AND ? ORDER BY e.seq",
    ),
    *(_source(table=table) for table in (TRAINING_ROUNDS, GATE_CHECKS, LIVE_TESTS)),
)
"""Tables on training. They hold names, numbers and generated sentences, so forgetting a user
leaves them.
"""


def export_feedback(store: FeedbackStore, root: Path) -> dict[str, int]:
    """Export new rows; return table → number of rows.

    Raises:
        StoreWriteError: a file could not be written; the next export continues from there.
    """
    return export_new(store.database, root, (*_TEXTS, *_ADAPTERS))


def feedback_ids_of(root: Path, user_id: str) -> set[str]:
    """Return the ids of a user's answers in the parquet tables."""
    files = ParquetFiles()
    folder = root / "final" / INTERACTIONS.name
    paths = sorted(str(path) for path in folder.glob("day=*/*.parquet"))
    rows = files.read(INTERACTIONS, paths) if paths else []
    return {str(row["interaction_id"]) for row in rows if row["user_id"] == user_id}


def remove_rows(root: Path, user_id: str, interaction_ids: frozenset[str]) -> int:
    """Remove a user's rows, and all rows that name these answers, from the parquet tables.

    The function rewrites each file with such rows, here and on the store's object storage.

    Args:
        root: folder of the results store.
        user_id: user to forget.
        interaction_ids: ids of the user's answers.

    Returns:
        Number of removed rows.

    Raises:
        StoreWriteError: a file could not be written; call again to continue.
    """

    def kept(row: Row) -> Row | None:
        named = (row.get(name) for name in ("interaction_id", "low_id", "high_id"))
        is_theirs = row["user_id"] == user_id or any(
            interaction_id in interaction_ids for interaction_id in named
        )
        return None if is_theirs else row

    # Answers last, so that a repeated call can still find them.
    return sum(rewrite(root, source.table, kept) for source in reversed(_TEXTS))
