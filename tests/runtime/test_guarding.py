"""The guard in production: it brings the champion back, or confirms, and seldom errs."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from convergence_core.caveats import TRAFFIC
from tasks.serving.bandit import Bandit
from tasks.serving.fold import fold_store
from tasks.serving.guard import judge, look
from tasks.serving.offers import offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime.promotions import champion_of, looks, set_champion
from tasks.store.runtime.rows import Champion, RewardTally, StoredArm, StoredGuard, StoredPolicy
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard, begin_guard, guards

OLD, NEW = "old", "new"


def champion(name: str) -> Champion:
    return Champion(
        system="bot", candidate_id=name, params={"n": name}, run_id=None, reason="promoted",
        created_us=1,
    )  # fmt: skip


def promoted(path: Path, *, tolerance: float = 0.0, holdback: float = 0.3) -> RuntimeStore:
    store = RuntimeStore(path)
    offers = [offer_of({"n": name}, name) for name in (OLD, NEW)]
    group = store.offer("bot", "default", offers, trust=0.5)
    for name in (OLD, NEW):
        set_champion(store, champion(name))
    begin_guard(
        store, group.group_id, promoted=NEW, champion=OLD, alpha=0.05, tolerance=tolerance,
        holdback=holdback,
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
        assert "promoted new against old: rollback after" in found.sentence
        assert found.sentence.endswith(TRAFFIC)
        back = champion_of(store, "bot")
        assert back is not None
        assert (back.candidate_id, back.reason) == (OLD, "rollback from new by the guard")
        assert [arm.is_retired for arm in store.arms(1)] == [False, True]
        assert active_guard(store, 1) is None
        assert [one.decision for one in guards(store, 1)] == ["rollback"]
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
        assert share[OLD] >= 0.25 * 0.8, share


def verdicts(means: tuple[float, float], n_runs: int, n_versions: int, per: int) -> list[str]:
    """Return what the guard says in simulated promotions, after all versions."""
    arms = [
        StoredArm(
            arm_id=name, params={}, prior=None, base_alpha=1, base_beta=1, alpha=1,
            beta=1, n=1, run_id=None, is_retired=False,
        )
        for name in (OLD, NEW)
    ]  # fmt: skip
    guard = StoredGuard(
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
            policies.append(
                StoredPolicy(
                    version=version, mode="regret", n=0, arms=(OLD, NEW),
                    shares=(1 - share, share), design={"means": estimates},
                )
            )  # fmt: skip
            numbers = rng.multinomial(per, [1 - share, share])
            good = rng.binomial(numbers, means)
            for place, name in enumerate((OLD, NEW)):
                for reward, n in ((1.0, good[place]), (0.0, numbers[place] - good[place])):
                    if n:
                        tallies.append(
                            RewardTally(version=version, arm_id=name, reward=reward, n=int(n))
                        )
                seen[place] += good[place], numbers[place]
        found.append(judge(guard, policies, tallies, arms).decision)
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
