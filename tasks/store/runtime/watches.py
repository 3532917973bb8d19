"""Alarms of drift, guards of promotions, and learned state of contextual arms."""

from collections.abc import Mapping, Sequence

from convergence_core.records import Json, canonical_json
from tasks.store.runtime.rows import Group, StoredAlarm, StoredGuard
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.schema import ALARMS, GUARDS
from tasks.store.runtime.writes import revise

_ALARMS = (
    "SELECT a.seq, g.system, g.agent_type, nullif(a.arm_id, ''), a.before, a.after, a.n, "
    "a.created_us FROM alarms a JOIN groups g ON g.id = a.group_id"
)


def alarms(store: RuntimeStore, system: str | None = None) -> list[StoredAlarm]:
    """Return all alarms, or those of one system, oldest first."""
    where, values = ("", ()) if system is None else (" WHERE g.system = ?", (system,))
    return ALARMS.records(store.fetch(f"{_ALARMS}{where} ORDER BY a.seq", values))


def unreported_alarms(store: RuntimeStore) -> list[StoredAlarm]:
    """Return the alarms that were not reported outside yet, oldest first."""
    return ALARMS.records(store.fetch(f"{_ALARMS} WHERE a.is_told = 0 ORDER BY a.seq"))


def mark_reported(store: RuntimeStore, reported: Sequence[StoredAlarm]) -> None:
    """Remember that these alarms were reported outside."""
    with store.database.transaction() as connection:
        for alarm in reported:
            connection.execute("UPDATE alarms SET is_told = 1 WHERE seq = ?", (alarm.seq,))


def begin_guard(
    store: RuntimeStore,
    group_id: int,
    *,
    promoted: str,
    champion: str,
    alpha: float,
    tolerance: float,
    holdback: float,
) -> None:
    """Watch a promotion from the next policy version on; the watch before it ends."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE guards SET decision = 'ended' WHERE group_id = ? AND decision = 'watching'",
            (group_id,),
        )
        connection.execute(
            "INSERT INTO guards(group_id, promoted, champion, since, alpha, tolerance, holdback, "
            "decision, created_us) VALUES (?, ?, ?, (SELECT version FROM groups WHERE id = ?), "
            "?, ?, ?, 'watching', ?)",
            (group_id, promoted, champion, group_id, alpha, tolerance, holdback, store.now_us()),
        )
        revise(connection, group_id)


def active_guard(store: RuntimeStore, group_id: int) -> StoredGuard | None:
    """Return the guard that watches a group, ``None`` if none does."""
    watching = [guard for guard in guards(store, group_id) if guard.decision == "watching"]
    return watching[-1] if watching else None


def guards(store: RuntimeStore, group_id: int) -> list[StoredGuard]:
    """Return every guard that a group had, oldest first."""
    rows = store.fetch(f"{GUARDS.select} WHERE group_id = ? ORDER BY seq", (group_id,))
    return GUARDS.records(rows)


def end_guard(store: RuntimeStore, group_id: int, guard: StoredGuard, decision: str) -> bool:
    """Store a guard's verdict; return ``False`` if another process was first."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE guards SET decision = ? WHERE seq = ? AND decision = 'watching'",
            (decision, guard.seq),
        )
        was_first = connection.changes() > 0
        revise(connection, group_id)
    return was_first


def requests_after(
    store: RuntimeStore, group_id: int, seq: int, *, most: int = 10_000
) -> list[tuple[int, str, str, str | None, float]]:
    """Return number, arm, user, context and reward of what contextual arms learn from next."""
    return store.fetch(
        "SELECT r.seq, d.arm_id, d.user_id, d.context_json, r.reward FROM rewards r "
        "JOIN decisions d ON d.decision_id = r.decision_id "
        "WHERE r.group_id = ? AND r.status = 'ok' AND r.seq > ? ORDER BY r.seq LIMIT ?",
        (group_id, seq, most),
    )


def contextual_state(store: RuntimeStore, group_id: int) -> tuple[str | None, int]:
    """Return what contextual arms had learned, as JSON, and after which reward."""
    ((state_json, seq),) = store.fetch(
        "SELECT state_json, state_seq FROM groups WHERE id = ?", (group_id,)
    )
    return state_json, int(seq)


def save_contextual_state(
    store: RuntimeStore, group: Group, state: Mapping[str, Json], seq: int
) -> None:
    """Keep what contextual arms have learned after a reward, unless more is kept or the group was revised."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE groups SET state_json = ?, state_seq = ? WHERE id = ? AND state_seq < ? "
            "AND revision = ?",
            (canonical_json(dict(state)), seq, group.group_id, seq, group.revision),
        )


def begin_contextual(store: RuntimeStore, group_id: int, state: Mapping[str, Json]) -> None:
    """Begin contextual arms at a night's state; all rewards are learned after it."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE groups SET state_json = ?, state_seq = 0 WHERE id = ?",
            (canonical_json(dict(state)), group_id),
        )
        revise(connection, group_id)
