"""The ramp in production: it takes steps, brings the champion back, or confirms, and seldom errs."""

import multiprocessing
import os
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from convergence_core.caveats import TRAFFIC
from convergence_core.gate.guardrails import Guardrail
from tasks.serving.fold import fold_store
from tasks.serving.guard import judge, look
from tasks.serving.offers import offer_of
from tasks.serving.operations import RewardUpdate, performed
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime import watches
from tasks.store.runtime.promotions import champion_of, looks, set_champion
from tasks.store.runtime.rows import (
    Champion,
    Reward,
    RewardTally,
    StoredArm,
    StoredGuard,
    StoredPolicy,
)
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard, begin_guard, guards_of, move_guard
from tests.support.bandits import Bandit

OLD, NEW = "old", "new"


def champion(name: str) -> Champion:
    return Champion(
        system="bot", candidate_id=name, params={"n": name}, run_id=None, reason="promoted",
        created_us=1,
    )  # fmt: skip


def promoted(
    path: Path,
    *,
    tolerance: float = 0.0,
    holdback: float = 0.3,
    steps: Sequence[float] = (),
    margins: Mapping[str, float] | None = None,
) -> RuntimeStore:
    store = RuntimeStore(path)
    offers = [offer_of({"n": name}, name) for name in (OLD, NEW)]
    group = store.offer("bot", "default", offers, trust=0.5)
    for name in (OLD, NEW):
        set_champion(store, champion(name))
    begin_guard(
        store, group.group_id, promoted=NEW, champion=OLD, alpha=0.05, tolerance=tolerance,
        holdback=holdback, steps=steps,
        guardrails=[Guardrail(name=name, margin=x) for name, x in (margins or {}).items()],
    )  # fmt: skip
    return store


def serve(store: RuntimeStore, means: dict[str, float], n: int, seed: int = 0) -> None:
    bandit = Bandit(store, "bot", settings=RuntimeConfig(system="bot", floor=0.2), seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(n):
        chosen = bandit.select("u")
        bandit.update(chosen.decision_id, float(rng.random() < means[chosen.arm_id]))


def test_a_promotion_that_was_wrong_is_rolled_back(tmp_path: Path):
    with promoted(tmp_path / "s") as store:
        found = look(store, "bot", "default")
        for block in range(12):
            serve(store, {OLD: 0.9, NEW: 0.3}, 40, seed=block)
            found = look(store, "bot", "default")
            if found is not None and found.decision != "watching":
                break
            assert found is None or TRAFFIC not in found.sentence
        assert found is not None
        assert found.decision == "rollback", found
        assert "promoted new at 70 % against old: rollback after" in found.sentence
        assert found.sentence.endswith(TRAFFIC)
        back = champion_of(store, "bot")
        assert back is not None
        assert (back.candidate_id, back.reason) == (OLD, "rollback from new by the guard")
        assert [arm.is_retired for arm in store.arms(1)] == [False, True]
        assert active_guard(store, 1) is None
        assert [one.decision for one in guards_of(store, "bot")] == ["rollback"]
        assert looks(store, "bot")[-1].kind == "guard"
        assert looks(store, "bot")[-1].decision == "rollback"
        assert looks(store, "bot")[-1].details["caveat"] == TRAFFIC
        assert looks(store, "bot")[-1].n == found.n > 0
        assert look(store, "bot", "default") is None, "nothing is watched any more"
        assert Bandit(store, "bot").select("u").arm_id == OLD


def test_a_promotion_that_was_right_is_confirmed_and_both_stay_on_offer(tmp_path: Path):
    with promoted(tmp_path / "s") as store:
        report = fold_store(tmp_path / "s")
        for block in range(12):
            serve(store, {OLD: 0.3, NEW: 0.9}, 40, seed=block)
            report = fold_store(tmp_path / "s")
            if report.guards["bot/default"].decision != "watching":
                break
        assert report.guards["bot/default"].decision == "confirmed"
        assert not any(arm.is_retired for arm in store.arms(1))
        reigning = champion_of(store, "bot")
        assert reigning is not None
        assert reigning.candidate_id == NEW
        assert fold_store(tmp_path / "s").guards == {}


def test_the_former_champion_keeps_its_share_while_it_is_watched(tmp_path: Path):
    with promoted(tmp_path / "s", holdback=0.25) as store:
        serve(store, {OLD: 0.1, NEW: 0.9}, 60)
        policy = store.policies(1)[-1]
        share = dict(zip(policy.arms, policy.shares, strict=True))
        assert share[OLD] == pytest.approx(0.25), share


def now(store: RuntimeStore) -> StoredGuard:
    guard = active_guard(store, 1)
    assert guard is not None
    return guard


def answered(
    store: RuntimeStore, n: int, numbers: Mapping[str, Mapping[str, float]], seed: int = 0
) -> None:
    """Serve n requests, rewarded by 1; the numbers of each arm come with the rewards."""
    bandit = Bandit(store, "bot", seed=seed)
    for _ in range(n):
        chosen = bandit.select("u")
        signals = numbers.get(chosen.arm_id)
        given = Reward(decision_id=chosen.decision_id, reward=1.0, signals=signals)
        performed(store, RewardUpdate(store, "bot", given))


def test_a_ramp_takes_its_steps_and_keeps_the_hold_back(tmp_path: Path):
    with promoted(tmp_path / "s", holdback=0.1, steps=(0.05, 0.25, 0.5)) as store:
        seen = []
        for block in range(40):
            answered(store, 50, {}, seed=block)
            policy = store.policies(1)[-1]
            assert dict(zip(policy.arms, policy.shares, strict=True))[NEW] == pytest.approx(
                now(store).shares[0], abs=1e-9
            )
            found = look(store, "bot", "default")
            assert found is not None
            if found.decision == "advance":
                seen.append(found.shares[0])
            if not now(store).steps:
                break
        assert seen == [0.05, 0.25, 0.5]
        assert now(store).shares == (0.9,)
        kept = [one for one in looks(store, "bot") if one.decision == "advance"]
        assert [one.details["shares"][0] for one in kept] == seen
        answered(store, 20, {})
        policy = store.policies(1)[-1]
        assert dict(zip(policy.arms, policy.shares, strict=True))[OLD] == pytest.approx(0.1)


def test_a_number_that_gets_worse_beyond_its_margin_rolls_back(tmp_path: Path):
    margins = {"latency_ms": 100.0, "revenue": -0.5}
    numbers = {
        OLD: {"latency_ms": 300.0, "revenue": 2.0},
        NEW: {"latency_ms": 900.0, "revenue": 2.0},
    }
    with promoted(tmp_path / "s", steps=(0.25,), margins=margins) as store:
        answered(store, 60, numbers)
        assert not any(rail.is_fenced for rail in now(store).guardrails)
        look(store, "bot", "default")
        assert all(rail.is_fenced for rail in now(store).guardrails)
        found = None
        for block in range(20):
            answered(store, 40, numbers, seed=block)
            found = look(store, "bot", "default")
            if found is not None and found.decision != "watching":
                break
        assert found is not None
        assert found.decision == "rollback"
        worse = [name for name, seen in found.guardrails.items() if seen["verdict"] == "worse"]
        assert worse == ["latency_ms"]
        assert "latency_ms worse" in found.sentence
        back = champion_of(store, "bot")
        assert back is not None
        assert back.candidate_id == OLD


def test_a_guardrail_without_values_holds_the_ramp(tmp_path: Path):
    with promoted(tmp_path / "s", steps=(0.5,), margins={"latency_ms": 100.0}) as store:
        some = {OLD: {"other": 1.0}, NEW: {"other": 1.0}}
        found = None
        for block in range(6):
            answered(store, 50, some, seed=block)
            found = look(store, "bot", "default")
            assert found is not None
            assert found.decision == "watching"
        assert found is not None
        assert "reward safe" in found.sentence
        assert "latency_ms has no values yet" in found.sentence
        values = {name: {"latency_ms": 100.0} for name in (OLD, NEW)}
        for block in range(20):
            answered(store, 40, values, seed=block)
            answered(store, 10, {}, seed=block)  # without the number
            found = look(store, "bot", "default")
            assert found is not None
            if found.decision == "advance":
                break
        assert found is not None
        assert found.decision == "advance"


@pytest.mark.parametrize("silent", [pytest.param(OLD, marks=pytest.mark.slow), NEW])
def test_a_number_that_one_arm_does_not_send_holds_the_ramp(tmp_path: Path, silent: str):
    with promoted(tmp_path / "s", steps=(0.5,), margins={"latency_ms": 100.0}) as store:
        sent = {OLD: {"latency_ms": 100.0}, NEW: {"latency_ms": 300.0}}
        answered(store, 60, sent)
        found = look(store, "bot", "default")
        for block in range(8):
            answered(store, 50, {**sent, silent: {}}, seed=block)
            found = look(store, "bot", "default")
            assert found is not None
            assert found.decision == "watching"
            assert found.guardrails["latency_ms"]["verdict"] == "open"
        assert found is not None
        assert found.guardrails["reward"]["verdict"] == "safe"


def test_a_reward_that_the_settings_state_lacks_no_number(tmp_path: Path):
    with promoted(tmp_path / "s") as store:
        store.save_settings("bot", {"missing_reward": 0.0, "expires_after_s": 60.0})
        bandit = Bandit(store, "bot")
        chosen = [bandit.select("u") for _ in range(3)]
        for decision, signals in zip(chosen, ({"ms": 1.0}, None), strict=False):
            given = Reward(decision_id=decision.decision_id, reward=1.0, signals=signals)
            performed(store, RewardUpdate(store, "bot", given))
        with store.database.transaction() as connection:
            connection.execute("UPDATE decisions SET expires_us = 1")
        store.reward_missing("bot", 1)
        rows = watches.numbers_of(store, 1, (OLD, NEW), after=0)
        assert [named for _, _, named in rows] == [{}, {"ms": 1.0}]


def test_a_ramp_reads_as_its_shares():
    guard = StoredGuard(
        system="bot", agent_type="default",
        seq=1, promoted=NEW, champion=OLD, since=0, alpha=0.05, tolerance=0.0, holdback=0.1,
        decision="watching", steps=(0.004, 0.025),
    )  # fmt: skip
    assert guard.sentence({}) == (
        "new gets 0.4 % of the requests, old the rest as control. Next: 2.5 %, all but 10 %."
    )
    assert replace(guard, steps=()).sentence({}) == (
        "old keeps 10 % of the requests as control; new and any other arms share the rest."
    )


def test_without_a_control_on_offer_the_watch_ends(tmp_path: Path):
    with promoted(tmp_path / "s", steps=(0.05,)) as store:
        store.retire("bot", "default", OLD)
        found = look(store, "bot", "default")
        assert found is not None
        assert found.decision == "ended"
        assert look(store, "bot", "default") is None
        assert Bandit(store, "bot").select("u").arm_id == NEW


def test_of_two_folds_one_takes_the_step(tmp_path: Path):
    with promoted(tmp_path / "s", steps=(0.05, 0.5)) as one, RuntimeStore(tmp_path / "s") as two:
        guard = now(one)
        assert move_guard(one, 1, guard, "advance")
        assert not move_guard(two, 1, guard, "advance")
        assert now(two).steps == (0.5,)


def test_a_rollback_leaves_a_later_champion_alone(tmp_path: Path):
    with promoted(tmp_path / "s") as store:
        set_champion(store, champion("later"))
        guard = now(store)
        assert move_guard(store, 1, guard, "rollback", restored=champion(OLD))
        reigning = champion_of(store, "bot")
        assert reigning is not None
        assert reigning.candidate_id == "later"
        assert [arm.is_retired for arm in store.arms(1)] == [False, True]
        begin_guard(store, 1, promoted=NEW, champion=OLD, alpha=0.05, tolerance=0.0, holdback=0.1)
        begin_guard(store, 1, promoted=OLD, champion=NEW, alpha=0.05, tolerance=0.0, holdback=0.1)
        first = guards_of(store, "bot")[-2]
        assert not move_guard(
            store, 1, replace(first, decision="watching"), "rollback", restored=champion(OLD)
        )
        assert now(store).promoted == OLD


def _killed(path: Path) -> None:
    """Be killed after all of a rollback is written but its commit."""
    setattr(watches, "revise", lambda *_: os.kill(os.getpid(), signal.SIGKILL))  # noqa: B010
    with RuntimeStore(path) as store:
        move_guard(store, 1, now(store), "rollback", restored=champion(OLD))


def test_a_kill_in_a_rollback_leaves_all_of_it_or_nothing(tmp_path: Path):
    with promoted(tmp_path / "s", steps=(0.05,)):
        pass
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(tmp_path / "s",))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with RuntimeStore(tmp_path / "s") as store:
        assert now(store).steps == (0.05,)
        reigning = champion_of(store, "bot")
        assert reigning is not None
        assert reigning.candidate_id == NEW
        assert not any(arm.is_retired for arm in store.arms(1))
        assert move_guard(store, 1, now(store), "rollback", restored=champion(OLD))


def test_a_promotion_in_flight_of_the_version_before_is_at_its_last_step(tmp_path: Path):
    with (
        promoted(tmp_path / "s", holdback=0.2) as store,
        store.database.transaction() as connection,
    ):
        for column in ("alarms DROP COLUMN kind", "guards DROP COLUMN steps_json",
                       "guards DROP COLUMN guardrails_json"):  # fmt: skip
            connection.execute(f"ALTER TABLE {column}")
        connection.execute("PRAGMA user_version = 4")
    with RuntimeStore(tmp_path / "s") as store:
        assert now(store).shares == (0.8,)
        assert watches.alarms(store) == []
        serve(store, {OLD: 0.9, NEW: 0.1}, 400)
        found = look(store, "bot", "default")
        assert found is not None
        assert found.decision == "rollback"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_signal_that_is_no_number_is_refused(number: float):
    with pytest.raises(ValueError, match=r"signals\.latency_ms must be a finite number"):
        Reward(decision_id="d", reward=1.0, signals={"latency_ms": number})


@pytest.mark.parametrize("guardrails", [{"latency_ms": 0.0}, {"reward": 0.1}])
def test_a_guardrail_without_a_margin_or_of_the_reward_is_refused(guardrails: dict[str, float]):
    with pytest.raises(ValueError, match="with a margin other than 0"):
        RuntimeConfig(system="bot", guardrails=guardrails)


ARMS = [
    StoredArm(
        arm_id=name, params={}, prior=None, base_alpha=1, base_beta=1, alpha=1,
        beta=1, n=1, run_id=None, is_retired=False,
    )
    for name in (OLD, NEW)
]  # fmt: skip


def policy_of(version: int, share: float, estimates: list[Any]) -> StoredPolicy:
    """Return the shares of a version, which gives the new arm so much."""
    return StoredPolicy(
        version=version, mode="regret", n=0, arms=(OLD, NEW),
        shares=(1 - share, share), design={"means": estimates},
    )  # fmt: skip


def ramps(
    means: tuple[float, float],
    delays: tuple[float, float],
    n_runs: int,
    *,
    n_folds: int = 8,
    seed: int = 5,
    per: int = 60,
) -> tuple[list[tuple[str, float]], float]:
    """Return the verdict and the share at the end of simulated ramps, and the mean requests of the promoted.

    Rewards are 0 or 1; the latency is log-normal; both arms of a request are those of the step's share.
    """
    rng, ends, served = np.random.default_rng(seed), [], 0
    for _ in range(n_runs):
        rail = Guardrail(name="ms", margin=100.0).fenced(
            list(rng.lognormal(np.log(delays[0]), 0.5, 200)), since=0
        )
        guard = StoredGuard(
            system="bot", agent_type="default",
            seq=1, promoted=NEW, champion=OLD, since=0, alpha=0.05, tolerance=0.0, holdback=0.1,
            decision="watching", steps=(0.05, 0.25, 0.5), guardrails=(rail,),
        )  # fmt: skip
        seen = np.array([[means[0] * 50, 50.0], [1.0, 2.0]])  # sums and numbers of both
        policies, tallies, numbers = [], [], defaultdict(list)
        decision = "watching"
        for version in range(1, 4 * n_folds + 1):
            estimates = (seen[:, 0] / seen[:, 1]).tolist()
            share = guard.shares[0]
            policies.append(policy_of(version, share, estimates))
            counts = rng.multinomial(per, [1 - share, share])
            served += counts[1]
            for place, name in enumerate((OLD, NEW)):
                good = int(rng.binomial(counts[place], means[place]))
                for reward, n in ((1.0, good), (0.0, int(counts[place]) - good)):
                    if n:
                        tallies.append(
                            RewardTally(version=version, arm_id=name, reward=reward, n=n)
                        )
                slow = rng.lognormal(np.log(delays[place]), 0.5, counts[place])
                numbers[version, name] = [{"ms": x} for x in slow]
                seen[place] += good, counts[place]
            if version % 4 == 0:
                decision = judge(guard, policies, tallies, ARMS, numbers).decision
                if decision == "advance":
                    guard = replace(guard, steps=guard.steps[1:])
                elif decision != "watching":
                    break
        ends.append((decision, guard.shares[0]))
    return ends, served / n_runs


@pytest.mark.slow
@pytest.mark.statistical
def test_an_equal_candidate_is_seldom_rolled_back_on_its_ramp():
    """Two true nulls share 5 %; p > 1e-3."""
    ends, _ = ramps((0.6, 0.6), (300.0, 400.0), 40)
    n = sum(decision == "rollback" for decision, _ in ends)
    assert binomtest(n, 40, 0.05, "greater").pvalue > 1e-3, n


@pytest.mark.statistical
def test_a_bad_candidate_is_rolled_back_before_many_requests_get_it():
    for means, delays in (((0.7, 0.3), (300.0, 300.0)), ((0.6, 0.6), (300.0, 900.0))):
        ends, n = ramps(means, delays, 12)
        assert sum(decision == "rollback" for decision, _ in ends) >= 11, ends
        assert max(share for _, share in ends) <= 0.25
        assert n < 120, n


def verdicts(means: tuple[float, float], n_runs: int, n_versions: int, per: int) -> list[str]:
    """Return what the guard says in simulated promotions, after all versions."""
    guard = StoredGuard(
        system="bot", agent_type="default",
        seq=1, promoted=NEW, champion=OLD, since=0, alpha=0.05, tolerance=0.0, holdback=0.2,
        decision="watching",
    )  # fmt: skip
    rng, found = np.random.default_rng(5), []
    for _ in range(n_runs):
        seen = np.array([[1.0, 2.0], [1.0, 2.0]])  # sums and numbers of both
        policies, tallies = [], []
        for version in range(1, n_versions + 1):
            estimates = (seen[:, 0] / seen[:, 1]).tolist()
            share = float(np.clip(0.5 + estimates[1] - estimates[0], 0.2, 0.8))
            policies.append(policy_of(version, share, estimates))
            numbers = rng.multinomial(per, [1 - share, share])
            good = rng.binomial(numbers, means)
            for place, name in enumerate((OLD, NEW)):
                for reward, n in ((1.0, good[place]), (0.0, numbers[place] - good[place])):
                    if n:
                        tallies.append(
                            RewardTally(version=version, arm_id=name, reward=reward, n=int(n))
                        )
                seen[place] += good[place], numbers[place]
        found.append(judge(guard, policies, tallies, ARMS).decision)
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("mean", [0.1, 0.5, 0.95])
@pytest.mark.slow
def test_equal_arms_are_seldom_judged(mean: float):
    """Each null is true: either verdict errs with probability 5 % at most; p > 1e-3."""
    found = verdicts((mean, mean), 200, 20, 25)
    for verdict in ("rollback", "confirmed"):
        n = found.count(verdict)
        assert binomtest(n, 200, 0.05, "greater").pvalue > 1e-3, (verdict, n)
