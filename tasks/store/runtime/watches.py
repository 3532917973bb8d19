"""Alarms, guards of promotions, and learned state of contextual arms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from convergence_core.gate.guardrails import Guardrail
from convergence_core.records import Json, canonical_json
from tasks.store.database import insert_sql
from tasks.store.runtime.rows import AlarmKind, Champion, GateLook, Group, StoredAlarm, StoredGuard
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.schema import ALARMS, CHAMPIONS, GUARDS, LOOKS
from tasks.store.runtime.writes import retire, revise

_ALARM = insert_sql("alarms", ("group_id", "arm_id", "before", "after", "n", "created_us", "kind"))
_LATEST = "SELECT coalesce(max(created_us), 0) FROM alarms WHERE group_id = ? AND kind = ?"
_COUNTS = (
    "SELECT d.version, d.arm_id, count(*) FROM decisions d WHERE d.group_id = ? AND d.fresh = 1 "
    "AND d.version > 0 AND d.created_us > ?"
)
_REWARDED = (
    " AND d.expires_us <= ? AND EXISTS (SELECT 1 FROM rewards r "
    "WHERE r.decision_id = d.decision_id AND r.status IN ('ok', 'late') AND r.status = 'ok')"
)
_DETAILS = (
    "SELECT d.version, d.arm_id, r.details_json FROM rewards r "
    "JOIN decisions d ON d.decision_id = r.decision_id WHERE d.group_id = ? AND d.arm_id IN (?, ?) "
    "AND d.version > ? AND d.fresh = 1 AND r.status = 'ok' "
    "AND (d.expires_us IS NULL OR r.received_us <> d.expires_us - 1) "  # excludes `missing_reward`
    "ORDER BY r.seq DESC LIMIT ?"
)
_BEGIN = (
    "INSERT INTO guards(group_id, promoted, champion, since, alpha, tolerance, holdback, decision, "
    "created_us, steps_json, guardrails_json) SELECT id, ?, ?, version, ?, ?, ?, 'watching', ?, ?, ? "
    "FROM groups WHERE id = ?"
)
_MOVE = (
    "UPDATE guards SET decision = ?, steps_json = ? "
    "WHERE seq = ? AND decision = 'watching' AND steps_json = ?"
)
_REIGNS = (
    "SELECT 1 FROM arms WHERE group_id = ? AND arm_id = ? AND params_json = "
    "(SELECT params_json FROM champions WHERE system = ? ORDER BY seq DESC LIMIT 1)"
)


def alarms(store: RuntimeStore, system: str | None = None) -> list[StoredAlarm]:
    """Return all alarms or those of one system, oldest first."""
    return store.find(ALARMS, "ORDER BY seq", system=system)


def unreported_alarms(store: RuntimeStore) -> list[StoredAlarm]:
    """Return the alarms that have not been reported, oldest first."""
    return store.find(ALARMS, "ORDER BY seq", is_told=0)


def mark_reported(store: RuntimeStore, reported: Sequence[StoredAlarm]) -> None:
    """Mark alarms as reported."""
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
    steps: Sequence[float] = (),
    guardrails: Sequence[Guardrail] = (),
) -> None:
    """Monitor a promotion from the next policy version on; end the group's previous guard."""
    rails = canonical_json([asdict(rail) for rail in guardrails])
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE guards SET decision = 'ended' WHERE group_id = ? AND decision = 'watching'",
            (group_id,),
        )
        connection.execute(
            _BEGIN,
            (promoted, champion, alpha, tolerance, holdback, store.now_us(),
             canonical_json(list(steps)), rails, group_id),
        )  # fmt: skip
        revise(connection, group_id)


def active_guard(store: RuntimeStore, group_id: int) -> StoredGuard | None:
    """Return the active guard of a group; ``None`` if there is none."""
    with store.database.reading() as connection:
        return GUARDS.first(
            connection, "ORDER BY seq DESC", group_id=group_id, decision="watching"
        )


def guards_of(store: RuntimeStore, system: str) -> list[StoredGuard]:
    """Return the guards of all promotions of a system, oldest first."""
    return store.find(GUARDS, "ORDER BY seq", system=system)


def move_guard(
    store: RuntimeStore,
    group_id: int,
    guard: StoredGuard,
    decision: str,
    *,
    look: GateLook | None = None,
    restored: Champion | None = None,
) -> bool:
    """Store a guard's verdict and its effects in one transaction.

    Args:
        store: the runtime state.
        group_id: id of the group.
        guard: state of the guard at the verdict.
        decision: ``advance`` takes the next step; any other value ends the guard.
        look: the look behind the decision.
        restored: champion of a rollback, which retires the promoted arm. It replaces the promoted
            champion only, not a later one.

    Returns:
        ``False`` if another process was first.
    """
    steps = canonical_json(list(guard.steps))
    left = canonical_json(list(guard.steps[decision == "advance" :]))
    state = "watching" if decision == "advance" else decision
    with store.database.transaction() as connection:
        connection.execute(_MOVE, (state, left, guard.seq, steps))
        if not connection.changes():
            return False
        if restored is not None:
            reigns = (group_id, guard.promoted, restored.system)
            if connection.execute(_REIGNS, reigns).fetchone() is not None:
                CHAMPIONS.add(connection, restored)
            retire(connection, group_id, guard.promoted, store.now_us())
        if look is not None:
            LOOKS.add(connection, look)
        revise(connection, group_id)
    return True


def save_fences(store: RuntimeStore, guard: StoredGuard, rails: Sequence[Guardrail]) -> None:
    """Store the fences of a guard's guardrails unless another process was first."""
    known = canonical_json([asdict(rail) for rail in guard.guardrails])
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE guards SET guardrails_json = ? WHERE seq = ? AND guardrails_json = ?",
            (canonical_json([asdict(rail) for rail in rails]), guard.seq, known),
        )


def numbers_of(
    store: RuntimeStore, group_id: int, arms: tuple[str, str], *, after: int, most: int = 2**31
) -> list[tuple[int, str, dict[str, float]]]:
    """Return version, arm and metrics of each reported reward of two arms, latest first.

    Args:
        store: the runtime state.
        group_id: id of the group.
        arms: ids of the two arms.
        after: policy version; only decisions of later versions are included.
        most: maximum number of rewards.
    """
    rows = []
    for version, arm_id, text in store.fetch(_DETAILS, (group_id, *arms, after, most)):
        details = json.loads(text or "{}")
        numbers = {**(details.get("signals") or {}), "cost": details.get("cost")}
        rows.append((version, arm_id, {k: x for k, x in numbers.items() if x is not None}))
    return rows


def counts_since_alarm(
    store: RuntimeStore, group_id: int, kind: AlarmKind
) -> list[tuple[int, str, int]]:
    """Return counts of fresh decisions by version and arm since the last alarm of a kind.

    ``missing_rewards`` counts the decisions that received a reward within their window, now past.
    """
    ((since,),) = store.fetch(_LATEST, (group_id, kind))
    rewarded, values = (_REWARDED, (store.now_us(),)) if kind == "missing_rewards" else ("", ())
    statement = f"{_COUNTS}{rewarded} GROUP BY d.version, d.arm_id ORDER BY d.version, d.arm_id"
    return store.fetch(statement, (group_id, since, *values))


def save_alarm(
    store: RuntimeStore,
    group_id: int,
    kind: AlarmKind,
    arm_id: str,
    *,
    shares: tuple[float, float],
    n: int,
) -> None:
    """Store an alarm on shares, given as (expected, realised)."""
    with store.database.transaction() as connection:
        connection.execute(_ALARM, (group_id, arm_id, *shares, n, store.now_us(), kind))


def requests_after(
    store: RuntimeStore, group_id: int, seq: int
) -> list[tuple[int, str, str, str | None, float]]:
    """Return the next rewards for contextual arms: number, arm, user, context and reward.

    At most 10,000 rows are returned.
    """
    return store.fetch(
        "SELECT r.seq, d.arm_id, d.user_id, d.context_json, r.reward FROM rewards r "
        "JOIN decisions d ON d.decision_id = r.decision_id "
        "WHERE r.group_id = ? AND r.status = 'ok' AND r.seq > ? ORDER BY r.seq LIMIT 10000",
        (group_id, seq),
    )


def contextual_state(store: RuntimeStore, group_id: int) -> tuple[str | None, int]:
    """Return the learned state of contextual arms as JSON, and the number of its last reward."""
    ((state_json, seq),) = store.fetch(
        "SELECT state_json, state_seq FROM groups WHERE id = ?", (group_id,)
    )
    return state_json, int(seq)


def save_contextual_state(
    store: RuntimeStore, group: Group, state: Mapping[str, Json], seq: int
) -> None:
    """Store the learned state of contextual arms unless a later one or a revision exists."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE groups SET state_json = ?, state_seq = ? WHERE id = ? AND state_seq < ? "
            "AND revision = ?",
            (canonical_json(dict(state)), seq, group.group_id, seq, group.revision),
        )


def begin_contextual(store: RuntimeStore, group_id: int, state: Mapping[str, Json]) -> None:
    """Set the initial state of contextual arms; they learn all rewards again."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE groups SET state_json = ?, state_seq = 0 WHERE id = ?",
            (canonical_json(dict(state)), group_id),
        )
        revise(connection, group_id)
