"""Tables of the runtime state.

A *group* is one system and one agent type; it shares its arms and its posterior. ``arms.alpha``
and ``beta`` always equal ``base_alpha`` and ``base_beta`` plus the sum over the ``ok`` rewards
after ``base_seq``. The base is the prior until a drift alarm moves it. ``policies`` keeps every
version of the propensities, so a decision stores only the version. ``exports`` holds the ranges
exported to parquet; a range precedes its files. ``fresh`` decisions sampled their arm; the others
repeat the arm of a user or session. ``arms.cost`` is the stated cost of a request, ``costs`` the
sum of the ``n_costs`` costs reported with rewards. ``state_json`` holds what contextual arms have
learned up to the reward ``state_seq``, including a nightly state, so that a process need not start
at the first reward. A row of ``guards`` monitors a promotion since the policy version ``since``;
``steps_json`` holds the remaining shares of its ramp.
"""

from typing import Final

from tasks.store.database import RANGES, RecordTable, Schema, SqlTable
from tasks.store.runtime.rows import (
    Champion,
    GateLook,
    Group,
    LoggedDecision,
    StoredAlarm,
    StoredArm,
    StoredGuard,
    StoredPolicy,
)

RUNTIME_FILE = "runtime.sqlite"
VARIABLE = "CONVERGENCE_RUNTIME"
"""Environment variable with an optional ``postgresql://`` URL of the runtime state."""

GROUPS = RecordTable(
    "groups",
    Group,
    "id INTEGER PRIMARY KEY, system TEXT NOT NULL, agent_type TEXT NOT NULL, "
    "n INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, "
    "revision INTEGER NOT NULL DEFAULT 0, explore_until INTEGER NOT NULL DEFAULT 0, "
    "trust REAL NOT NULL, watch_json TEXT, kind TEXT NOT NULL DEFAULT 'beta', state_json TEXT, "
    "state_seq INTEGER NOT NULL DEFAULT 0, UNIQUE (system, agent_type)",
    columns={"group_id": "id"},
)
ARMS = RecordTable(
    "arms",
    StoredArm,
    "group_id INTEGER NOT NULL, arm_id TEXT NOT NULL, position INTEGER NOT NULL, "
    "params_json TEXT NOT NULL, prior_json TEXT, base_alpha REAL NOT NULL, base_beta REAL NOT NULL, "
    "base_seq INTEGER NOT NULL DEFAULT 0, alpha REAL NOT NULL, beta REAL NOT NULL, "
    "n INTEGER NOT NULL DEFAULT 0, run_id TEXT, created_us INTEGER NOT NULL, retired_us INTEGER, "
    "cost REAL, n_costs INTEGER NOT NULL DEFAULT 0, "
    "costs REAL NOT NULL DEFAULT 0, PRIMARY KEY (group_id, arm_id)",
    columns={"is_retired": "retired_us IS NOT NULL", "stated_cost": "cost"},
)
POLICIES = RecordTable(
    "policies",
    StoredPolicy,
    "*, group_id INTEGER NOT NULL, created_us INTEGER NOT NULL, PRIMARY KEY (group_id, version)",
)
DECISIONS = RecordTable(
    "decisions",
    LoggedDecision,
    "seq INTEGER PRIMARY KEY, *, group_id INTEGER NOT NULL, request_key TEXT, UNIQUE (decision_id)",
    "UNIQUE one_request(group_id, request_key) WHERE request_key IS NOT NULL",
    columns={"is_fresh": "fresh"},
)
_OF_GROUP = {
    name: f"(SELECT g.{name} FROM groups g WHERE g.id = group_id)"  # noqa: S608 - constants
    for name in ("system", "agent_type")
}
ALARMS = RecordTable(
    "alarms",
    StoredAlarm,
    "seq INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, arm_id TEXT NOT NULL, before REAL NOT NULL, "
    "after REAL NOT NULL, n INTEGER NOT NULL, created_us INTEGER NOT NULL, "
    "is_told INTEGER NOT NULL DEFAULT 0, kind TEXT NOT NULL DEFAULT 'drift'",
    columns={**_OF_GROUP, "arm_id": "nullif(arm_id, '')"},
)
GUARDS = RecordTable(
    "guards",
    StoredGuard,
    "seq INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, promoted TEXT NOT NULL, champion TEXT NOT NULL, "
    "since INTEGER NOT NULL, alpha REAL NOT NULL, tolerance REAL NOT NULL, holdback REAL NOT NULL, "
    "decision TEXT NOT NULL, created_us INTEGER NOT NULL, steps_json TEXT NOT NULL DEFAULT '[]', "
    "guardrails_json TEXT NOT NULL DEFAULT '[]'",
    columns=_OF_GROUP,
)
LOOKS = RecordTable("looks", GateLook, "seq INTEGER PRIMARY KEY, *")
CHAMPIONS = RecordTable("champions", Champion, "seq INTEGER PRIMARY KEY, *")
_TABLES = (
    GROUPS,
    ARMS,
    POLICIES,
    DECISIONS,
    SqlTable(
        "rewards",
        "seq INTEGER PRIMARY KEY, decision_id TEXT NOT NULL, group_id INTEGER, reward REAL NOT NULL, "
        "status TEXT NOT NULL, received_us INTEGER NOT NULL, details_json TEXT",
        "UNIQUE one_reward(decision_id) WHERE status IN ('ok', 'late')",
    ),
    SqlTable(
        "assignments",
        "group_id INTEGER NOT NULL, unit TEXT NOT NULL, arm_id TEXT NOT NULL, version INTEGER NOT NULL, "
        "propensity REAL NOT NULL, PRIMARY KEY (group_id, unit)",
    ),
    ALARMS,
    GUARDS,
    LOOKS,
    SqlTable("systems", "system TEXT PRIMARY KEY, settings_json TEXT NOT NULL"),
    SqlTable("exports", RANGES),
    CHAMPIONS,
)
RUNTIME: Final = Schema(
    noun="runtime state",
    version=5,
    tables=_TABLES,
    loss="arms, decisions, rewards and champions are gone with it",
    kept="What was acknowledged is kept.",
    key=VARIABLE,
    versions="runtime",
    added=(
        "ALTER TABLE alarms ADD COLUMN kind TEXT NOT NULL DEFAULT 'drift'",
        "ALTER TABLE guards ADD COLUMN steps_json TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE guards ADD COLUMN guardrails_json TEXT NOT NULL DEFAULT '[]'",
    ),
)
