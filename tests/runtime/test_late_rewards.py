"""Rewards that come late or never: what they are worth to the evidence and to the arms."""

from pathlib import Path

import numpy as np
import pytest

from convergence_core.gate import BestArmTest, Design, RewardedRequests
from tasks.serving.bandit import Bandit
from tasks.serving.offers import offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime.runtime_store import RuntimeStore

WINDOW_S = 10.0


class Clock:
    """A clock that is set by hand, microseconds."""

    now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def serve(folder: Path, clock: Clock, **settings: object) -> Bandit:
    store = RuntimeStore(folder / "store", now_us=clock)
    store.offer(
        "bot", "default", [offer_of({"t": n}, name) for n, name in enumerate("ab")], trust=0.5
    )
    config = RuntimeConfig.model_validate({"system": "bot", "floor": 1.0, **settings})
    store.save_settings("bot", config.model_dump(mode="json"))
    return Bandit(store, "bot", seed=1)


def test_no_winner_is_named_while_outcomes_can_still_come(tmp_path: Path, clock: Clock):
    """Arms are equal, and all but the successes of a come at once."""
    bandit = serve(tmp_path, clock, expires_after_s=WINDOW_S)
    for n in range(400):
        chosen = bandit.select("u")
        reward = float(n // 2 % 2)
        if not (chosen.arm_id == "a" and reward):
            bandit.update(chosen.decision_id, reward)
    evidence = bandit.evidence()
    assert evidence.winner is None
    assert evidence.n_open > 50
    assert f"{evidence.n_open:,} requests wait for a reward" in evidence.sentence
    clock.now += int(WINDOW_S * 1e6)
    evidence = bandit.evidence()
    assert evidence.n_open == 0, "the window has passed"


def test_a_missing_reward_says_nothing(tmp_path: Path, clock: Clock):
    bandit = serve(tmp_path, clock, expires_after_s=WINDOW_S)
    chosen = bandit.select("u")
    assert bandit.evidence().n_open == 1
    clock.now += int(WINDOW_S * 1e6)
    assert bandit.update(chosen.decision_id, 1.0).status == "late"
    assert (bandit.evidence().n_open, sum(bandit.evidence().numbers)) == (0, 0)


def named(seed: int, delay: int, *, window: int | None, gap: float = 0.0) -> int | None:
    """Return the winner after 30 looks at 100 requests each; successes of arm 0 come late, in looks."""
    rng, n_looks = np.random.default_rng(seed), 30
    arms = rng.integers(2, size=(n_looks, 100))
    rewards = (rng.random(arms.shape) < 0.3 + gap * (arms == 1)).astype(float)
    due = np.where((arms == 0) & (rewards == 1.0), delay, 0)
    shares = np.full((100, 2), 0.5)
    eliminated = np.zeros(2, dtype=bool)
    designs: list[Design] = []
    for look in range(n_looks):
        test = BestArmTest.begin(2)
        for past in range(look):
            is_in = past + due[past] < look
            seen = np.where(is_in, rewards[past], np.nan)
            if window is not None and past + window < look:
                seen = np.where(due[past] <= window, rewards[past], 0.0)
            requests = RewardedRequests(
                arms=arms[past], rewards=seen, propensities=shares, counts=np.ones(100)
            )
            test = test.tell(designs[past], requests)
        eliminated |= test.eliminated
        designs.append(test.design())
        if eliminated.any():
            break
    winners = np.flatnonzero(~eliminated)
    return int(winners[0]) if winners.size == 1 else None


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("delay", [3, 10])
@pytest.mark.parametrize("window", [12, None])
def test_delays_by_outcome_and_arm_make_no_false_winner(delay: int, window: int | None):
    winners = [named(seed, delay, window=window) for seed in range(60)]
    assert sum(winner is not None for winner in winners) <= 3, winners


@pytest.mark.statistical
@pytest.mark.slow
def test_a_difference_is_found_although_rewards_come_late():
    winners = [named(seed, 3, window=12, gap=0.2) for seed in range(10)]
    assert winners.count(1) >= 8, winners
