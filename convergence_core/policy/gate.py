"""Gate of a learned policy beside two baselines, at equal evaluations.

Policies play the same episodes: the same prompt, the same cases, the same number of steps at most. The difference of
their rewards in one episode is one pair of the paired test (``convergence_core.gate.paired``), scaled to [-1, 1]:

    d = (R_ppo - R_baseline) / (2 (1 + T price))                                                   (1)

Each test errs with probability at most ``alpha`` however often one looks. The policy serves where both say *promote*,
so that it serves wrongly with probability at most ``alpha``, too (R. Berger, 1982: intersection-union tests).

Notation: R sum of an episode's rewards, T most steps of an episode, price of one step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from convergence_core.gate.paired import Decision, PairedGate

PolicyName: TypeAlias = Literal["ppo", "bandit", "sequence"]
BANDIT: Final = "bandit"
SEQUENCE: Final = "sequence"
PPO: Final = "ppo"
BASELINES: Final[tuple[PolicyName, ...]] = (BANDIT, SEQUENCE)
WORDS: Final[Mapping[PolicyName, str]] = {
    PPO: "the policy learned by PPO",
    BANDIT: "the bandit (linear Thompson sampling on the same state)",
    SEQUENCE: "the best fixed sequence",
}
ALPHA: Final = 0.05
"""Largest probability that a policy serves which is at no time better than a baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVerdict:
    """What the episodes so far say of the policy beside one baseline."""

    baseline: PolicyName
    decision: Decision
    """``promote``: it earns more; ``keep``: it does not."""
    n: int
    """Episodes that both have played."""
    mean: float | None
    """Mean difference of an episode's reward; ``None`` if there is none."""
    low: float
    high: float
    """Confidence sequence of the mean difference, at level ``1 - ALPHA``."""
    log_e: float
    """Highest evidence that the policy earns more, in nats."""
    log_threshold: float
    """Evidence that decides, in nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGate:
    """Which policy serves, and why."""

    serves: PolicyName
    reason: str
    verdicts: tuple[PolicyVerdict, ...]
    """One for each baseline."""


def serving_sentences(serves: PolicyName, reason: str) -> tuple[str, str]:
    """Return who serves and why, a sentence each.

    Args:
        serves: the policy that the latest look names.
        reason: of that look.
    """
    words = WORDS[serves]
    return f"{words[0].upper()}{words[1:]} serves.", f"{reason[0].upper()}{reason[1:]}."


def judge_policy(
    rewards: Mapping[PolicyName, Sequence[float]], *, max_steps: int, price: float = 0.0
) -> PolicyGate:
    """Return which policy serves after these episodes.

    Args:
        rewards: policy → reward of each episode, in the order they were played, the same for all; (n,).
        max_steps: T.
        price: reward that a step costs.

    Raises:
        ValueError: policies played different numbers of episodes, or a reward is out of range.
    """
    if len({len(rewards[name]) for name in WORDS}) > 1:
        raise ValueError("`rewards` must hold as many episodes of each policy")
    largest = 1.0 + max_steps * price
    ppo_rewards = np.asarray(rewards[PPO], dtype=np.float64)
    gate, verdicts = PairedGate(alpha=ALPHA), []
    for name in BASELINES:
        scaled = (ppo_rewards - np.asarray(rewards[name], dtype=np.float64)) / (
            2.0 * largest
        )  # (eq. 1)
        judged = gate.judge(scaled)
        verdicts.append(
            PolicyVerdict(
                baseline=name,
                decision=judged.decision,
                n=judged.n,
                mean=2.0 * largest * judged.mean if judged.n else None,
                low=2.0 * largest * judged.low,
                high=2.0 * largest * judged.high,
                log_e=judged.log_e_better,
                log_threshold=judged.log_threshold,
            )
        )
    means = {
        name: float(np.mean(rewards[name])) if ppo_rewards.size else 0.0 for name in BASELINES
    }
    best = max(BASELINES, key=lambda name: means[name])
    if all(verdict.decision == "promote" for verdict in verdicts):
        reason = f"{WORDS[PPO]} earns more than both baselines in {ppo_rewards.size:,} episodes"
        return PolicyGate(serves=PPO, reason=reason, verdicts=tuple(verdicts))
    if not ppo_rewards.size:
        reason = f"{WORDS[best]} serves: no episode was played yet"
        return PolicyGate(serves=best, reason=reason, verdicts=tuple(verdicts))
    lacking = [WORDS[verdict.baseline] for verdict in verdicts if verdict.decision != "promote"]
    reason = (
        f"{WORDS[best]} serves: {ppo_rewards.size:,} episodes do not show that {WORDS[PPO]} earns more than "
        f"{' nor more than '.join(lacking)}; of the baselines it has the higher mean reward"
    )
    return PolicyGate(serves=best, reason=reason, verdicts=tuple(verdicts))
