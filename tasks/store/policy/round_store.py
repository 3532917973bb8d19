"""Store of rounds that compare policies: episodes, and the gate's verdicts.

An episode is written once, with the steps that its policy learned from; a kill in between loses that episode alone.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np

from convergence_core.policy import PROMPT_ACTIONS, TakenStep
from convergence_core.policy.course import GateRow, PlayedEpisode
from convergence_core.policy.gate import BANDIT, PPO, WORDS, PolicyGate, PolicyName
from convergence_core.records import canonical_json
from tasks.store.database import Connection, insert_sql
from tasks.store.policy.experience_store import GATES, ExperienceStore

_EPISODE: Final = (
    "system", "run_id", "episode", "policy", "version", "category", "text_id", "actions", "verdicts",
    "start_score", "gain", "reward", "n_evaluations",
)  # fmt: skip
_NOT_LOOKED_AT: Final = (
    f"{WORDS[BANDIT]} serves: a checkpoint was loaded after the look that let {WORDS[PPO]} serve, and no "
    "round has compared it yet"
)


class RoundStore:
    """Episodes and verdicts in the policy's database; it stays the caller's."""

    def __init__(self, store: ExperienceStore) -> None:
        self._store = store

    def add(self, episodes: Sequence[PlayedEpisode]) -> None:
        """Store episodes durably, in one transaction; those that are stored stay as they are."""
        with self._store.database.transaction() as connection:
            self.write(connection, episodes)

    def write(self, connection: Connection, episodes: Sequence[PlayedEpisode]) -> None:
        """Store episodes in a transaction of the caller's."""
        names = (*_EPISODE, "steps", "created_us")
        sql = f"{insert_sql('policy_episodes', names)} ON CONFLICT DO NOTHING"
        now = self._store.now_us()
        for episode in episodes:
            connection.execute(sql, [*_episode_values(episode), _packed(episode.steps), now])

    def episodes(
        self,
        system: str | None = None,
        policy: PolicyName | None = None,
        *,
        with_steps: bool = False,
    ) -> list[PlayedEpisode]:
        """Return episodes in the order they were played.

        Args:
            system: whose prompts; ``None`` means any.
            policy: who played; ``None`` means any.
            with_steps: whether to read what was learned from.
        """
        names = (*_EPISODE, "steps") if with_steps else _EPISODE
        sql = (
            f"SELECT {', '.join(names)} FROM policy_episodes "  # noqa: S608 - constants
            "WHERE system = coalesce(?, system) AND policy = coalesce(?, policy) ORDER BY seq"
        )
        with self._store.database.reading() as connection:
            rows = connection.execute(sql, (system, policy)).fetchall()
        return [_episode(dict(zip(names, row, strict=True))) for row in rows]

    def systems(self) -> list[str]:
        """Return the systems whose prompts were changed in rounds, the latest first."""
        sql = "SELECT system FROM policy_episodes GROUP BY system ORDER BY max(seq) DESC"
        with self._store.database.reading() as connection:
            return [str(system) for (system,) in connection.execute(sql).fetchall()]

    def record_gate(self, system: str, run_id: str, version: int, gate: PolicyGate) -> None:
        """Write down durably what the gate found, a row for each baseline; once for each run."""
        now = self._store.now_us()
        with self._store.database.transaction() as connection:
            for verdict in gate.verdicts:
                row = GateRow(
                    **asdict(verdict),
                    system=system,
                    run_id=run_id,
                    version=version,
                    serves=gate.serves,
                    reason=gate.reason,
                )
                connection.execute(
                    f"{GATES.insert} ON CONFLICT DO NOTHING", GATES.values(row, now)
                )

    def latest_gate(self, system: str | None = None) -> list[GateRow]:
        """Return the latest look, a row for each baseline; empty: there was none.

        A look that let the policy serve holds for that one and its updates; where another one was loaded
        since, the bandit serves until the next look.

        Args:
            system: whose prompts; ``None`` means that of the latest look at any.
        """
        sql = (
            f"{GATES.select} WHERE run_id = (SELECT run_id FROM "  # noqa: S608 - constants
            "policy_gates WHERE system = coalesce(?, system) ORDER BY seq DESC LIMIT 1) ORDER BY seq"
        )
        with self._store.database.reading() as connection:
            looks = GATES.records(connection.execute(sql, (system,)).fetchall())
        if not looks or looks[0].serves != PPO or looks[0].version >= self.first_version():
            return looks
        return [replace(look, serves=BANDIT, reason=_NOT_LOOKED_AT) for look in looks]

    def first_version(self) -> int:
        """Return the version from which the policy was only updated: where it was begun, or loaded last."""
        sql = "SELECT coalesce(max(version), 0) FROM policy_versions WHERE kind IN ('begun', 'loaded')"
        with self._store.database.reading() as connection:
            return int(connection.execute(sql).fetchone()[0])

    def compared(self, system: str) -> list[PlayedEpisode]:
        """Return the episodes of a system that its next look counts: those since the first version."""
        first = self.first_version()
        return [episode for episode in self.episodes(system) if episode.version >= first]


def _episode_values(episode: PlayedEpisode) -> list[Any]:
    texts = {"actions": ",".join(episode.actions), "verdicts": ",".join(episode.verdicts)}
    return [texts.get(name, getattr(episode, name)) for name in _EPISODE]


def _episode(columns: dict[str, Any]) -> PlayedEpisode:
    steps = _unpacked(columns.pop("steps", "[]"))
    lists = {
        name: tuple(filter(None, columns[name].split(","))) for name in ("actions", "verdicts")
    }
    return PlayedEpisode(**{**columns, **lists, "steps": steps})


def _packed(steps: Sequence[TakenStep]) -> str:
    return canonical_json(
        [
            [
                base64.b64encode(np.ascontiguousarray(step.state, "<f4").tobytes()).decode(),
                [name for name, is_on in zip(PROMPT_ACTIONS, step.legal, strict=True) if is_on],
                PROMPT_ACTIONS[step.action],
                step.reward,
            ]
            for step in steps
        ]
    )


def _unpacked(text: str) -> tuple[TakenStep, ...]:
    return tuple(
        TakenStep(
            state=np.frombuffer(base64.b64decode(state), "<f4").astype(np.float32),
            legal=np.array([name in legal for name in PROMPT_ACTIONS]),
            action=PROMPT_ACTIONS.index(action),
            reward=float(reward),
        )
        for state, legal, action, reward in json.loads(text)
    )
