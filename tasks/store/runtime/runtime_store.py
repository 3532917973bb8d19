"""Runtime state shared between processes.

Every write is one durable transaction with the journal's recipe (``sqlite``): commit under a fair
lock, sync outside it. One transaction stores a reward and its posterior update. After any kill,
the posterior therefore equals the base plus the acknowledged rewards, each counted once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields

from convergence_core.errors import ArmChangedError
from convergence_core.records import Json, canonical_json
from tasks.store.database import Connection
from tasks.store.runtime.rows import (
    ArmKind,
    ArmOffer,
    Decision,
    Group,
    RewardTally,
    StoredArm,
    StoredPolicy,
)
from tasks.store.runtime.schema import ARMS, DECISIONS, GROUPS, POLICIES, RUNTIME, RUNTIME_FILE
from tasks.store.runtime.writes import MOST_MISSING, retire, revise, reward_missing
from tasks.store.shared_database import SharedStore

_ADD = (
    "INSERT INTO arms(group_id, arm_id, position, params_json, prior_json, base_alpha, base_beta, "
    "base_seq, alpha, beta, run_id, created_us, cost) "
    "VALUES (?, ?, (SELECT count(*) FROM arms WHERE group_id = ?), ?, ?, ?, ?, "
    "(SELECT coalesce(max(seq), 0) FROM rewards), ?, ?, ?, ?, ?) "
    "ON CONFLICT(group_id, arm_id) DO UPDATE SET retired_us = NULL, "
    "cost = coalesce(excluded.cost, arms.cost)"
)
_FIND = (
    f"SELECT {DECISIONS.columns_of('d')}, g.system, g.agent_type, a.params_json, r.reward, r.status "  # noqa: S608 - constants
    "FROM decisions d JOIN groups g ON g.id = d.group_id "
    "JOIN arms a ON a.group_id = d.group_id AND a.arm_id = d.arm_id "
    "LEFT JOIN rewards r ON r.decision_id = d.decision_id AND r.status IN ('ok', 'late') "
    "WHERE d.decision_id = ?"
)
_TALLIES = (
    "SELECT d.version, d.arm_id, r.reward, count(*) FROM rewards r "
    "JOIN decisions d ON d.decision_id = r.decision_id "
    "WHERE r.status = 'ok' AND d.fresh = 1 AND d.group_id = ? "
    "GROUP BY d.version, d.arm_id, r.reward ORDER BY d.version, d.arm_id, r.reward"
)
_WITHOUT_REWARD = (
    "SELECT d.version, d.arm_id, {}, count(*) FROM decisions d WHERE d.fresh = 1 AND d.group_id = ? "
    "AND {} AND NOT EXISTS (SELECT 1 FROM rewards r WHERE r.decision_id = d.decision_id "
    "AND r.status IN ('ok', 'late') AND r.status = 'ok') "  # the first condition makes SQLite use `one_reward`
    "GROUP BY d.version, d.arm_id ORDER BY d.version, d.arm_id"
)
_OPEN = _WITHOUT_REWARD.format("NULL", "(d.expires_us IS NULL OR d.expires_us > ?)")
_EXPIRED = _WITHOUT_REWARD.format("?", "d.expires_us > 0 AND d.expires_us <= ?")


class RuntimeStore(SharedStore):
    """Arms, policies, decisions and rewards, on a local disk or in Postgres.

    Thread-safe; blocks.
    """

    file, schema = RUNTIME_FILE, RUNTIME

    def group(self, system: str, agent_type: str) -> Group | None:
        """Return a group; ``None`` if it does not exist."""
        with self.database.reading() as connection:
            return GROUPS.first(connection, system=system, agent_type=agent_type)

    def offer(
        self,
        system: str,
        agent_type: str,
        arms: Sequence[ArmOffer],
        *,
        trust: float,
        kind: ArmKind = "beta",
    ) -> Group:
        """Activate arms; an existing arm keeps its posterior and becomes active again.

        Args:
            system: name of the optimized system.
            agent_type: kind of agent.
            arms: arms to activate.
            trust: trust in nightly priors, for a new group.
            kind: posterior of the arms, for a new group.

        Raises:
            ArmChangedError: an arm of that name has other parameters; activates none.
        """
        now = self.now_us()
        with self.database.transaction() as connection:
            connection.execute(
                "INSERT INTO groups(system, agent_type, trust, kind) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (system, agent_type) DO NOTHING",
                (system, agent_type, trust, kind),
            )
            group = _known(connection, system, agent_type)
            if group.kind != kind:
                raise ArmChangedError(
                    f"the arms of `{system}` / `{agent_type}` must stay {group.kind}, since their "
                    f"rewards were learned so, but got {kind}. Serve {kind} arms under another "
                    "system or agent type."
                )
            _check_unchanged(connection, group.group_id, arms)
            for arm in arms:
                prior, a, b, run_id = None, 1.0, 1.0, None
                if (given := arm.prior) is not None:
                    a, b, run_id = given.alpha, given.beta, given.run_id
                    shown = {"mean": given.mean, "sd": given.sd, "weight": given.weight}
                    prior = canonical_json(shown)
                connection.execute(
                    _ADD,
                    (group.group_id, arm.arm_id, group.group_id, canonical_json(dict(arm.params)),
                     prior, a, b, a, b, run_id, now, arm.cost),
                )  # fmt: skip
            revise(connection, group.group_id)
            return _known(connection, system, agent_type)

    def retire(self, system: str, agent_type: str, arm_id: str) -> bool:
        """Retire an arm, keep its data, and return whether it was active."""
        with self.database.transaction() as connection:
            group = _known(connection, system, agent_type)
            return retire(connection, group.group_id, arm_id, self.now_us())

    def arms(self, group_id: int) -> list[StoredArm]:
        """Return all arms of a group, including retired ones, in order of arrival."""
        return self.find(ARMS, "ORDER BY position", group_id=group_id)

    def policy(self, group_id: int, version: int) -> StoredPolicy:
        """Return one version of a group's policy.

        Raises:
            KeyError: the version does not exist.
        """
        policies = self.find(POLICIES, group_id=group_id, version=version)
        if not policies:
            raise KeyError(f"group {group_id} has no policy of version {version}")
        return policies[0]

    def policies(self, group_id: int) -> list[StoredPolicy]:
        """Return all versions of a group's policy, by number."""
        return self.find(POLICIES, "ORDER BY version", group_id=group_id)

    def save_policy(self, group_id: int, policy: StoredPolicy) -> bool:
        """Store a policy as the next version; return ``False`` if another process was first."""
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE groups SET version = ? WHERE id = ? AND version = ?",
                (policy.version, group_id, policy.version - 1),
            )
            if not connection.changes():
                return False
            POLICIES.add(connection, policy, group_id, self.now_us())
        return True

    def save_settings(self, system: str, settings: Mapping[str, Json]) -> None:
        """Store the settings of a system for all processes that serve it."""
        with self.database.transaction() as connection:
            connection.execute(
                "INSERT INTO systems VALUES (?, ?) ON CONFLICT (system) DO UPDATE SET "
                "settings_json = excluded.settings_json",
                (system, canonical_json(dict(settings))),
            )
            connection.execute(
                "UPDATE groups SET revision = revision + 1 WHERE system = ?", (system,)
            )

    def settings_text(self, system: str) -> str | None:
        """Return the settings of a system as JSON; ``None`` if it was never configured."""
        rows = self.fetch("SELECT settings_json FROM systems WHERE system = ?", (system,))
        return str(rows[0][0]) if rows else None

    def systems(self) -> list[tuple[str, str]]:
        """Return system and agent type of every group, sorted."""
        return self.fetch("SELECT system, agent_type FROM groups ORDER BY system, agent_type")

    def decision(self, decision_id: str) -> Decision | None:
        """Return a decision; ``None`` if it does not exist."""
        for *row, system, agent_type, params_json, reward, status in self.fetch(
            _FIND, (decision_id,)
        ):
            logged = DECISIONS.record(row)
            return Decision(
                **{field.name: getattr(logged, field.name) for field in fields(logged)},
                system=system,
                agent_type=agent_type,
                params=json.loads(params_json),
                reward=reward,
                reward_status=status,
            )
        return None

    def tallies(self, group_id: int, missing_reward: float | None = None) -> list[RewardTally]:
        """Return the outcomes of fresh decisions, counted by version, arm and value.

        Args:
            group_id: id of the group.
            missing_reward: reward of a decision whose window has passed without one; ``None``
                leaves such decisions out.
        """
        now = self.now_us()
        rows = self.fetch(_TALLIES, (group_id,)) + self.fetch(_OPEN, (group_id, now))
        if missing_reward is not None:
            rows += self.fetch(_EXPIRED, (missing_reward, group_id, now))
        return [RewardTally(version=v, arm_id=arm, reward=r, n=n) for v, arm, r, n in rows]

    def reward_missing(self, system: str, group_id: int) -> None:
        """Give expired decisions without a reward the stated one; see ``writes``."""
        while True:
            with self.database.transaction() as connection:
                if reward_missing(connection, system, group_id, self.now_us()) < MOST_MISSING:
                    return

    def void(self, decision_id: str) -> None:
        """Void a decision whose arm did not answer the request."""
        with self.database.transaction() as connection:
            # An empty window: the decision counts for nothing, and no reward of it is missing.
            connection.execute(
                "UPDATE decisions SET expires_us = 0 WHERE decision_id = ?", (decision_id,)
            )


def _known(connection: Connection, system: str, agent_type: str) -> Group:
    group = GROUPS.first(connection, system=system, agent_type=agent_type)
    if group is None:
        raise KeyError(f"no arm was ever active for {system} / {agent_type}")
    return group


def _check_unchanged(connection: Connection, group_id: int, arms: Sequence[ArmOffer]) -> None:
    for arm in arms:
        row = connection.execute(
            "SELECT params_json FROM arms WHERE group_id = ? AND arm_id = ?",
            (group_id, arm.arm_id),
        ).fetchone()
        if row is not None and row[0] != canonical_json(dict(arm.params)):
            raise ArmChangedError(
                f"the arm `{arm.arm_id}` must keep its parameters, since its rewards are theirs, "
                f"but got {canonical_json(dict(arm.params))[:200]}, and it has {row[0][:200]}. "
                "Give the new parameters another name, and retire the old arm."
            )
