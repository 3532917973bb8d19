"""Gate of a learned policy: when it serves, what errs how often, and the course of episodes."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from convergence_core.policy.course import RECORDED, PlayedEpisode, course_of, paired_rewards
from convergence_core.policy.gate import ALPHA, BASELINES, PPO, judge_policy


def rewards(n: int, seed: int = 0, **gaps: float) -> dict[Any, list[float]]:
    """Return rewards of n episodes that share their noise; ``gaps``: what PPO is ahead by."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0.1, 0.1, n)
    own = shared + rng.normal(0.0, 0.05, n)
    found = {PPO: own.tolist()}
    for name in BASELINES:
        found[name] = (shared - gaps.get(name, 0.0) + rng.normal(0.0, 0.05, n)).tolist()
    return found


def test_it_serves_only_where_it_beats_both():
    both = judge_policy(rewards(200, bandit=0.15, sequence=0.15), max_steps=5)
    assert both.serves == PPO
    assert "earns more than both baselines in 200 episodes" in both.reason
    for name, other in (("bandit", "sequence"), ("sequence", "bandit")):
        gaps: dict[str, Any] = {name: 0.15}
        one = judge_policy(rewards(200, **gaps), max_steps=5)
        decisions = {v.baseline: v.decision for v in one.verdicts}
        assert decisions[name] == "promote"  # type: ignore[index]
        assert one.serves == other, "it is not shown to beat that one, which has the higher mean"


def test_differences_are_told_in_the_units_of_rewards():
    given: dict[Any, list[float]] = {PPO: [0.5] * 30, "bandit": [0.1] * 30, "sequence": [0.4] * 30}
    found = judge_policy(given, max_steps=4, price=0.1)
    bandit, sequence = found.verdicts
    assert bandit.mean == pytest.approx(0.4)
    assert sequence.mean == pytest.approx(0.1)
    assert bandit.low < 0.4 < bandit.high
    assert bandit.log_e > sequence.log_e


@pytest.mark.statistical
def test_a_policy_that_earns_no_more_seldom_serves_however_often_one_looks():
    n_served = 0
    for seed in range(40):
        played = rewards(60, seed)
        looks = (
            judge_policy({name: own[:n] for name, own in played.items()}, max_steps=5)
            for n in (20, 60)
        )
        n_served += any(one.serves == PPO for one in looks)
    p = binomtest(n_served, 40, ALPHA, alternative="greater").pvalue
    assert p > 1e-3, (n_served, p)


def test_policies_must_have_played_the_same_episodes():
    with pytest.raises(ValueError, match="as many episodes of each policy"):
        judge_policy({PPO: [0.1], "bandit": [], "sequence": [0.1]}, max_steps=5)
    with pytest.raises(ValueError, match=r"\[-1, 1\]"):
        judge_policy({PPO: [9.0], "bandit": [0.0], "sequence": [0.0]}, max_steps=5)


def episode(policy: Any, number: int, reward: float, **fields: Any) -> PlayedEpisode:
    """Return an episode."""
    given: dict[str, Any] = {
        "system": "s", "run_id": "r", "episode": number, "policy": policy, "version": 0,
        "category": "system", "text_id": "t", "actions": ("expansion", "stop"),
        "verdicts": ("kept",), "start_score": 0.5, "gain": reward, "reward": reward,
        "n_evaluations": 12,
    }  # fmt: skip
    return PlayedEpisode(**{**given, **fields})


def test_only_episodes_that_all_have_played_are_paired():
    played = [
        episode("bandit", RECORDED, 0.9),
        *(episode(name, 0, 0.1) for name in (PPO, *BASELINES)),
        episode(PPO, 1, 0.7),
        *(episode(name, 0, 0.3, run_id="other") for name in (*BASELINES, PPO)),
    ]
    assert paired_rewards(played) == {name: [0.1, 0.3] for name in (PPO, *BASELINES)}


def test_the_course_counts_evaluations_actions_and_refusals():
    played = [
        episode("bandit", RECORDED, 0.0, actions=(), verdicts=()),
        episode(PPO, 0, 0.2),
        episode(PPO, 1, 0.4, actions=("reflect", "expansion"), verdicts=("secret", "kept"),
                n_evaluations=18),
        episode("bandit", 0, -0.1, category="opening", actions=("stop",), verdicts=()),
    ]  # fmt: skip
    found = course_of(played)
    first, second, bandit = found.curve
    assert (first.n_evaluations, first.mean) == (12, 0.2)
    # One value of [-1, 1]: with the shares D, P(D x + (1 - D) > m) is .025 at the upper end.
    assert first.high == pytest.approx(1.0 - 0.025 * 0.8)
    assert first.low == pytest.approx(-1.0 + 0.025 * 1.2)
    assert second.n_evaluations == 30
    assert second.mean == pytest.approx(0.3)
    assert first.low < second.low < 0.3 < second.high < first.high
    assert (bandit.policy, bandit.mean) == ("bandit", -0.1)
    shares = {(one.category, one.policy, one.action): one.share for one in found.shares}
    assert shares == {
        ("opening", "bandit", "stop"): 1.0,
        ("system", "ppo", "expansion"): 0.5,
        ("system", "ppo", "reflect"): 0.25,
        ("system", "ppo", "stop"): 0.25,
    }
    (refused,) = found.refused
    assert (refused.action, refused.verdict, refused.n, refused.n_written) == (
        "reflect",
        "secret",
        1,
        1,
    )
    same = course_of([episode(PPO, n, 0.0) for n in range(8)]).curve[-1]
    assert same.low < -0.2
    assert same.high > 0.2
    priced = course_of([episode(PPO, n, -1.2, gain=-1.0) for n in range(2)]).curve[-1]
    assert priced.low == pytest.approx(-1.2)
    long = course_of([episode(PPO, n, 0.1) for n in range(500)])
    assert len(long.curve) <= 61
    assert long.curve[-1].n_episodes == 500
