"""Rewards of requests as evidence for the next run's warm start.

A run stores the number of its last production reward, so that a resumed run has the same evidence.
The latest rewards of each arm, discounted and capped, join the rewards of its candidate in an
earlier run, as answers to one more case. The run then learns how far to trust that earlier run, as
for any (``convergence_core.search.warm_start``). Arms that no earlier run evaluated form separate
evidence.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convergence_core.evidence import Archive, Member
from convergence_core.space import Space
from tasks.store.runtime.runtime_store import RuntimeStore

TAG = "production"
"""Tag of a run with the number of its last production reward."""
CASE = "production"
"""Id of the case whose answers are requests."""
MOST = 40
"""Maximum rewards per arm that count."""
_LAST = (
    "SELECT coalesce(max(r.seq), 0) FROM rewards r JOIN groups g ON g.id = r.group_id "
    "WHERE g.system = ? AND g.kind = 'beta' AND r.status = 'ok'"
)
_REWARDS = (
    "SELECT a.params_json, r.reward FROM rewards r JOIN groups g ON g.id = r.group_id "
    "JOIN decisions d ON d.decision_id = r.decision_id "
    "JOIN arms a ON a.group_id = d.group_id AND a.arm_id = d.arm_id "
    "WHERE g.system = ? AND g.kind = 'beta' AND r.status = 'ok' AND r.seq <= ? ORDER BY r.seq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionEvidence:
    """Counts of the rewards of requests used as evidence."""

    n_arms: int = 0
    n_rewards: int = 0
    """All rewards of these arms."""
    n_counted: int = 0
    """Rewards used as evidence."""
    n_dropped: int = 0
    """Arms that do not fit the current space."""
    discount: float = 0.0
    is_apart: bool = False
    """Whether some arms match no earlier run's candidate and form separate evidence."""

    def describe(self) -> str | None:
        """Return a line on this evidence; ``None`` if there is none."""
        if not self.n_rewards:
            return None
        arms = f"{self.n_arms:,} arm{'s' * (self.n_arms != 1)}"
        line = (
            f"production: {self.n_rewards:,} rewards of {arms}, of which {self.n_counted:,} count "
            f"(discount {self.discount:g}, at most {MOST} of an arm)"
        )
        if self.n_dropped:
            line += f"; {self.n_dropped:,} more do not fit the current search space"
        return line


def production_tag(store_path: Path, system: str, discount: float) -> dict[str, str]:
    """Return the tag of a new run; empty if it learns nothing from requests."""
    if not discount or not RuntimeStore.exists_in(store_path):
        return {}
    with RuntimeStore(store_path) as store, store.database.reading() as connection:
        (last,) = connection.execute(_LAST, (system,)).fetchone()
    return {TAG: str(last)} if last else {}


def with_production(
    archives: Sequence[tuple[str, Archive]],
    store_path: Path,
    system: str,
    *,
    space: Space,
    last: int,
    discount: float,
) -> tuple[list[tuple[str, Archive]], ProductionEvidence]:
    """Return earlier runs' evidence joined with production's, and its counts.

    Args:
        archives: run id and evidence of each earlier run, newest first.
        store_path: root of the results store.
        system: name of the optimized system.
        space: current search space.
        last: number of the last reward to use.
        discount: share of an arm's rewards that count, in [0, 1].
    """
    with RuntimeStore(store_path) as store, store.database.reading() as connection:
        rows: Any = connection.execute(_REWARDS, (system, last)).fetchall()
    by_params: dict[str, list[float]] = {}
    for params_json, reward in rows:
        by_params.setdefault(params_json, []).append(float(reward))
    known = [(run_id, archive) for run_id, archive in archives]
    members: dict[str, Member] = {}
    n_rewards = n_counted = n_dropped = 0
    for params_json, rewards in by_params.items():
        params = json.loads(params_json)
        if space.validate(params):
            n_dropped += 1
            continue
        candidate = space.candidate(params, origin="default")
        n = min(MOST, round(discount * len(rewards)))
        n_rewards, n_counted = n_rewards + len(rewards), n_counted + n
        cells = {(CASE, repeat): reward for repeat, reward in enumerate(rewards[-n:] if n else ())}
        name = candidate.candidate_id
        index = next((i for i, (_, archive) in enumerate(known) if name in archive), None)
        if index is None:
            if cells:
                members[name] = Member(candidate=candidate, generation=0, rewards=cells)
            continue
        run_id, archive = known[index]
        member = archive.members[name]
        joined = replace(member, rewards={**member.rewards, **cells})
        known[index] = run_id, Archive({**archive.members, name: joined})
    if members:
        known.append((CASE, Archive(members)))
    evidence = ProductionEvidence(
        n_arms=len(by_params) - n_dropped,
        n_rewards=n_rewards,
        n_counted=n_counted,
        n_dropped=n_dropped,
        discount=discount,
        is_apart=bool(members),
    )
    return known, evidence
