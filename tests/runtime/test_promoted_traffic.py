"""From a run's result to traffic: the promoted candidate on offer with its night's prior."""

from dataclasses import replace
from pathlib import Path

import pytest

from convergence_core.errors import ConfigurationError
from convergence_core.result import CandidateReport, Estimate
from tasks.serving.offers import offer_of
from tasks.serving.operations import RewardUpdate, performed
from tasks.serving.promotion import (
    offer_champion,
    prior_of,
    put_on_offer,
    read_ramp,
    retire_champion,
)
from tasks.store.runtime.promotions import set_champion
from tasks.store.runtime.rows import Champion, Reward
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard, guards_of, move_guard
from tests.support.bandits import Bandit
from tests.support.results import bare_result


def candidate(name: str, mean: float) -> CandidateReport:
    estimate = Estimate(mean=mean, low=mean - 0.1, high=mean + 0.1, n_cases=30)
    return CandidateReport(
        candidate_id=name, label=name, params={"x": mean}, origin="sample", generation=0,
        search=estimate, holdout=replace(estimate, mean=mean - 0.02, low=mean - 0.12, high=mean + 0.08),
    )  # fmt: skip


RESULT = replace(
    bare_result(), system="bot", winner=candidate("w", 0.8), baseline=candidate("b", 0.6)
)


def names(store: RuntimeStore) -> dict[str, bool]:
    return {arm.arm_id: arm.is_retired for arm in store.arms(1)}


def test_the_winner_serves_with_its_prior_and_is_watched_against_the_defaults(tmp_path: Path):
    with RuntimeStore(tmp_path / "s") as store:
        assert put_on_offer(store, RESULT, holdback=0.2, tolerance=0.01) == ("w", "b")
        assert names(store) == {"w": False, "b": False}
        prior = prior_of(candidate("w", 0.8), RESULT.run_id)
        assert prior is not None
        (arm, _) = store.arms(1)
        assert (arm.base_alpha, arm.base_beta) == (prior.alpha, prior.beta)
        assert prior.mean == 0.78, "the night's most trustworthy estimate: held-out cases"
        assert arm.run_id == RESULT.run_id
        guard = active_guard(store, 1)
        assert guard is not None
        assert (guard.promoted, guard.champion) == ("w", "b")
        assert (guard.holdback, guard.tolerance) == (0.2, 0.01)
        assert guard.shares == (0.05, 0.25, 0.5, 0.8)


FIRST = Champion(
    system="bot", candidate_id="w", params={"x": 0.8}, run_id="r", reason="promoted", created_us=1
)
SECOND = replace(RESULT, winner=candidate("v", 0.9))


def ramping(path: Path) -> RuntimeStore:
    """Return a store where w is on its ramp against b."""
    store = RuntimeStore(path)
    put_on_offer(store, RESULT)
    set_champion(store, FIRST)
    return store


def test_a_promotion_after_a_confirmed_one_is_watched_against_it(tmp_path: Path):
    with ramping(tmp_path / "s") as store:
        guard = active_guard(store, 1)
        assert guard is not None
        move_guard(store, 1, guard, "confirmed")
        assert put_on_offer(store, SECOND) == ("v", "w")


def test_a_promotion_without_a_control_left_is_watched_against_the_champion(tmp_path: Path):
    with ramping(tmp_path / "s") as store:
        store.retire("bot", "default", "b")
        assert put_on_offer(store, SECOND) == ("v", "w")
        assert names(store)["b"]


def test_the_control_promoted_during_a_ramp_rolls_it_back(tmp_path: Path):
    with ramping(tmp_path / "s") as store:
        assert put_on_offer(store, replace(RESULT, winner=candidate("b", 0.6))) == ("b", None)
        assert [guard.decision for guard in guards_of(store, "bot")] == ["rollback"]
        assert names(store) == {"w": True, "b": False}


def test_a_promotion_during_a_ramp_keeps_the_control(tmp_path: Path):
    with ramping(tmp_path / "s") as store:
        assert put_on_offer(store, SECOND) == ("v", "b"), "w is not confirmed"
        reigning = replace(FIRST, candidate_id="v", params={"x": 0.9})
        set_champion(store, reigning)
        Bandit(store, "bot").select("u")
        policy = store.policies(1)[-1]
        assert dict(zip(policy.arms, policy.shares, strict=True)) == pytest.approx(
            {"w": 0.0, "b": 0.95, "v": 0.05}
        )
        guard = active_guard(store, 1)
        assert guard is not None
        assert (guard.promoted, guard.champion) == ("v", "b"), "one guard watches at a time"
        # A person rolls it back.
        offer_champion(store, "bot", FIRST)
        assert retire_champion(store, "bot", reigning) == "v"
        assert names(store) == {"w": False, "b": False, "v": True}
        assert active_guard(store, 1) is None


def test_a_ramp_is_read_in_percent_and_leaves_the_hold_back():
    assert read_ramp("5,25,50,100", 0.1) == (0.05, 0.25, 0.5)
    assert read_ramp("5,25,50,100", 0.5) == (0.05, 0.25)
    assert read_ramp("100", 0.1) == ()
    for text in ("5,25", "25,5,100", "0,100", "5,x,100", ""):
        with pytest.raises(ConfigurationError, match="`--ramp` must rise to 100"):
            read_ramp(text, 0.1)


def test_guardrails_of_the_settings_have_fences_from_the_promotion_on(tmp_path: Path):
    with RuntimeStore(tmp_path / "s") as store:
        store.save_settings("bot", {"guardrails": {"latency_ms": 100.0, "error": 0.01}})
        store.offer("bot", "default", [offer_of({"x": 0.6}, "b")], trust=0.5)
        bandit = Bandit(store, "bot")
        for n in range(20):
            given = Reward(
                decision_id=bandit.select("u").decision_id, reward=1.0, signals={"latency_ms": n}
            )
            performed(store, RewardUpdate(store, "bot", given))
        put_on_offer(store, RESULT)
        guard = active_guard(store, 1)
        assert guard is not None
        rails = {rail.name: rail for rail in guard.guardrails}
        assert rails["latency_ms"].is_fenced
        assert rails["latency_ms"].since == guard.since
        assert not rails["error"].is_fenced


def test_contextual_arms_are_offered_and_not_watched(tmp_path: Path):
    with RuntimeStore(tmp_path / "s") as store:
        store.offer("bot", "default", [offer_of({"x": 1}, "a")], trust=0.5, kind="linear")
        assert put_on_offer(store, RESULT) == ("w", None)
        assert active_guard(store, 1) is None
