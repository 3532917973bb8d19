"""Rewards that come late or never: what they are worth to the evidence and to the arms."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from convergence_core.gate.best_arm_test import BestArmTest, Design, RewardedRequests
from tasks.serving.offers import offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime import runtime_store, watches
from tasks.store.runtime.rows import ArmKind
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.core.gate.requests import after, design_of
from tests.support.bandits import Bandit
from tests.support.rebuilt_counts import rebuilt

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
    bandit = serve(tmp_path, clock, expires_after_s=WINDOW_S, missing_reward=1.0)
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
    assert (evidence.n_open, sum(evidence.numbers)) == (0, 400), "the window has passed"
    assert evidence.winner is None
    assert evidence.means == pytest.approx((0.5, 0.5), abs=0.1)


def test_a_winner_keeps_the_evidence_that_made_it_while_others_wait(tmp_path: Path, clock: Clock):
    bandit = serve(tmp_path, clock)
    for n in range(400):
        chosen = bandit.select("u")
        if n < 200:
            bandit.update(chosen.decision_id, float(chosen.arm_id == "b"))
    evidence = bandit.evidence()
    assert (evidence.winner, evidence.out, evidence.n_to_verdict) == ("b", (True, False), 0)
    assert evidence.n_open == 200
    assert evidence.log_e[0] >= evidence.log_threshold > evidence.log_e[1]


def test_a_decision_without_a_reward_in_its_window_teaches_what_the_settings_state(
    tmp_path: Path, clock: Clock
):
    bandit = serve(tmp_path, clock, expires_after_s=WINDOW_S, missing_reward=0.0)
    first, second = bandit.select("u"), bandit.select("u")
    clock.now += int(WINDOW_S * 1e6)
    late = bandit.update(first.decision_id, 1.0)
    assert late.status == "conflict", "0 stands since the window has passed"
    store = bandit.store
    assert sum(arm.n for arm in store.arms(1)) == 1
    store.reward_missing("bot", 1)
    arms = store.arms(1)
    assert sum(arm.n for arm in arms) == 2
    assert sum(arm.alpha - arm.base_alpha for arm in arms) == 0.0
    assert rebuilt(store, 1) == {arm.arm_id: (arm.alpha, arm.beta) for arm in arms}
    assert bandit.update(second.decision_id, 0.0).status == "duplicate"


@pytest.mark.parametrize("kind", ["beta", "linear"])
def test_arms_learn_of_missing_rewards_though_none_ever_comes(
    tmp_path: Path, clock: Clock, kind: ArmKind
):
    with RuntimeStore(tmp_path / "store", now_us=clock) as store:
        store.offer("bot", "default", [offer_of({}, "a")], trust=0.5, kind=kind)
        settings = RuntimeConfig(
            system="bot", kind=kind, expires_after_s=WINDOW_S, missing_reward=0.0
        )
        store.save_settings("bot", settings.model_dump(mode="json"))
        bandit = Bandit(store, "bot")
        for _ in range(5):
            bandit.select("u", context={"x": 1})
        assert store.arms(1)[0].n == 0
        clock.now += int(WINDOW_S * 1e6)
        bandit.select("u", context={"x": 1})
        assert store.arms(1)[0].n == 5


def test_a_void_decision_waits_for_no_reward_and_misses_none(tmp_path: Path, clock: Clock):
    bandit = serve(tmp_path, clock, expires_after_s=WINDOW_S, missing_reward=0.0)
    store, chosen = bandit.store, bandit.select("u")
    assert chosen.decision_id is not None
    store.void(chosen.decision_id)
    assert bandit.evidence().n_open == 0
    clock.now += int(WINDOW_S * 1e6)
    store.reward_missing("bot", 1)
    assert [arm.n for arm in store.arms(1)] == [0, 0]
    assert sum(bandit.evidence().numbers) == 0
    assert bandit.update(chosen.decision_id, 1.0).status == "late"
    assert [arm.n for arm in store.arms(1)] == [0, 0]


def test_contextual_arms_learn_what_the_settings_state_of_a_missing_reward(
    tmp_path: Path, clock: Clock
):
    with RuntimeStore(tmp_path / "store", now_us=clock) as store:
        store.offer("bot", "default", [offer_of({}, "a")], trust=0.5, kind="linear")
        settings = RuntimeConfig(
            system="bot", kind="linear", expires_after_s=WINDOW_S, missing_reward=0.0
        )
        store.save_settings("bot", settings.model_dump(mode="json"))
        bandit = Bandit(store, "bot")
        for number in range(20):
            chosen = bandit.select("u", context={"x": number})
            if number % 4 == 0:
                bandit.update(chosen.decision_id, 1.0)
        clock.now += int(WINDOW_S * 1e6)
        bandit.update(bandit.select("u", context={"x": 9}).decision_id, 1.0)
        mean = bandit.select("u", context={"x": 9}).sampled_value
        (arm,) = store.arms(1)
        assert (arm.n, arm.alpha - arm.base_alpha) == (21, 6.0)
        assert mean is not None
        assert mean < 0.6


def test_without_a_statement_a_missing_reward_says_nothing(tmp_path: Path, clock: Clock):
    bandit = serve(tmp_path, clock, expires_after_s=WINDOW_S)
    chosen = bandit.select("u")
    assert bandit.evidence().n_open == 1
    clock.now += int(WINDOW_S * 1e6)
    assert bandit.update(chosen.decision_id, 1.0).status == "late"
    assert (bandit.evidence().n_open, sum(bandit.evidence().numbers)) == (0, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"missing_reward": 0.0, "expires_after_s": None},
        {"missing_reward": 0.0, "rewards_per_false_alarm": 1_000},
        {"missing_reward": 2.0},
    ],
)
def test_a_statement_that_cannot_be_kept_is_refused(settings: dict[str, object]):
    with pytest.raises(ValidationError, match="missing_reward"):
        RuntimeConfig.model_validate({"system": "bot", **settings})


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
            test = after(test, requests, designs[past])
        eliminated |= test.eliminated
        designs.append(design_of(test))
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


@pytest.mark.parametrize(
    ("statement", "values"),
    [(runtime_store._OPEN, (1, 0)), (watches._COUNTS + watches._REWARDED, (1, 0, 0))],
)
def test_rewards_of_decisions_are_found_by_their_index(
    tmp_path: Path, statement: str, values: tuple[int, ...]
):
    """Without it, time grows with the square of the traffic."""
    with RuntimeStore(tmp_path) as store:
        plan = store.fetch(f"EXPLAIN QUERY PLAN {statement}", values)
    assert any("one_reward" in str(step) for step in plan), plan
