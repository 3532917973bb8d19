"""Guard of a promotion: the promoted arm against the champion before it.

From the policy version after the promotion on, every version is one look of ``Guard``, whose stakes
rest on what was known when the version was made. While it watches, the former champion keeps a share
of the requests, without which nothing could be compared. A verdict acts: *rollback* brings the champion
back and takes the promoted arm off offer, *confirmed* ends the watch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.caveats import TRAFFIC
from convergence_core.gate.guard import Guard, gains_against_champion
from convergence_core.records import fields_of
from tasks.serving.settings import read_settings
from tasks.store.runtime.promotions import save_look, set_champion
from tasks.store.runtime.rows import (
    Champion,
    GateLook,
    RewardTally,
    StoredArm,
    StoredGuard,
    StoredPolicy,
)
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard, end_guard


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLook:
    """One look of a guard at all rewards since the promotion."""

    promoted: str
    champion: str
    decision: str
    """``watching``, ``rollback`` or ``confirmed``."""
    n: int
    """Rewards of both since."""
    log_e_worse: float
    """Evidence that the promoted one is worse by more than the tolerance, nats."""
    log_e_better: float
    """Evidence that it is not, nats."""
    log_threshold: float
    caveat: str = TRAFFIC
    """What a verdict takes for granted."""

    @property
    def sentence(self) -> str:
        """What was found; with a verdict, what it takes for granted."""
        sentence = (
            f"promoted {self.promoted} against {self.champion}: {self.decision} "
            f"after {self.n:,} rewards, evidence {self.log_e_worse:.2f} that it is worse and "
            f"{self.log_e_better:.2f} that it is not, of {self.log_threshold:.2f}"
        )
        return sentence if self.decision == "watching" else f"{sentence}. {self.caveat}"


def look(store: RuntimeStore, system: str, agent_type: str) -> GuardLook | None:
    """Look at a promotion that is watched, and act on a verdict; ``None`` if none is watched.

    Looking is harmless however often, and the look is stored if there are rewards.
    """
    group = store.group(system, agent_type)
    guard = None if group is None else active_guard(store, group.group_id)
    if group is None or guard is None:
        return None
    settings = read_settings(system, store.settings_text(system))
    judged = judge(
        guard,
        store.policies(group.group_id),
        store.tallies(group.group_id, settings.missing_reward),
        store.arms(group.group_id),
    )
    if not judged.n:
        return judged
    acts = judged.decision != "watching" and end_guard(
        store, group.group_id, guard, judged.decision
    )
    if acts and judged.decision == "rollback":
        _roll_back(store, system, agent_type, judged)
    save_look(
        store,
        GateLook(
            system=system,
            kind="guard",
            candidate_id=judged.promoted,
            champion_id=judged.champion,
            run_id=None,
            **fields_of(judged, "decision", "n", "log_threshold"),
            log_e=max(judged.log_e_worse, judged.log_e_better),
            details={
                "agent_type": agent_type,
                **fields_of(judged, "log_e_worse", "log_e_better", "caveat"),
                **fields_of(guard, "alpha", "tolerance"),
            },
            created_us=store.now_us(),
        ),
    )
    return judged


def judge(
    guard: StoredGuard,
    policies: Sequence[StoredPolicy],
    tallies: Sequence[RewardTally],
    arms: Sequence[StoredArm],
) -> GuardLook:
    """Return what the rewards of fresh decisions say since the promotion."""
    pair = (guard.promoted, guard.champion)
    index = {arm.arm_id: k for k, arm in enumerate(arms)}
    watch = Guard(alpha=guard.alpha)
    for policy in sorted(policies, key=lambda policy: policy.version):
        if policy.version <= guard.since or not set(pair) <= set(policy.arms):
            continue
        pair_tallies = [t for t in tallies if t.version == policy.version and t.arm_id in pair]
        if not pair_tallies:
            continue
        share = dict(zip(policy.arms, policy.shares, strict=True))
        means = policy.design["means"]
        assert isinstance(means, list)  # noqa: S101 - of a stored design
        counts = np.array([tally.n for tally in pair_tallies])
        watch = watch.tell(
            gains_against_champion(
                is_promoted=np.repeat([t.arm_id == guard.promoted for t in pair_tallies], counts),
                rewards=np.repeat(
                    np.array([t.reward for t in pair_tallies], dtype=np.float64), counts
                ),
                shares=np.full(
                    counts.sum(),
                    share[guard.promoted] / (share[guard.promoted] + share[guard.champion]),
                ),
                means=(
                    float(str(means[index[guard.promoted]])),
                    float(str(means[index[guard.champion]])),
                ),
                tolerance=guard.tolerance,
            )
        )
    return GuardLook(
        promoted=guard.promoted,
        champion=guard.champion,
        **fields_of(watch, "decision", "n", "log_e_worse", "log_e_better"),
        log_threshold=-float(np.log(guard.alpha)),
    )


def _roll_back(store: RuntimeStore, system: str, agent_type: str, judged: GuardLook) -> None:
    group = store.group(system, agent_type)
    assert group is not None  # noqa: S101 - it was watched
    arms = {arm.arm_id: arm for arm in store.arms(group.group_id)}
    former = arms[judged.champion]
    store.retire(system, agent_type, judged.promoted)
    set_champion(
        store,
        Champion(
            system=system,
            candidate_id=judged.champion,
            params=former.params,
            run_id=former.run_id,
            reason=f"rollback from {judged.promoted} by the guard",
            created_us=store.now_us(),
        ),
    )
