"""Store of a policy's experiences and versions.

Every write is one durable transaction. ``policy_experiences`` holds each decision with its outcome
once, unchanged. ``policy_versions`` holds each version of the policy with the update or load that
made it. ``policy_exports`` holds the ranges exported to parquet; a range precedes its files.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from convergence_core.policy.experience_buffer import PolicyDecision, StepOutcome
from convergence_core.policy.prompt_state import PROMPT_ACTIONS
from convergence_core.records import Json
from tasks.store.database import NUMBERED, RANGES, RecordTable, Schema, SqlTable, insert_sql
from tasks.store.runtime.schema import VARIABLE
from tasks.store.shared_database import SharedStore

POLICY_FILE = "policy.sqlite"

VersionKind = Literal["begun", "simulated", "updated", "loaded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyExperience:
    """A decision with its reward and next state."""

    decision: PolicyDecision
    outcome: StepOutcome
    decided_us: int
    """Time of the decision, in microseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersionRecord:
    """Version of the policy and its origin."""

    version: int
    kind: VersionKind
    checkpoint: str | None
    """Name of the loaded checkpoint; ``None`` if none was loaded."""
    sha256: str
    """SHA-256 of the version's checkpoint file."""
    n_steps: int
    statistics: Mapping[str, Json]
    """Diagnostics of the update. Empty if there was no update."""
    created_us: int


VERSIONS: Final = RecordTable(
    "policy_versions",
    PolicyVersionRecord,
    f"{NUMBERED}, UNIQUE (version)",
)
_COLUMNS: Final = (
    "decision_id", "episode_id", "step", "version", "action", "legal", "log_prob", "value", "reward",
    "terminated", "truncated", "final_value", "observation", "decided_us", "created_us",
)  # fmt: skip
_ADD = f"{insert_sql('policy_experiences', _COLUMNS)} ON CONFLICT DO NOTHING"
_READ = f"SELECT {', '.join(_COLUMNS)} FROM policy_experiences"  # noqa: S608 - constants
POLICY: Final = Schema(
    noun="policy",
    version=2,
    tables=(
        SqlTable(
            "policy_experiences",
            "seq INTEGER PRIMARY KEY AUTOINCREMENT, decision_id TEXT NOT NULL UNIQUE, "
            "episode_id TEXT NOT NULL, step INTEGER NOT NULL, version INTEGER NOT NULL, "
            "action TEXT NOT NULL, legal TEXT NOT NULL, log_prob REAL NOT NULL, value REAL NOT NULL, "
            "reward REAL NOT NULL, terminated INTEGER NOT NULL, truncated INTEGER NOT NULL, "
            "final_value REAL NOT NULL, observation TEXT NOT NULL, decided_us INTEGER NOT NULL, "
            "created_us INTEGER NOT NULL",
            "experiences_of_version(version, seq)",
        ),
        VERSIONS,
        SqlTable("policy_exports", RANGES),
    ),
    loss="experiences that were not folded into the tables are gone with it",
    kept="What was acknowledged is kept.",
    key=VARIABLE,
    versions="policy_schema",
)


class ExperienceStore(SharedStore):
    """Experiences and versions, on a local disk or in Postgres. Thread-safe; blocks."""

    file, schema = POLICY_FILE, POLICY

    def add(self, experience: PolicyExperience) -> None:
        """Store an experience durably unless its decision already has one."""
        with self.database.transaction() as connection:
            connection.execute(_ADD, _values(experience, self.now_us()))

    def experience(self, decision_id: str) -> PolicyExperience | None:
        """Return the experience of a decision; ``None`` if none is stored."""
        rows = self.fetch(f"{_READ} WHERE decision_id = ?", (decision_id,))
        return _experience(rows[0]) if rows else None

    def of_version(self, version: int) -> list[PolicyExperience]:
        """Return the experiences of a policy version, in order of arrival."""
        rows = self.fetch(f"{_READ} WHERE version = ? ORDER BY seq", (version,))
        return [_experience(row) for row in rows]

    def count(self) -> int:
        """Return the number of stored experiences."""
        return int(self.fetch("SELECT count(*) FROM policy_experiences")[0][0])

    def record_version(self, record: PolicyVersionRecord) -> None:
        """Record durably that a version serves from now on.

        Raises:
            StoreWriteError: the version exists already, or cannot be written.
        """
        with self.database.transaction() as connection:
            VERSIONS.add(connection, record)

    def latest_version(self) -> PolicyVersionRecord | None:
        """Return the serving version; ``None`` if there is none yet."""
        return next(iter(self.find(VERSIONS, "ORDER BY version DESC LIMIT 1")), None)


def _values(experience: PolicyExperience, now_us: int) -> list[Any]:
    decision, outcome = experience.decision, experience.outcome
    observation = np.ascontiguousarray(decision.observation, dtype="<f4").tobytes()
    legal = [name for name, is_on in zip(PROMPT_ACTIONS, decision.legal, strict=True) if is_on]
    return [
        *(decision.decision_id, decision.episode_id, decision.step, decision.version),
        *(PROMPT_ACTIONS[decision.action], ",".join(legal), decision.log_prob, decision.value),
        *(outcome.reward, int(outcome.terminated), int(outcome.truncated), outcome.final_value),
        *(base64.b64encode(observation).decode(), experience.decided_us, now_us),
    ]


def _experience(row: Sequence[Any]) -> PolicyExperience:
    columns = dict(zip(_COLUMNS, row, strict=True))
    legal = columns["legal"].split(",")
    return PolicyExperience(
        decision=PolicyDecision(
            **{name: columns[name] for name in _COLUMNS[:4]},
            observation=np.frombuffer(base64.b64decode(columns["observation"]), "<f4").astype(
                np.float32
            ),
            legal=np.array([name in legal for name in PROMPT_ACTIONS]),
            action=PROMPT_ACTIONS.index(columns["action"]),
            log_prob=columns["log_prob"],
            value=columns["value"],
        ),
        outcome=StepOutcome(
            reward=columns["reward"],
            terminated=bool(columns["terminated"]),
            truncated=bool(columns["truncated"]),
            final_value=columns["final_value"],
        ),
        decided_us=columns["decided_us"],
    )
