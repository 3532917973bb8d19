"""Sample ratio: shares of arms against their propensities."""

import numpy as np

from convergence_core.caveats import TRAFFIC
from convergence_core.gate.sample_ratio import departs, log_e_of_shares
from tasks.store.runtime.rows import AlarmKind, Group
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import alarms, counts_since_alarm, save_alarm


def check_shares(store: RuntimeStore, group: Group, *, missing_reward: float | None) -> None:
    """Raise an alarm if the shares of decisions or rewards depart from the propensities.

    Args:
        store: the runtime state.
        group: group of the decisions.
        missing_reward: reward for missing rewards in the settings; with one, none is missing.
    """
    kinds: tuple[AlarmKind, ...] = ("sample_ratio", "missing_rewards")
    for kind in kinds[: 1 if missing_reward is not None else 2]:
        rows = counts_since_alarm(store, group.group_id, kind)
        if not rows:
            continue
        arms = [arm.arm_id for arm in store.arms(group.group_id)]
        at = {version: place for place, version in enumerate(dict.fromkeys(v for v, *_ in rows))}
        counts, shares = np.zeros((2, len(at), len(arms)))
        for version, arm_id, n in rows:
            counts[at[version], arms.index(arm_id)] = n
        for policy in store.policies(group.group_id):
            if policy.version in at:
                shares[at[policy.version], [arms.index(a) for a in policy.arms]] = policy.shares
        log_e = log_e_of_shares(counts, shares)
        if departs(log_e):
            arm, n = int(log_e.argmax()), int(counts.sum())
            expected = float((counts.sum(axis=1) * shares[:, arm]).sum() / n)
            realised = float(counts[:, arm].sum() / n)
            save_alarm(store, group.group_id, kind, arms[arm], shares=(expected, realised), n=n)


def caveat_of(store: RuntimeStore, system: str, agent_type: str) -> str:
    """Return the assumptions of a verdict on traffic, and the alarms that contradict them."""
    raised = [
        f"{alarm.sentence} Verdicts may be wrong."
        for alarm in alarms(store, system)
        if alarm.kind != "drift" and alarm.agent_type == agent_type
    ]
    return " ".join([*raised[-1:], TRAFFIC])
