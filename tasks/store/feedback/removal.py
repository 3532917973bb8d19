"""Removal of a user's prompts, answers and ratings from a whole store.

The databases lose the rows and are rewritten, as are the parquet files with such rows. The user's
decisions stay as numbers without the user, because the evidence on arms needs them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasks.store.database import Connection
from tasks.store.feedback.adapter_changes import mark_forgotten
from tasks.store.feedback.adapter_files import remove_checkpoints
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.export import export_feedback, feedback_ids_of, remove_rows
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.export import anonymize_rows
from tasks.store.runtime.runtime_store import RuntimeStore

FORGOTTEN_USER: Final = "forgotten"
_BATCH = 500
"""Maximum ids per statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalReport:
    """Counts of removed rows."""

    n_interactions: int
    n_ratings: int
    """Ratings by the user or of the user's answers, including edits and withdrawals."""
    n_comparisons: int
    n_decisions: int
    """Decisions that no longer name the user."""
    n_adapters: int
    """Adapters that learned from the user's answers or marks; their weights are gone."""


def forget_user(path: Path, user_id: str) -> RemovalReport:
    """Remove a user from a store; a second call after a kill continues.

    Raises:
        StoreError: the store cannot be read or written.
    """
    counts = {"interactions": 0, "ratings": 0, "comparisons": 0}
    n_decisions = n_adapters = 0
    if FeedbackStore.exists_in(path):
        with FeedbackStore(path) as store:
            # An unfinished export range would bring its rows back.
            export_feedback(store, store.root)
            ids = {
                str(interaction_id)
                for (interaction_id,) in store.fetch(
                    "SELECT interaction_id FROM interactions WHERE user_id = ?", (user_id,)
                )
            } | feedback_ids_of(store.root, user_id)
            with store.database.transaction() as connection:
                n_adapters = mark_forgotten(connection, user_id, sorted(ids), at_us=store.now_us())
                counts = _delete(connection, user_id, sorted(ids))
            AdapterStore(store).remove_forgotten()
            remove_checkpoints(store.root)
            store.database.scrub()
            remove_rows(store.root, user_id, frozenset(ids))
    if RuntimeStore.exists_in(path):
        with RuntimeStore(path) as state:
            with state.database.transaction() as connection:
                n_decisions = _anonymize(connection, user_id)
            state.database.scrub()
            anonymize_rows(state.root, user_id, FORGOTTEN_USER)
    return RemovalReport(
        **{f"n_{table}": n for table, n in counts.items()},
        n_decisions=n_decisions,
        n_adapters=n_adapters,
    )


def _delete(connection: Connection, user_id: str, ids: list[str]) -> dict[str, int]:
    """Delete a user's rows and all rows on the user's answers; return table → number of rows."""
    counts = {}
    for table, columns in (
        ("ratings", ("interaction_id",)),
        ("comparisons", ("low_id", "high_id")),
        ("interactions", ()),
    ):
        connection.execute(f"DELETE FROM {table} WHERE user_id = ?", (user_id,))  # noqa: S608 - constants
        counts[table] = connection.changes()
        for column in columns:
            counts[table] += _delete_named(connection, table, column, ids)
    for table in ("sent_rewards", "case_reviews", "live_test_answers"):
        _delete_named(connection, table, "interaction_id", ids)
    return counts


def _delete_named(connection: Connection, table: str, column: str, ids: list[str]) -> int:
    n = 0
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        marks = ", ".join("?" * len(batch))
        connection.execute(f"DELETE FROM {table} WHERE {column} IN ({marks})", batch)  # noqa: S608 - constants
        n += connection.changes()
    return n


def _anonymize(connection: Connection, user_id: str) -> int:
    """Remove a user from the decisions; return the number of decisions."""
    connection.execute(
        "UPDATE rewards SET details_json = NULL WHERE decision_id IN "
        "(SELECT decision_id FROM decisions WHERE user_id = ?)",
        (user_id,),
    )
    connection.execute("DELETE FROM assignments WHERE unit = ?", (f"user:{user_id}",))
    # The state of contextual arms holds users and contexts of their requests.
    connection.execute(
        "UPDATE groups SET state_json = NULL, state_seq = 0, revision = revision + 1 WHERE id IN "
        "(SELECT group_id FROM decisions WHERE user_id = ?)",
        (user_id,),
    )
    connection.execute(
        "UPDATE decisions SET user_id = ?, context_json = NULL, request_key = NULL WHERE user_id = ?",
        (FORGOTTEN_USER, user_id),
    )
    return connection.changes()
