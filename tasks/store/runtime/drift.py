"""Drift in the runtime state: the watch sees each reward, and an alarm reopens its arm, or all."""

import json
from typing import TYPE_CHECKING, Any, Final

from convergence_core.bandit.drift import Alarm, DriftWatch

if TYPE_CHECKING:
    from tasks.store.runtime.writes import RuntimeConnection


WHOLE: Final = ""
"""In place of an arm's id: all arms."""


def watch(
    connection: "RuntimeConnection",
    group_id: int,
    arm_id: str,
    reward: float,
    *,
    propensity: float | None,
    rate: float,
) -> Alarm | None:
    """Let the group's watch see a reward; ``propensity`` is ``None`` where no arm was drawn."""
    names = _arms(connection, group_id)
    row: Any = connection.execute(
        "SELECT watch_json FROM groups WHERE id = ?", (group_id,)
    ).fetchone()
    found = (
        DriftWatch.begin(0, rewards_per_false_alarm=rate)
        if row[0] is None
        else DriftWatch.from_json(json.loads(row[0]))
    )
    found, alarm = found.widened(len(names)).tell(names.index(arm_id), reward, propensity)
    connection.execute(
        "UPDATE groups SET watch_json = ? WHERE id = ?",
        (json.dumps(found.to_json()), group_id),
    )
    return alarm


def sound(
    connection: "RuntimeConnection", group_id: int, alarm: Alarm, *, explore_for: int, now: int
) -> None:
    """Store an alarm, reopen what it is about with what is known since, and raise exploration."""
    names = _arms(connection, group_id)
    if alarm.arm is None:
        since = dict(zip(names, alarm.since, strict=True))
    else:
        since = {names[alarm.arm]: (alarm.after * alarm.n_after, alarm.n_after)}
    connection.execute(
        "INSERT INTO alarms(group_id, arm_id, before, after, n, created_us) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            group_id,
            WHOLE if alarm.arm is None else names[alarm.arm],
            alarm.before,
            alarm.after,
            alarm.n,
            now,
        ),
    )
    for name, (total, n) in since.items():
        a, b = 1.0 + total, 1.0 + n - total
        connection.execute(
            "UPDATE arms SET base_alpha = ?, base_beta = ?, alpha = ?, beta = ?, "
            "prior_json = NULL, base_seq = (SELECT max(seq) FROM rewards) "
            "WHERE group_id = ? AND arm_id = ?",
            (a, b, a, b, group_id, name),
        )
    connection.execute(
        "UPDATE groups SET explore_until = n + ?, trust = 0 WHERE id = ?", (explore_for, group_id)
    )
    connection.execute("UPDATE groups SET revision = revision + 1 WHERE id = ?", (group_id,))


def _arms(connection: "RuntimeConnection", group_id: int) -> list[str]:
    """Return the group's arms by their place, those retired included."""
    rows: Any = connection.execute(
        "SELECT arm_id FROM arms WHERE group_id = ? ORDER BY position", (group_id,)
    ).fetchall()
    return [row[0] for row in rows]
