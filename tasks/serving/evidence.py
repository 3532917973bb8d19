"""Evidence of live traffic: a best-arm test over stored rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.caveats import TRAFFIC
from convergence_core.gate.best_arm_test import BestArmTest, Design, RewardedRequests, n_to_verdict
from convergence_core.gate.betting import Floats
from convergence_core.records import Json
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime.rows import StoredArm, StoredPolicy
from tasks.store.runtime.runtime_store import RuntimeStore

Rows = tuple[tuple[int, float | None, int], ...]
"""Rows of (arm, reward, number of equal outcomes); a reward of ``None`` is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficEvidence:
    """Regret and evidence of a system's traffic so far."""

    arms: tuple[str, ...]
    means: tuple[float, ...]
    numbers: tuple[int, ...]
    log_e: tuple[float, ...]
    """Evidence in nats that another arm is better than this one; for an eliminated arm, at least
    the threshold.
    """
    out: tuple[bool, ...]
    log_threshold: float
    winner: str | None
    regret: float
    n_to_verdict: int | None
    """Projected requests until a verdict; ``None`` if the leaders look equal."""
    n_open: int = 0
    """Requests whose reward can still arrive; each counts at its worst."""
    caveat: str = TRAFFIC
    """Assumptions behind a winner."""

    @property
    def sentence(self) -> str:
        """Sentence on the winner and its assumptions."""
        if self.winner is None:
            wait = f"; {self.n_open:,} requests wait for a reward" if self.n_open else ""
            return f"no winner yet{wait}"
        return f"{self.winner} is the winner. {self.caveat}"


class EvidenceFold:
    """Fold of stored rewards into a best-arm test, recomputing only versions with new rewards."""

    def __init__(self, store: RuntimeStore, settings: RuntimeConfig) -> None:
        """Take the parameters of the test from a system's settings."""
        self._store, self._settings = store, settings
        self._done: dict[tuple[int, int], tuple[Rows, Floats]] = {}
        """(number of arms, version) → the rows and their gains."""

    def test(self, group_id: int, arms: Sequence[StoredArm]) -> BestArmTest | None:
        """Return the test over all decisions; ``None`` with fewer than two arms.

        A reward counts in the version of its decision, whose bets were fixed then. A decision
        whose reward can still arrive counts at its worst. The evidence after each version is
        therefore at most the final evidence, whatever delays depend on, and an arm with sufficient
        evidence after any version is eliminated. An arm that was out at a version stays out.
        """
        if len(arms) < 2:
            return None
        index = {arm.arm_id: position for position, arm in enumerate(arms)}
        chosen = self._settings
        test = BestArmTest.begin(len(arms), alpha=chosen.alpha, min_effect=chosen.min_effect)
        by_version: dict[int, list[tuple[int, float | None, int]]] = {}
        for tally in self._store.tallies(group_id, chosen.missing_reward):
            row = (index[tally.arm_id], tally.reward, tally.n)
            by_version.setdefault(tally.version, []).append(row)
        was_out = np.zeros(len(arms), dtype=bool)
        for policy in self._store.policies(group_id):
            outside = policy.design.get("out")
            was_out[[index[str(arm)] for arm in outside] if isinstance(outside, list) else []] = (
                True
            )
            if policy.version in by_version:
                test = self._taught(test, policy, tuple(by_version[policy.version]), index)
                test = test.with_eliminations()
        return replace(test, eliminated=was_out | test.eliminated)

    def _taught(
        self, test: BestArmTest, policy: StoredPolicy, rows: Rows, index: Mapping[str, int]
    ) -> BestArmTest:
        shares = np.zeros(test.n_arms)
        shares[[index[arm_id] for arm_id in policy.arms]] = policy.shares
        table = np.array(rows, dtype=np.float64)  # None becomes NaN
        outcomes = RewardedRequests(
            arms=table[:, 0].astype(int),
            rewards=table[:, 1],
            propensities=np.tile(shares, (len(rows), 1)),
            counts=table[:, 2],
        )
        key = (test.n_arms, policy.version)
        known = self._done.get(key)
        if known is None or known[0] != rows:
            gains = test.gains(_design(policy.design, test.n_arms), outcomes)
            known = self._done[key] = (rows, gains)
        return test.with_gains(known[1], outcomes)


def evidence_of(
    test: BestArmTest, arms: Sequence[StoredArm], caveat: str = TRAFFIC
) -> TrafficEvidence:
    """Return the evidence of a test with the names of its arms."""
    # Open requests count at their worst, which lowers evidence but reverses no verdict.
    least = np.where(test.eliminated, test.log_threshold, -np.inf)
    return TrafficEvidence(
        arms=tuple(arm.arm_id for arm in arms),
        means=tuple(test.means.tolist()),
        numbers=tuple(int(n) for n in test.numbers),
        log_e=tuple(np.maximum(test.log_e, least).tolist()),
        out=tuple(test.eliminated.tolist()),
        log_threshold=test.log_threshold,
        winner=None if test.winner is None else arms[test.winner].arm_id,
        regret=test.regret(),
        n_open=int(test.n_open),
        n_to_verdict=n_to_verdict(test),
        caveat=caveat,
    )


def design_of(arms: Sequence[StoredArm], out: Sequence[str]) -> dict[str, Json]:
    """Return the assumptions behind bets on the next requests, to store with their policy.

    Args:
        arms: all arms that were ever active, in order.
        out: ids of eliminated arms.
    """
    means = np.array([arm.mean for arm in arms])
    by_mean = np.argsort(-means, kind="stable")
    return {
        "leader": int(by_mean[0]),
        "rival": int(by_mean[min(1, len(arms) - 1)]),
        "means": means.tolist(),
        "stakes": all(arm.n > 0 for arm in arms),
        "out": list(out),
    }


def _design(stored: Mapping[str, Json], n_arms: int) -> Design:
    """Return a stored design; later arms had no share then, so nothing is staked on them."""
    means = stored.get("means")
    if not isinstance(means, list):
        return Design(leader=0, rival=1, means=(0.5,) * n_arms, stakes=False)
    known = [float(str(mean)) for mean in means]
    return Design(
        leader=int(str(stored["leader"])),
        rival=int(str(stored["rival"])),
        means=(*known, *(0.5,) * (n_arms - len(known))),
        stakes=bool(stored["stakes"]),
    )
