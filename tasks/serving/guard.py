"""Ramp of a promotion, guarded against the former champion.

Each policy version after the promotion is one look of a ``Guard`` per guardrail, with stakes fixed
when the version was made. The promoted arm gets a stated share of the requests at each step of the
ramp, and all but the control's at the last. A verdict acts: *advance* takes the next step,
*rollback* restores the champion and retires the promoted arm, *confirmed* ends the guard.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convergence_core.caveats import TRAFFIC
from convergence_core.gate.guard import RISK, Guard, allowed, gains_against_champion
from convergence_core.gate.guardrails import REWARD
from convergence_core.records import fields_of
from tasks.serving.sample_ratio import caveat_of
from tasks.serving.settings import read_settings
from tasks.store.runtime.promotions import save_look
from tasks.store.runtime.rows import (
    Champion,
    GateLook,
    RewardTally,
    StoredArm,
    StoredGuard,
    StoredPolicy,
)
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard, move_guard, numbers_of, save_fences

Numbers = Mapping[tuple[int, str], Sequence[Mapping[str, float]]]
"""(policy version, arm) → metrics reported with each reward, by name."""
Outcomes = tuple[str, float, dict[str, Any]]
"""Guardrail, tolerated decrease per step over all requests, and arguments of its gains."""
_SHOWN = ("n", "log_e_worse", "log_threshold_worse", "log_e_better", "log_threshold", "verdict")
MOST_FENCED = 1_000
"""Maximum recent values of the control behind the fences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLook:
    """Look of a guard at all rewards since the promotion."""

    promoted: str
    champion: str
    decision: str
    """``watching``, ``advance``, ``rollback``, ``confirmed``, or ``ended`` without a control."""
    shares: tuple[float, ...]
    """Remaining shares of the promoted arm, the current one first."""
    n: int
    """Rewards of both arms since the promotion."""
    guardrails: Mapping[str, Mapping[str, Any]]
    """Name → number of values, evidence and thresholds of both nulls in nats, and verdict."""
    caveat: str = TRAFFIC
    """Assumptions behind a verdict."""

    @property
    def sentence(self) -> str:
        """Sentence on the look; with a verdict, also on its assumptions."""
        present, *left = (f"{100 * share:.4g} %" for share in self.shares)
        step = f"{self.promoted} at {present} against {self.champion}"
        if self.decision == "advance":
            step += f": advance to {left[0]}"
        else:
            step += f": {self.decision}"
        rails = "; ".join(_sentence(name, rail) for name, rail in self.guardrails.items())
        sentence = f"promoted {step} after {self.n:,} rewards; {rails}"
        return sentence if self.decision == "watching" else f"{sentence}. {self.caveat}"


def look(store: RuntimeStore, system: str, agent_type: str) -> GuardLook | None:
    """Evaluate a guarded promotion and act on a verdict; return ``None`` without a guard.

    Repeated looks are valid. A look with rewards is stored.
    """
    group = store.group(system, agent_type)
    guard = None if group is None else active_guard(store, group.group_id)
    if group is None or guard is None:
        return None
    settings = read_settings(system, store.settings_text(system))
    arms = store.arms(group.group_id)
    pair = (guard.promoted, guard.champion)
    numbers: dict[tuple[int, str], list[dict[str, float]]] = defaultdict(list)
    if guard.guardrails:
        for version, arm_id, named in numbers_of(store, group.group_id, pair, after=guard.since):
            numbers[version, arm_id].append(named)
    judged = judge(
        guard,
        store.policies(group.group_id),
        store.tallies(group.group_id, settings.missing_reward),
        arms,
        numbers,
        caveat=caveat_of(store, system, agent_type),
    )
    fence(store, group.group_id, group.version, guard)
    if not judged.n and judged.decision == "watching":
        return judged
    stored = GateLook(
        system=system,
        kind="guard",
        candidate_id=judged.promoted,
        champion_id=judged.champion,
        run_id=None,
        **fields_of(judged, "decision", "n"),
        log_e=max(rail["log_e_worse"] for rail in judged.guardrails.values()),
        log_threshold=judged.guardrails[REWARD]["log_threshold_worse"],
        details={
            "agent_type": agent_type,
            **fields_of(guard, "alpha", "tolerance"),
            **fields_of(judged, "shares", "guardrails", "caveat"),
        },
        created_us=store.now_us(),
    )
    if judged.decision == "watching":
        save_look(store, stored)
        return judged
    former = next(arm for arm in arms if arm.arm_id == judged.champion)
    restored = _restored(stored, former) if judged.decision == "rollback" else None
    move_guard(store, group.group_id, guard, judged.decision, look=stored, restored=restored)
    return judged


def _restored(look: GateLook, former: StoredArm) -> Champion:
    return Champion(
        system=look.system,
        candidate_id=former.arm_id,
        params=former.params,
        run_id=former.run_id,
        reason=f"rollback from {look.candidate_id} by the guard",
        created_us=look.created_us,
    )


def fence(store: RuntimeStore, group_id: int, version: int, guard: StoredGuard) -> None:
    """Set the missing fences of guardrails from the next policy version on."""
    if all(rail.is_fenced for rail in guard.guardrails):
        return
    pair = (guard.champion, guard.champion)
    control = numbers_of(store, group_id, pair, after=0, most=MOST_FENCED)
    earlier = [named for known, _, named in control if known <= version]
    rails = [
        rail.fenced([named[rail.name] for named in earlier if rail.name in named], version)
        for rail in guard.guardrails
    ]
    save_fences(store, guard, rails)


def judge(
    guard: StoredGuard,
    policies: Sequence[StoredPolicy],
    tallies: Sequence[RewardTally],
    arms: Sequence[StoredArm],
    numbers: Numbers | None = None,
    *,
    caveat: str = TRAFFIC,
) -> GuardLook:
    """Return the evidence of fresh decisions' rewards and metrics since the promotion."""
    pair = (guard.promoted, guard.champion)
    n_guardrails = 1 + len(guard.guardrails)
    names = (REWARD, *(rail.name for rail in guard.guardrails))
    guards = {name: Guard(alpha=guard.alpha, n_guardrails=n_guardrails) for name in names}
    present = {arm.arm_id for arm in arms if not arm.is_retired}
    by_version: dict[int, list[RewardTally]] = defaultdict(list)
    for tally in tallies:
        if tally.arm_id in pair:
            by_version[tally.version].append(tally)
    for policy in sorted(policies, key=lambda policy: policy.version):
        if policy.version <= guard.since or not set(pair) <= set(policy.arms):
            continue
        share = dict(zip(policy.arms, policy.shares, strict=True))
        p = share[guard.promoted] / (share[guard.promoted] + share[guard.champion])
        now = by_version[policy.version]
        outcomes_now = (
            _rewards(guard, policy, now, arms),
            *_numbers(guard, policy, now, numbers or {}),
        )
        for name, risk, outcomes in outcomes_now:
            gains = gains_against_champion(
                **outcomes,
                shares=np.full(outcomes["rewards"].size, p),
                allowed=allowed(risk, guard.shares[1]) if guard.steps else None,
            )
            guards[name] = guards[name].tell(gains)
    decision = "watching"
    if not set(pair) <= present:
        decision = "ended"
    elif any(evidence.is_worse for evidence in guards.values()):
        decision = "rollback"
    elif all(evidence.is_safe for evidence in guards.values()):
        decision = "advance" if guard.steps else "confirmed"
    return GuardLook(
        promoted=guard.promoted,
        champion=guard.champion,
        decision=decision,
        shares=guard.shares,
        n=guards[REWARD].n,
        guardrails={name: fields_of(evidence, *_SHOWN) for name, evidence in guards.items()},
        caveat=caveat,
    )


def _rewards(
    guard: StoredGuard,
    policy: StoredPolicy,
    tallies: Sequence[RewardTally],
    arms: Sequence[StoredArm],
) -> Outcomes:
    index = {arm.arm_id: k for k, arm in enumerate(arms)}
    means = policy.design["means"]
    assert isinstance(means, list)  # noqa: S101 - of a stored design
    counts = [tally.n for tally in tallies]
    rewards = np.array([tally.reward for tally in tallies], dtype=np.float64)
    outcomes = {
        "is_promoted": np.repeat([t.arm_id == guard.promoted for t in tallies], counts),
        "rewards": np.repeat(rewards, counts),
        "means": tuple(float(str(means[index[a]])) for a in (guard.promoted, guard.champion)),
        "tolerance": guard.tolerance,
    }
    return REWARD, max(guard.tolerance, RISK), outcomes


def _numbers(
    guard: StoredGuard, policy: StoredPolicy, tallies: Sequence[RewardTally], numbers: Numbers
) -> Iterator[Outcomes]:
    """Yield the outcomes of fenced guardrails; a reward without the metric counts at its worst."""
    n_open = {t.arm_id: t.n for t in tallies if t.reward is None}
    for rail in guard.guardrails:
        if not rail.is_fenced or policy.version <= rail.since:
            continue
        values: dict[str, list[float]] = {}
        for arm_id in (guard.promoted, guard.champion):
            rows = numbers.get((policy.version, arm_id), ())
            known = [rail.scaled(row[rail.name]) if rail.name in row else np.nan for row in rows]
            values[arm_id] = known + [np.nan] * n_open.get(arm_id, 0)
        promoted, control = values.values()
        outcomes = {
            "is_promoted": np.repeat([True, False], [len(promoted), len(control)]),
            "rewards": np.array(promoted + control, dtype=np.float64),
            "means": (rail.centre, rail.centre),
            "tolerance": rail.tolerance,
        }
        yield rail.name, rail.tolerance, outcomes


def _sentence(name: str, rail: Mapping[str, Any]) -> str:
    if not rail["n"]:
        return f"{name} has no values yet"
    return (
        f"{name} {rail['verdict']}, with evidence {rail['log_e_worse']:.2f} of "
        f"{rail['log_threshold_worse']:.2f} against it and {rail['log_e_better']:.2f} of "
        f"{rail['log_threshold']:.2f} for it"
    )
