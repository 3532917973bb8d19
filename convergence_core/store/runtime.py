"""``RuntimeStore``: decisions and rewards that several processes share, durable before acknowledged.

Every write is one transaction of the journal's recipe (``sqlite``): commit under a fair lock, sync
outside it. A reward and what the posterior learns from it are one transaction, so after any kill the
posterior is the base plus the acknowledged rewards, each counted once.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from convergence_core.bandit.drift import Alarm
from convergence_core.bandit.receipts import OpenDecision, Receipt, receive
from convergence_core.records import canonical_json
from convergence_core.store.journal import wall_clock_us
from convergence_core.store.layout import ensure_store, store_root
from convergence_core.store.runtime_drift import sound, watch
from convergence_core.store.runtime_rows import (
    ArmOffer,
    Group,
    NewDecision,
    StoredArm,
    StoredDecision,
    StoredPolicy,
    Tally,
)
from convergence_core.store.runtime_schema import RUNTIME_FILE, runtime_schema
from convergence_core.store.sqlite import Closing, DurableDatabase

_GROUP = (
    "SELECT id, n, version, revision, explore_until, trust FROM groups "
    "WHERE system = ? AND agent_type = ?"
)
_ARMS = (
    "SELECT arm_id, params_json, prior_json, base_alpha, base_beta, base_seq, alpha, beta, n, "
    "run_id, retired_us IS NOT NULL FROM arms WHERE group_id = ? ORDER BY position"
)
_ADD = (
    "INSERT INTO arms(group_id, arm_id, position, params_json, prior_json, base_alpha, base_beta, "
    "base_seq, alpha, beta, run_id, created_us) "
    "VALUES (?, ?, (SELECT count(*) FROM arms WHERE group_id = ?), ?, ?, ?, ?, "
    "(SELECT coalesce(max(seq), 0) FROM rewards), ?, ?, ?, ?) "
    "ON CONFLICT(group_id, arm_id) DO UPDATE SET retired_us = NULL"
)
_DECIDE = (
    "INSERT INTO decisions(decision_id, group_id, user_id, arm_id, version, propensity, fresh, "
    "context_json, created_us, expires_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_OPEN = (
    "SELECT d.group_id, d.arm_id, d.expires_us, (SELECT r.reward FROM rewards r "
    "WHERE r.decision_id = d.decision_id AND r.status IN ('ok', 'late')), g.system "
    "FROM decisions d JOIN groups g ON g.id = d.group_id WHERE d.decision_id = ?"
)
_REWARD = "INSERT INTO rewards(decision_id, group_id, reward, status, received_us) VALUES (?, ?, ?, ?, ?)"
_LEARN = (
    "UPDATE arms SET alpha = base_alpha + :kept * (alpha - base_alpha) + :reward, "
    "beta = base_beta + :kept * (beta - base_beta) + 1.0 - :reward, n = n + 1 "
    "WHERE group_id = :group_id AND arm_id = :arm_id"
)
_FIND = (
    "SELECT d.decision_id, g.system, g.agent_type, d.user_id, d.arm_id, a.params_json, d.version, "
    "d.propensity, d.fresh, d.context_json, d.created_us, d.expires_us, r.reward, r.status "
    "FROM decisions d JOIN groups g ON g.id = d.group_id "
    "JOIN arms a ON a.group_id = d.group_id AND a.arm_id = d.arm_id "
    "LEFT JOIN rewards r ON r.decision_id = d.decision_id AND r.status IN ('ok', 'late') "
    "WHERE d.decision_id = ?"
)
_TALLIES = (
    "SELECT d.version, d.arm_id, r.reward, count(*) FROM rewards r "
    "JOIN decisions d ON d.decision_id = r.decision_id "
    "WHERE r.status = 'ok' AND d.fresh AND d.group_id = ? "
    "GROUP BY d.version, d.arm_id, r.reward ORDER BY d.version, d.arm_id, r.reward"
)


class RuntimeStore(Closing):
    """Arms, policies, decisions and rewards on a local disk. Thread-safe; blocks."""

    def __init__(self, path: Path | str, *, now_us: Callable[[], int] = wall_clock_us) -> None:
        """Open the runtime state of the store whose root folder is ``path``, creating both.

        Raises:
            StoreFormatError: the folder is no store, or of a newer version.
            StoreDamagedError: the file is no database.
            StoreWriteError: it cannot be created or written.
        """
        root = store_root(path)
        ensure_store(root)
        self.database = DurableDatabase(root / RUNTIME_FILE, runtime_schema())
        self.now_us = now_us

    def group(self, system: str, agent_type: str) -> Group | None:
        """Return a group, ``None`` if nobody made it."""
        with self.database.reading() as connection:
            return _group(connection, system, agent_type)

    def offer(
        self, system: str, agent_type: str, arms: Sequence[ArmOffer], *, trust: float
    ) -> Group:
        """Put arms on offer; one that is there already keeps its posterior and comes back."""
        now = self.now_us()
        with self.database.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO groups(system, agent_type, trust) VALUES (?, ?, ?)",
                (system, agent_type, trust),
            )
            group = _known(connection, system, agent_type)
            for arm in arms:
                prior = None if arm.prior is None else canonical_json(dict(arm.prior))
                a, b = arm.prior_alpha, arm.prior_beta
                connection.execute(
                    _ADD,
                    (group.group_id, arm.arm_id, group.group_id, canonical_json(dict(arm.params)),
                     prior, a, b, a, b, arm.run_id, now),
                )  # fmt: skip
            _revise(connection, group.group_id)
            return _known(connection, system, agent_type)

    def retire(self, system: str, agent_type: str, arm_id: str) -> bool:
        """Take an arm off offer, its decisions and rewards kept; return whether it was on."""
        with self.database.transaction() as connection:
            group = _known(connection, system, agent_type)
            connection.execute(
                "UPDATE arms SET retired_us = ? "
                "WHERE group_id = ? AND arm_id = ? AND retired_us IS NULL",
                (self.now_us(), group.group_id, arm_id),
            )
            changed = connection.changes() > 0
            _revise(connection, group.group_id)
        return changed

    def drop_priors(self, system: str, agent_type: str) -> None:
        """Take the nightly priors out of all posteriors; what rewards taught stays."""
        with self.database.transaction() as connection:
            group = _known(connection, system, agent_type)
            connection.execute(
                "UPDATE arms SET alpha = alpha - base_alpha + 1.0, beta = beta - base_beta + 1.0, "
                "base_alpha = 1.0, base_beta = 1.0, prior_json = NULL "
                "WHERE group_id = ? AND prior_json IS NOT NULL",
                (group.group_id,),
            )
            connection.execute("UPDATE groups SET trust = 0 WHERE id = ?", (group.group_id,))
            _revise(connection, group.group_id)

    def arms(self, group_id: int) -> list[StoredArm]:
        """Return all arms of a group, those retired included, in order of arrival."""
        with self.database.reading() as connection:
            rows = connection.execute(_ARMS, (group_id,)).fetchall()
        return [_arm(row) for row in rows]

    def policy(self, group_id: int, version: int) -> StoredPolicy:
        """Return one version of a group's policy.

        Raises:
            KeyError: there is none.
        """
        found = [p for p in self.policies(group_id) if p.version == version]
        if not found:
            raise KeyError(f"group {group_id} has no policy of version {version}")
        return found[0]

    def policies(self, group_id: int) -> list[StoredPolicy]:
        """Return all versions, by number."""
        with self.database.reading() as connection:
            rows: Any = connection.execute(
                "SELECT version, mode, n, arms_json, shares_json, design_json FROM policies "
                "WHERE group_id = ? ORDER BY version",
                (group_id,),
            ).fetchall()
        return [
            StoredPolicy(
                version=version,
                mode=mode,
                n=n,
                arms=tuple(json.loads(arms)),
                shares=tuple(json.loads(shares)),
                design=json.loads(design),
            )
            for version, mode, n, arms, shares, design in rows
        ]

    def save_policy(self, group_id: int, policy: StoredPolicy) -> bool:
        """Store a policy as the next version; return ``False`` if another process was first."""
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE groups SET version = ? WHERE id = ? AND version = ?",
                (policy.version, group_id, policy.version - 1),
            )
            if not connection.changes():
                return False
            connection.execute(
                "INSERT INTO policies VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (group_id, policy.version, policy.mode, policy.n,
                 json.dumps(policy.arms), json.dumps(policy.shares),
                 json.dumps(dict(policy.design)), self.now_us()),
            )  # fmt: skip
        return True

    def decide(self, group_id: int, new: NewDecision) -> NewDecision:
        """Log a decision durably; a unit that has an arm on offer keeps it.

        Returns:
            The decision as it was logged.
        """
        with self.database.transaction() as connection:
            fresh = 1
            if new.unit is not None:
                kept = _kept(connection, group_id, new)
                fresh = int(kept is None)
                new = kept or new
            connection.execute(
                _DECIDE,
                (new.decision_id, group_id, new.user_id, new.arm_id, new.version, new.propensity,
                 fresh, new.context_json, new.created_us, new.expires_us),
            )  # fmt: skip
        return new

    def reward(
        self,
        system: str,
        decision_id: str,
        reward: float,
        *,
        discount: float = 1.0,
        late_counts: bool = False,
        rewards_per_false_alarm: float | None = None,
        explore_for: int = 0,
    ) -> tuple[Receipt, Alarm | None]:
        """Take in a reward: see ``bandit.receipts`` for what becomes of it.

        Args:
            system: whose decision it should be; another system's counts as unknown.
            decision_id: the decision.
            reward: in [0, 1].
            discount: share of the evidence that an arm keeps when it learns.
            late_counts: whether late rewards teach too.
            rewards_per_false_alarm: watch for drift at this rate; ``None``: do not.
            explore_for: rewards for which an alarm raises exploration.

        Raises:
            ValueError: the reward is not in [0, 1]; nothing is stored.
            StoreWriteError: nothing is stored.
        """
        now = self.now_us()
        with self.database.transaction() as connection:
            row: Any = connection.execute(_OPEN, (decision_id,)).fetchone()
            known = row is not None and row[4] == system
            decision = OpenDecision(expires_us=row[2], reward=row[3]) if known else None
            receipt = receive(reward, decision, now, late_counts=late_counts)
            if receipt.stored is not None:
                group_id = row[0] if known else None
                # A late reward that teaches is kept as `ok`, so that the fold stays true.
                status = "ok" if receipt.learns else receipt.stored
                connection.execute(_REWARD, (decision_id, group_id, reward, status, now))
            if not receipt.learns:
                return receipt, None
            connection.execute(
                _LEARN,
                {"kept": discount, "reward": reward, "group_id": row[0], "arm_id": row[1]},
            )
            connection.execute("UPDATE groups SET n = n + 1 WHERE id = ?", (row[0],))
            alarm = None
            if rewards_per_false_alarm is not None:
                alarm = watch(connection, row[0], row[1], reward, rewards_per_false_alarm)
            if alarm is not None:
                sound(connection, row[0], row[1], alarm, explore_for=explore_for, now=now)
        return receipt, alarm

    def decision(self, decision_id: str) -> StoredDecision | None:
        """Return a decision, ``None`` if nobody knows it."""
        with self.database.reading() as connection:
            row: Any = connection.execute(_FIND, (decision_id,)).fetchone()
        if row is None:
            return None
        return StoredDecision(
            decision_id=row[0], system=row[1], agent_type=row[2], user_id=row[3], arm_id=row[4],
            params=json.loads(row[5]), version=row[6], propensity=row[7], is_fresh=bool(row[8]),
            context_json=row[9], created_us=row[10], expires_us=row[11], reward=row[12],
            reward_status=row[13],
        )  # fmt: skip

    def tallies(self, group_id: int) -> list[Tally]:
        """Return the rewards of fresh decisions, counted by version, arm and value."""
        with self.database.reading() as connection:
            rows: Any = connection.execute(_TALLIES, (group_id,)).fetchall()
        return [Tally(version=v, arm_id=a, reward=r, n=n) for v, a, r, n in rows]

    def rebuilt(self, group_id: int) -> dict[str, tuple[float, float]]:
        """Return each arm's counts as base plus the fold of its ``ok`` rewards, undiscounted."""
        with self.database.reading() as connection:
            rows: Any = connection.execute(
                "SELECT a.arm_id, a.base_alpha + coalesce(sum(r.reward), 0), "
                "a.base_beta + coalesce(sum(1.0 - r.reward), 0) FROM arms a "
                "LEFT JOIN decisions d ON d.group_id = a.group_id AND d.arm_id = a.arm_id "
                "LEFT JOIN rewards r ON r.decision_id = d.decision_id AND r.status = 'ok' "
                "AND r.seq > a.base_seq WHERE a.group_id = ? GROUP BY a.arm_id",
                (group_id,),
            ).fetchall()
        return {arm_id: (alpha, beta) for arm_id, alpha, beta in rows}

    def alarms(self, group_id: int) -> list[tuple[str, float, float, int, int]]:
        """Return (arm, mean before, mean after, its rewards, microseconds) of each alarm."""
        with self.database.reading() as connection:
            rows: Any = connection.execute(
                "SELECT arm_id, before, after, n, created_us FROM alarms WHERE group_id = ? "
                "ORDER BY seq",
                (group_id,),
            ).fetchall()
        return [tuple(row) for row in rows]

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self.database.close()


def _group(connection: apsw.Connection, system: str, agent_type: str) -> Group | None:
    row: Any = connection.execute(_GROUP, (system, agent_type)).fetchone()
    if row is None:
        return None
    return Group(
        group_id=row[0], n=row[1], version=row[2], revision=row[3], explore_until=row[4],
        trust=row[5],
    )  # fmt: skip


def _known(connection: apsw.Connection, system: str, agent_type: str) -> Group:
    group = _group(connection, system, agent_type)
    if group is None:
        raise KeyError(f"no arms were ever offered for {system} / {agent_type}")
    return group


def _revise(connection: apsw.Connection, group_id: int) -> None:
    connection.execute("UPDATE groups SET revision = revision + 1 WHERE id = ?", (group_id,))


def _arm(row: Any) -> StoredArm:
    return StoredArm(
        arm_id=row[0], params=json.loads(row[1]), prior=None if row[2] is None else json.loads(row[2]),
        base_alpha=row[3], base_beta=row[4], base_seq=row[5], alpha=row[6], beta=row[7], n=row[8],
        run_id=row[9], is_retired=bool(row[10]),
    )  # fmt: skip


def _kept(connection: apsw.Connection, group_id: int, new: NewDecision) -> NewDecision | None:
    """Return the decision with the unit's own arm; ``None``: it takes the new one."""
    row: Any = connection.execute(
        "SELECT s.arm_id, s.version, s.propensity FROM assignments s "
        "JOIN arms a ON a.group_id = s.group_id AND a.arm_id = s.arm_id "
        "WHERE s.group_id = ? AND s.unit = ? AND a.retired_us IS NULL",
        (group_id, new.unit),
    ).fetchone()
    if row is None:
        connection.execute(
            "INSERT OR REPLACE INTO assignments VALUES (?, ?, ?, ?, ?)",
            (group_id, new.unit, new.arm_id, new.version, new.propensity),
        )
        return None
    return NewDecision(
        decision_id=new.decision_id, user_id=new.user_id, arm_id=row[0], version=row[1],
        propensity=row[2], context_json=new.context_json, created_us=new.created_us,
        expires_us=new.expires_us, unit=new.unit,
    )  # fmt: skip
