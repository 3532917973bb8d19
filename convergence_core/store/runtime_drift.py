"""Drift in the runtime state: the watch sees each reward, and an alarm reopens its arm."""

import json
from typing import TYPE_CHECKING, Any

from convergence_core.bandit.drift import Alarm, DriftWatch

if TYPE_CHECKING:
    from convergence_core.store.runtime_writes import Connection


def watch(
    connection: "Connection", group_id: int, arm_id: str, reward: float, rate: float
) -> Alarm | None:
    """Let the group's watch see a reward."""
    rows: Any = connection.execute(
        "SELECT arm_id, position FROM arms WHERE group_id = ? ORDER BY position", (group_id,)
    ).fetchall()
    place = [row[0] for row in rows].index(arm_id)
    row: Any = connection.execute(
        "SELECT watch_json FROM groups WHERE id = ?", (group_id,)
    ).fetchone()
    found = (
        DriftWatch.begin(0, rewards_per_false_alarm=rate)
        if row[0] is None
        else DriftWatch.from_json(json.loads(row[0]))
    )
    found, alarm = found.widened(len(rows)).tell(place, reward)
    connection.execute(
        "UPDATE groups SET watch_json = ? WHERE id = ?",
        (json.dumps(found.to_json()), group_id),
    )
    return alarm


def sound(
    connection: "Connection",
    group_id: int,
    arm_id: str,
    alarm: Alarm,
    *,
    explore_for: int,
    now: int,
) -> None:
    """Store an alarm, reopen its arm with what is known since, and raise exploration."""
    connection.execute(
        "INSERT INTO alarms(group_id, arm_id, before, after, n, created_us) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (group_id, arm_id, alarm.before, alarm.after, alarm.n, now),
    )
    since = alarm.after * alarm.n_after
    a, b = 1.0 + since, 1.0 + alarm.n_after - since
    connection.execute(
        "UPDATE arms SET base_alpha = ?, base_beta = ?, alpha = ?, beta = ?, prior_json = NULL, "
        "base_seq = (SELECT max(seq) FROM rewards) WHERE group_id = ? AND arm_id = ?",
        (a, b, a, b, group_id, arm_id),
    )
    connection.execute(
        "UPDATE groups SET explore_until = n + ?, trust = 0 WHERE id = ?", (explore_for, group_id)
    )
    connection.execute("UPDATE groups SET revision = revision + 1 WHERE id = ?", (group_id,))
