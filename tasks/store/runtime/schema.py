"""Tables of the runtime state.

A *group* is one system and one agent type: it shares its arms and its posterior. ``arms.alpha`` and
``beta`` are ``base_alpha`` and ``base_beta`` plus the sum over the ``ok`` rewards after
``base_seq``, at every moment; the base is the prior, until a drift alarm or a reset moves it.
``policies`` keeps every version of the propensities, so that a decision needs to name its version
only. ``exports`` holds the ranges that went to parquet, each written down before its files. ``fresh``
decisions drew their arm; the others repeat the arm that a user or a session has. ``squares`` is the
sum of squared rewards, which Gaussian arms need; ``cost`` what a request of the arm is said to cost,
``costs`` the sum of ``n_costs`` that came with rewards; ``state_json`` holds what contextual arms had learned after
the reward ``state_seq``, so that a process need not begin at the first. A row of ``guards`` watches a
promotion since the policy version ``since``.
"""

from typing import Final

from tasks.store.database import Schema

VERSION = 4
RUNTIME_FILE = "runtime.sqlite"
VARIABLE = "CONVERGENCE_RUNTIME"
"""Environment variable that may hold a ``postgresql://`` URL of the runtime state."""

DDL = """
CREATE TABLE IF NOT EXISTS groups(
  id INTEGER PRIMARY KEY, system TEXT NOT NULL, agent_type TEXT NOT NULL,
  n INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0,
  revision INTEGER NOT NULL DEFAULT 0, explore_until INTEGER NOT NULL DEFAULT 0,
  trust REAL NOT NULL, watch_json TEXT, kind TEXT NOT NULL DEFAULT 'beta', state_json TEXT,
  state_seq INTEGER NOT NULL DEFAULT 0, UNIQUE (system, agent_type)
);
CREATE TABLE IF NOT EXISTS arms(
  group_id INTEGER NOT NULL, arm_id TEXT NOT NULL, position INTEGER NOT NULL,
  params_json TEXT NOT NULL, prior_json TEXT, base_alpha REAL NOT NULL, base_beta REAL NOT NULL,
  base_seq INTEGER NOT NULL DEFAULT 0, alpha REAL NOT NULL, beta REAL NOT NULL,
  n INTEGER NOT NULL DEFAULT 0, run_id TEXT, created_us INTEGER NOT NULL, retired_us INTEGER,
  squares REAL NOT NULL DEFAULT 0, cost REAL, n_costs INTEGER NOT NULL DEFAULT 0,
  costs REAL NOT NULL DEFAULT 0, PRIMARY KEY (group_id, arm_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS policies(
  group_id INTEGER NOT NULL, version INTEGER NOT NULL, mode TEXT NOT NULL, n INTEGER NOT NULL,
  arms_json TEXT NOT NULL, shares_json TEXT NOT NULL, design_json TEXT NOT NULL,
  created_us INTEGER NOT NULL, PRIMARY KEY (group_id, version)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions(
  seq INTEGER PRIMARY KEY, decision_id TEXT NOT NULL UNIQUE, group_id INTEGER NOT NULL,
  user_id TEXT NOT NULL, arm_id TEXT NOT NULL, version INTEGER NOT NULL, propensity REAL NOT NULL,
  fresh INTEGER NOT NULL, context_json TEXT, created_us INTEGER NOT NULL, expires_us INTEGER,
  request_key TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS one_request ON decisions(group_id, request_key)
  WHERE request_key IS NOT NULL;
CREATE TABLE IF NOT EXISTS rewards(
  seq INTEGER PRIMARY KEY, decision_id TEXT NOT NULL, group_id INTEGER, reward REAL NOT NULL,
  status TEXT NOT NULL, received_us INTEGER NOT NULL, details_json TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS one_reward ON rewards(decision_id)
  WHERE status IN ('ok', 'late');
CREATE TABLE IF NOT EXISTS assignments(
  group_id INTEGER NOT NULL, unit TEXT NOT NULL, arm_id TEXT NOT NULL, version INTEGER NOT NULL,
  propensity REAL NOT NULL, PRIMARY KEY (group_id, unit)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alarms(
  seq INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, arm_id TEXT NOT NULL, before REAL NOT NULL,
  after REAL NOT NULL, n INTEGER NOT NULL, created_us INTEGER NOT NULL,
  is_told INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS guards(
  seq INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, promoted TEXT NOT NULL,
  champion TEXT NOT NULL, since INTEGER NOT NULL, alpha REAL NOT NULL, tolerance REAL NOT NULL,
  holdback REAL NOT NULL, decision TEXT NOT NULL, created_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS looks(
  seq INTEGER PRIMARY KEY, system TEXT NOT NULL, kind TEXT NOT NULL, candidate_id TEXT,
  champion_id TEXT, run_id TEXT, decision TEXT NOT NULL, n INTEGER NOT NULL, log_e REAL NOT NULL,
  log_threshold REAL NOT NULL, details_json TEXT NOT NULL, created_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS systems(
  system TEXT PRIMARY KEY, settings_json TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS exports(
  table_name TEXT NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, is_done INTEGER NOT NULL,
  PRIMARY KEY (table_name, lo)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS champions(
  seq INTEGER PRIMARY KEY, system TEXT NOT NULL, candidate_id TEXT NOT NULL,
  params_json TEXT NOT NULL, run_id TEXT, reason TEXT NOT NULL, created_us INTEGER NOT NULL
);
"""

_ADDED_AFTER = {
    1: """
ALTER TABLE decisions ADD COLUMN request_key TEXT;
ALTER TABLE rewards ADD COLUMN details_json TEXT;
""",
    2: """
ALTER TABLE groups ADD COLUMN kind TEXT NOT NULL DEFAULT 'beta';
ALTER TABLE groups ADD COLUMN state_json TEXT;
ALTER TABLE groups ADD COLUMN state_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE arms ADD COLUMN squares REAL NOT NULL DEFAULT 0;
ALTER TABLE alarms ADD COLUMN is_told INTEGER NOT NULL DEFAULT 0;
""",
    3: """
ALTER TABLE arms ADD COLUMN cost REAL;
ALTER TABLE arms ADD COLUMN n_costs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE arms ADD COLUMN costs REAL NOT NULL DEFAULT 0;
""",
}
"""Version → what it lacks against the next one, tables left out."""


def upgrade(found: int) -> str:
    """Return what brings the tables of a version up to this one; of none: creates them."""
    return "".join(_ADDED_AFTER[version] for version in range(found or VERSION, VERSION)) + DDL


RUNTIME: Final = Schema(
    noun="runtime state",
    version=VERSION,
    upgrade=upgrade,
    loss="arms, decisions, rewards and champions are gone with it",
    kept="What was acknowledged is kept.",
    key=VARIABLE,
    versions="runtime",
)
