"""Writes of decisions and rewards: functions of one open transaction.

Several of them may share a transaction, so that many requests cost one commit. Each validates its
arguments before it writes, so a rejected request leaves the others intact.
"""

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from convergence_core.bandit.arms import OpenDecision, Receipt, receive
from convergence_core.bandit.drift import Alarm, DriftWatch
from convergence_core.bandit.features import HASHED
from convergence_core.errors import RequestReusedError, WrongUserError
from tasks.store.database import Connection, insert_sql
from tasks.store.runtime.rows import LoggedDecision, NewDecision, Reward
from tasks.store.runtime.schema import DECISIONS

_STATE = "SELECT revision, n FROM groups WHERE id = ?"
_WAIT = "SELECT g.id FROM groups g WHERE g.id = ?/*lock*/"
_KEPT = (
    "SELECT s.arm_id, s.version, s.propensity FROM assignments s "
    "JOIN arms a ON a.group_id = s.group_id AND a.arm_id = s.arm_id "
    "WHERE s.group_id = ? AND s.unit = ? AND a.retired_us IS NULL"
)
_ASSIGN = (
    "INSERT INTO assignments VALUES (?, ?, ?, ?, ?) ON CONFLICT (group_id, unit) DO UPDATE SET "
    "arm_id = excluded.arm_id, version = excluded.version, propensity = excluded.propensity"
)
_OPEN = (
    "SELECT d.group_id, d.arm_id, d.expires_us, (SELECT r.reward FROM rewards r "
    "WHERE r.decision_id = d.decision_id AND r.status IN ('ok', 'late')), g.system, d.user_id, "
    "s.settings_json, d.fresh FROM decisions d JOIN groups g ON g.id = d.group_id "
    "LEFT JOIN systems s ON s.system = g.system WHERE d.decision_id = ?/*lock*/"
)
_REWARD = insert_sql(
    "rewards", ("decision_id", "group_id", "reward", "status", "received_us", "details_json")
)
_COST = (
    "UPDATE arms SET costs = costs + ?, n_costs = n_costs + 1 WHERE group_id = ? AND arm_id = ?"
)
_LEARN = (
    "UPDATE arms SET alpha = alpha + ?, beta = beta + ?, n = n + 1 "
    "WHERE group_id = ? AND arm_id = ?"
)
_WATCH = "SELECT watch_json FROM groups WHERE id = ?"
_SAVE_WATCH = "UPDATE groups SET watch_json = ? WHERE id = ?"
_ARM_IDS = "SELECT arm_id FROM arms WHERE group_id = ? ORDER BY position"
_ALARM = insert_sql("alarms", ("group_id", "arm_id", "before", "after", "n", "created_us"))
_RESTART = (
    "UPDATE arms SET base_alpha = ?, base_beta = ?, alpha = ?, beta = ?, prior_json = NULL, "
    "base_seq = (SELECT max(seq) FROM rewards) WHERE group_id = ? AND arm_id = ?"
)
_RETIRE = "UPDATE arms SET retired_us = ? WHERE group_id = ? AND arm_id = ? AND retired_us IS NULL"
_EXPLORE = "UPDATE groups SET explore_until = n + ?, trust = 0 WHERE id = ?"
_SETTINGS = "SELECT settings_json FROM systems WHERE system = ?"
_ABSENT = (
    "SELECT d.decision_id, d.expires_us FROM decisions d WHERE d.group_id = ? AND d.expires_us <= ? "
    "AND d.expires_us > 0 AND NOT EXISTS (SELECT 1 FROM rewards r WHERE r.decision_id = d.decision_id "
    "AND r.status IN ('ok', 'late')) ORDER BY d.seq LIMIT ?"
)
MOST_MISSING: Final = 1_000
"""Maximum unrewarded decisions that one transaction closes."""
EXPLORE_FOR: Final = 100
"""Number of rewards for which an alarm raises exploration."""


@lru_cache(256)
def _settings(settings_json: str | None) -> dict[str, Any]:
    """Parse the settings of a system; empty if it has none."""
    settings: dict[str, Any] = {} if settings_json is None else json.loads(settings_json)
    return settings


def is_outdated(connection: Connection, group_id: int, *, revision: int, stale_at: float) -> bool:
    """Return whether a policy is outdated, so that its decisions must not be logged.

    Args:
        connection: an open transaction.
        group_id: id of the group.
        revision: revision of the arms behind the policy; any other one outdates it.
        stale_at: number of rewards from which the policy is outdated.
    """
    stored_revision, n = connection.execute(_STATE, (group_id,)).fetchone()
    return bool(stored_revision != revision or n >= stale_at)


def log_decision(connection: Connection, group_id: int, new: NewDecision) -> LoggedDecision:
    """Log a decision; a unit with an active arm keeps that arm.

    Returns:
        The logged decision; the earlier one if the request is a repetition.

    Raises:
        RequestReusedError: the request key belongs to another request; nothing is logged.
    """
    if new.request_key is not None or new.unit is not None:
        # Of two concurrent requests, one has to see the other's rows.
        connection.execute(_WAIT, (group_id,))
    if new.request_key is not None:
        before = _answered_before(connection, group_id, new)
        if before is not None:
            return before
    if new.unit is not None:
        new = _kept(connection, group_id, new)
    DECISIONS.add(connection, new, group_id, new.request_key)
    return new


def take_reward(
    connection: Connection, system: str, new: Reward, value: float, now: int
) -> tuple[Receipt, Alarm | None]:
    """Store a reward and update its arm; see ``bandit.arms.receive`` for the rules.

    Args:
        connection: an open transaction.
        system: expected system of the decision; a decision of another one counts as unknown.
        new: the reward, with a decision.
        value: value of the reward, in [0, 1].
        now: time of arrival, in microseconds.

    Raises:
        ValueError: the reward is not in [0, 1]; nothing is stored.
        WrongUserError: the decision served another user; nothing is stored.
    """
    row = connection.execute(_OPEN, (new.decision_id,)).fetchone()
    known = row is not None and row[4] == system
    if known and new.user_id not in {None, row[5]}:
        raise WrongUserError.of(str(new.decision_id), new.user_id or "")
    settings = _settings(row[6] if known else None)
    missing = settings.get("missing_reward")
    if known and missing is not None and row[3] is None and row[2] and now >= row[2]:
        absent = Reward(decision_id=new.decision_id)
        take_reward(connection, system, absent, missing, row[2] - 1)
        row = connection.execute(_OPEN, (new.decision_id,)).fetchone()
    decision = OpenDecision(expires_us=row[2], reward=row[3]) if known else None
    receipt = receive(value, decision, now)
    if receipt.stored is not None:
        group_id = row[0] if known else None
        connection.execute(
            _REWARD, (new.decision_id, group_id, value, receipt.stored, now, new.details_json)
        )
    if not receipt.learns:
        return receipt, None
    group_id, arm_id = row[0], row[1]
    connection.execute(_LEARN, (value, 1.0 - value, group_id, arm_id))
    if new.cost is not None:
        connection.execute(_COST, (new.cost, group_id, arm_id))
    connection.execute("UPDATE groups SET n = n + 1 WHERE id = ?", (group_id,))
    # A decision that repeats its unit's arm is no new observation.
    rate = settings.get("rewards_per_false_alarm")
    if rate is None or not row[7]:
        return receipt, None
    alarm = _watched(connection, group_id, arm_id, value, rewards_per_false_alarm=rate)
    if alarm is not None:
        _reopen(connection, group_id, alarm, now)
    return receipt, alarm


def reward_missing(connection: Connection, system: str, group_id: int, now: int) -> int:
    """Give expired decisions without a reward the ``missing_reward`` of the settings.

    Args:
        connection: an open transaction.
        system: system with the setting.
        group_id: id of the group.
        now: current time, in microseconds.

    Returns:
        Number of these decisions, at most ``MOST_MISSING``.
    """
    row = connection.execute(_SETTINGS, (system,)).fetchone()
    missing = _settings(None if row is None else row[0]).get("missing_reward")
    if missing is None:
        return 0
    rows = connection.execute(_ABSENT, (group_id, now, MOST_MISSING)).fetchall()
    for decision_id, expires_us in rows:
        take_reward(
            connection, system, Reward(decision_id=decision_id), missing, int(expires_us) - 1
        )
    return len(rows)


def retire(connection: Connection, group_id: int, arm_id: str, now: int) -> bool:
    """Retire an arm, keep its data, and return whether it was active."""
    connection.execute(_RETIRE, (now, group_id, arm_id))
    changed = connection.changes() > 0
    revise(connection, group_id)
    return changed


def revise(connection: Connection, group_id: int) -> None:
    """Increase a group's revision, so that all processes reload its arms and settings."""
    connection.execute("UPDATE groups SET revision = revision + 1 WHERE id = ?", (group_id,))


def _watched(
    connection: Connection,
    group_id: int,
    arm_id: str,
    reward: float,
    *,
    rewards_per_false_alarm: float,
) -> Alarm | None:
    """Update the group's drift monitor with a reward."""
    names = _arms(connection, group_id)
    (watched,) = connection.execute(_WATCH, (group_id,)).fetchone()
    watch = DriftWatch() if watched is None else DriftWatch.from_json(watched)
    watch = replace(watch, rewards_per_false_alarm=rewards_per_false_alarm)
    watch, alarm = watch.widened(len(names)).tell(names.index(arm_id), reward)
    connection.execute(_SAVE_WATCH, (watch.to_json(), group_id))
    return alarm


def _reopen(connection: Connection, group_id: int, alarm: Alarm, now: int) -> None:
    """Store an alarm, restart its arm from the rewards since the change, raise exploration."""
    arm_id = _arms(connection, group_id)[alarm.arm]
    connection.execute(_ALARM, (group_id, arm_id, alarm.before, alarm.after, alarm.n, now))
    total = alarm.after * alarm.n_after
    a, b = 1.0 + total, 1.0 + alarm.n_after - total
    connection.execute(_RESTART, (a, b, a, b, group_id, arm_id))
    connection.execute(_EXPLORE, (EXPLORE_FOR, group_id))
    revise(connection, group_id)


def _arms(connection: Connection, group_id: int) -> list[str]:
    """Return the group's arms by position, including retired ones."""
    return [arm_id for (arm_id,) in connection.execute(_ARM_IDS, (group_id,)).fetchall()]


def _answered_before(
    connection: Connection, group_id: int, new: NewDecision
) -> LoggedDecision | None:
    before = DECISIONS.first(connection, group_id=group_id, request_key=new.request_key)
    if before is None:
        return None
    if not _is_repeat(before, new):
        raise RequestReusedError(
            "an idempotency key must stand for one request, but this one was used for another "
            "user or context. Make a new key for each request."
        )
    return before


def _is_repeat(before: LoggedDecision, new: NewDecision) -> bool:
    """Return whether user and context match.

    Hashed features of texts are ignored if the keys differ, since an embedder may be late or new.
    """
    one, other = (json.loads(decision.context_json or "{}") for decision in (before, new))
    if one.keys() != other.keys():
        one, other = (
            {k: v for k, v in of.items() if not k.startswith(HASHED)} for of in (one, other)
        )
    return (before.user_id, one) == (new.user_id, other)


def _kept(connection: Connection, group_id: int, new: NewDecision) -> NewDecision:
    """Return the decision with the unit's stored arm; without one, store the new arm."""
    row = connection.execute(_KEPT, (group_id, new.unit)).fetchone()
    if row is not None:
        return replace(new, arm_id=row[0], version=row[1], propensity=row[2], is_fresh=False)
    connection.execute(_ASSIGN, (group_id, new.unit, new.arm_id, new.version, new.propensity))
    return new
