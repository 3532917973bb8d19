"""Course of policies over rounds: episodes, learning curves, actions, refusals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.gate.intervals import mean_ends
from convergence_core.policy.baselines import TakenStep
from convergence_core.policy.gate import BASELINES, PPO, PolicyName, PolicyVerdict
from convergence_core.policy.prompt_state import STOP
from convergence_core.prompts.state import KEPT

LEVEL: Final = 0.95
MOST_POINTS: Final = 60
"""Of one curve."""
RECORDED: Final = -1
"""Number of the episode that holds the recorded edits which a baseline began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode:
    """One prompt, changed by one policy."""

    system: str
    run_id: str
    episode: int
    """Number within the run."""
    policy: PolicyName
    version: int
    """Of the policy learned by PPO."""
    category: str
    """Text parameter whose text was changed."""
    text_id: str
    """Of the first text."""
    actions: tuple[str, ...]
    verdicts: tuple[str, ...]
    """What became of the text of each action but ``stop``."""
    start_score: float
    gain: float
    reward: float
    """The gain less the prices."""
    n_evaluations: int
    steps: tuple[TakenStep, ...] = ()
    """What its policy learned from; empty where they were not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow(PolicyVerdict):
    """One look of the gate at one baseline, as stored."""

    system: str
    run_id: str
    version: int
    serves: PolicyName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCurvePoint:
    """Mean reward of a policy's episodes so far."""

    policy: PolicyName
    n_episodes: int
    n_evaluations: int
    """That these episodes take."""
    mean: float
    low: float
    """Ends of the 95 % interval over episodes, for any distribution; never of width zero."""
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionShare:
    """How often a policy did an action on prompts of a category."""

    category: str
    policy: PolicyName
    action: str
    n: int
    share: float
    """Of the policy's actions on that category, in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTexts:
    """How often an action's text was refused for one reason."""

    action: str
    verdict: str
    n: int
    n_written: int
    """Texts of that action, kept ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCourse:
    """What all rounds of a system came to."""

    curve: tuple[PolicyCurvePoint, ...]
    shares: tuple[ActionShare, ...]
    refused: tuple[RefusedTexts, ...]


def paired_rewards(episodes: Sequence[PlayedEpisode]) -> Mapping[PolicyName, list[float]]:
    """Return policy → reward of each episode that all policies have played, in their order."""
    by_place: dict[tuple[str, int], dict[PolicyName, float]] = {}
    for episode in episodes:
        if episode.episode != RECORDED:
            by_place.setdefault((episode.run_id, episode.episode), {})[episode.policy] = (
                episode.reward
            )
    names = (PPO, *BASELINES)
    whole = [rewards for rewards in by_place.values() if len(rewards) == len(names)]
    return {name: [rewards[name] for rewards in whole] for name in names}


def course_of(episodes: Sequence[PlayedEpisode]) -> PolicyCourse:
    """Return the course of episodes, in the order they were played."""
    played = [episode for episode in episodes if episode.episode != RECORDED]
    curve: list[PolicyCurvePoint] = []
    for name in (PPO, *BASELINES):
        episodes_of_policy = [episode for episode in played if episode.policy == name]
        curve += _curve(name, episodes_of_policy)
    return PolicyCourse(curve=tuple(curve), shares=_shares(played), refused=_refused(played))


def _curve(name: PolicyName, episodes: Sequence[PlayedEpisode]) -> list[PolicyCurvePoint]:
    rewards = np.array([episode.reward for episode in episodes])
    spent = np.cumsum([episode.n_evaluations for episode in episodes])
    every = max(1, -(-len(episodes) // MOST_POINTS))
    # A gain lies in [-1, 1]; a reward is less by the prices, at most by those of the dearest episode.
    lowest = -1.0 - max((episode.gain - episode.reward for episode in episodes), default=0.0)
    points = []
    for n in range(1, len(episodes) + 1):
        if n % every and n != len(episodes):
            continue
        mean = float(rewards[:n].mean())
        low, high = mean_ends(rewards[:n], tail=(1.0 - LEVEL) / 2.0, lowest=lowest)
        points.append(
            PolicyCurvePoint(
                policy=name,
                n_episodes=n,
                n_evaluations=int(spent[n - 1]),
                mean=mean,
                low=min(low, mean),
                high=max(high, mean),
            )
        )
    return points


def _shares(played: Sequence[PlayedEpisode]) -> tuple[ActionShare, ...]:
    counts = Counter((e.category, e.policy, action) for e in played for action in e.actions)
    totals = Counter((e.category, e.policy) for e in played for _ in e.actions)
    return tuple(
        ActionShare(
            category=category,
            policy=policy,
            action=action,
            n=n,
            share=n / totals[category, policy],
        )
        for (category, policy, action), n in sorted(
            counts.items(), key=lambda entry: (*entry[0][:2], -entry[1], entry[0][2])
        )
    )


def _refused(played: Sequence[PlayedEpisode]) -> tuple[RefusedTexts, ...]:
    verdicts: Counter[tuple[str, str]] = Counter()
    for episode in played:
        changes = [action for action in episode.actions if action != STOP]
        verdicts.update(zip(changes, episode.verdicts, strict=False))
    written = Counter({action: 0 for action, _ in verdicts})
    for (action, _), n in verdicts.items():
        written[action] += n
    return tuple(
        RefusedTexts(action=action, verdict=verdict, n=n, n_written=written[action])
        for (action, verdict), n in sorted(verdicts.items())
        if verdict != KEPT
    )
