"""Counts of Beta arms, rebuilt from the rewards that a runtime state holds."""

from tasks.store.runtime.runtime_store import RuntimeStore


def rebuilt(store: RuntimeStore, group_id: int) -> dict[str, tuple[float, float]]:
    """Return each arm's counts as base plus the fold of its ``ok`` rewards."""
    rows = store.fetch(
        "SELECT a.arm_id, sum(r.reward), sum(1.0 - r.reward) FROM rewards r "
        "JOIN decisions d ON d.decision_id = r.decision_id "
        "JOIN arms a ON a.group_id = d.group_id AND a.arm_id = d.arm_id "
        "WHERE r.status = 'ok' AND r.group_id = ? AND r.seq > a.base_seq "
        "GROUP BY a.group_id, a.arm_id",
        (group_id,),
    )
    sums = {arm_id: (good, bad) for arm_id, good, bad in rows}
    return {
        arm.arm_id: (arm.base_alpha + good, arm.base_beta + bad)
        for arm in store.arms(group_id)
        for good, bad in (sums.get(arm.arm_id, (0.0, 0.0)),)
    }
