"""A storage of the caller's own: version 0.1's protocol serves and learns, or is refused by name."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convergence
from convergence.runtime.custom_storage import RuntimeStorage
from convergence_core.bandit.propensities import of_beta
from convergence_core.errors import ConfigurationError, NoArmsError, WrongUserError

ARMS = [{"arm_id": "good", "params": {"t": 0.2}}, {"arm_id": "bad", "params": {"t": 0.9}}]


class Memory:
    """Keeps all in this process; ``learns=False``: rewards reach no arm."""

    def __init__(self, *, learns: bool = True) -> None:
        self.learns = learns
        self.arms: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self.decisions: dict[str, dict[str, Any]] = {}
        self.loops: set[int] = set()

    async def get_arms(self, *, user_id: str, agent_type: str) -> list[dict[str, Any]]:
        self.loops.add(id(asyncio.get_running_loop()))
        return list(self.arms.get((user_id, agent_type), {}).values())

    async def initialize_arms(self, *, user_id: str, agent_type: str, arms: Any) -> None:
        self.arms[user_id, agent_type] = {arm["arm_id"]: dict(arm) for arm in arms}

    async def create_decision(self, *, user_id: str, agent_type: str, arm_pulled: str,
                              strategy_params: Any, arms_snapshot: Any, metadata: Any = None) -> Any:  # fmt: skip
        name = f"d{len(self.decisions)}"
        self.decisions[name] = {
            "decision_id": name, "user_id": user_id, "agent_type": agent_type, "arm": arm_pulled,
            "params": strategy_params, "arms": arms_snapshot, "metadata": metadata,
        }  # fmt: skip
        return {"decision_id": name}

    async def update_performance(self, *, user_id: str, agent_type: str, decision_id: str, reward: float,
                                 engagement: Any = None, grading: Any = None, metadata: Any = None,
                                 computed_update: Any = None) -> None:  # fmt: skip
        decision = self.decisions[decision_id]
        decision |= {"reward": reward, "engagement": engagement, "told": metadata}
        if self.learns:
            arm = self.arms[user_id, agent_type][decision["arm"]]
            arm["alpha"] += computed_update["alpha"]
            arm["beta"] += computed_update["beta"]

    async def get_decision(self, *, user_id: str, decision_id: str) -> Any:
        found = self.decisions.get(decision_id)
        return found if found is not None and found["user_id"] == user_id else None


async def configure(storage: Any, **config: Any) -> None:
    settings = {"default_arms": ARMS, "seed": 3, **config}
    await convergence.configure_runtime("own", config=settings, storage=storage)


async def share_of_good(storage: Memory, n: int) -> float:
    """Serve so many requests; return how often the good arm served in the last half."""
    await configure(storage)
    rng, chosen = np.random.default_rng(0), []
    for _ in range(n):
        found = await convergence.runtime_select("own", user_id="u")
        reward = float(rng.random() < (0.8 if found.arm_id == "good" else 0.3))
        answer = await convergence.runtime_update(
            "own", user_id="u", decision_id=found.decision_id, reward=reward
        )
        assert answer["status"] == "ok"
        chosen.append(found.arm_id == "good")
    return float(np.mean(chosen[n // 2 :]))


@pytest.mark.statistical
def test_it_learns_what_the_storage_is_told_and_nothing_where_rewards_are_lost():
    memory = Memory()
    assert isinstance(memory, RuntimeStorage)
    assert asyncio.run(share_of_good(memory, 200)) > 0.9
    # Every reward is in exactly one arm.
    arms = memory.arms["u", "default"].values()
    assert sum(arm["alpha"] + arm["beta"] - 2.0 for arm in arms) == pytest.approx(200)
    assert 0.3 < asyncio.run(share_of_good(Memory(learns=False), 200)) < 0.7


def test_decisions_are_kept_with_their_exact_propensity_and_the_arms_as_they_were():
    async def go() -> None:
        memory = Memory()
        await configure(memory, floor=0.1)
        await memory.initialize_arms(
            user_id="u", agent_type="default",
            arms=[{**ARMS[0], "alpha": 8.0, "beta": 2.0}, {**ARMS[1], "alpha": 3.0, "beta": 5.0}],
        )  # fmt: skip
        found = await convergence.runtime_select("own", user_id="u", context={"hour": 9})
        kept = memory.decisions[str(found.decision_id)]
        p = 0.9 * of_beta([8.0, 3.0], [2.0, 5.0]) + 0.05
        names = [arm["arm_id"] for arm in ARMS]
        assert kept["metadata"]["propensity"] == pytest.approx(p[names.index(kept["arm"])])
        assert kept["metadata"]["context"] == {"hour": 9}
        assert [arm["mean"] for arm in kept["arms"]] == pytest.approx([0.8, 3 / 8])
        assert found.params == kept["params"] == {"t": 0.2 if kept["arm"] == "good" else 0.9}
        assert 0 < float(found.sampled_value or 0) < 1
        assert await convergence.runtime_get_decision(
            "own", user_id="u", decision_id=str(found.decision_id)
        ) is kept  # fmt: skip

    asyncio.run(go())


def test_users_and_kinds_of_agents_have_arms_of_their_own_in_the_callers_loop():
    async def go() -> None:
        memory = Memory()
        await configure(memory)
        for user, kind in (("u", None), ("v", None), ("u", "helper")):
            await convergence.runtime_select("own", user_id=user, agent_type=kind)
        assert set(memory.arms) == {("u", "default"), ("v", "default"), ("u", "helper")}
        assert memory.loops == {id(asyncio.get_running_loop())}

    asyncio.run(go())


def test_a_reward_is_told_once_and_no_reward_is_no_reward():
    async def go() -> None:
        memory = Memory()
        await configure(memory, reward_metrics=[{"name": "solved", "weight": 1}])
        found = await convergence.runtime_select("own", user_id="u")

        async def told(**what: Any) -> dict[str, Any]:
            return await convergence.runtime_update(
                "own", **{"user_id": "u", "decision_id": found.decision_id, **what}
            )

        assert (await told())["status"] == "none"
        assert (await told(decision_id="d99", reward=1.0))["status"] == "unknown"
        with pytest.raises(WrongUserError, match="served, but got 'w'"):
            await told(user_id="w", reward=1.0)
        with pytest.raises(ValueError, match="another process made it"):
            await told(user_id=None, decision_id="d99", reward=1.0)
        unnamed = await convergence.runtime_select("own", user_id="v")
        again = await told(user_id=None, decision_id=unnamed.decision_id, reward=1.0)
        assert again["status"] == "ok"
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            await told(reward=1.5)
        with pytest.raises(ValueError, match="cost"):
            await told(reward=1.0, cost=0.1)
        first = await told(signals={"solved": 0.25}, metadata={"a": 1}, engagement_score=0.5)
        assert (first["status"], first["reward"]) == ("ok", 0.25)
        assert first["computed_update"] == {"alpha": 0.25, "beta": 0.75}
        assert memory.decisions[str(found.decision_id)]["told"] == {"a": 1}
        assert (await told(reward=0.25))["status"] == "duplicate"
        assert (await told(reward=0.5))["status"] == "conflict"
        arms = memory.arms["u", "default"].values()
        assert sum(arm["alpha"] + arm["beta"] for arm in arms) == 5.0

    asyncio.run(go())


def test_the_twins_of_every_function_work_without_a_loop():
    memory = Memory()
    convergence.configure_runtime_sync("own", config={"default_arms": ARMS}, storage=memory)
    found = convergence.runtime_select_sync("own", user_id="u")
    decision = str(found.decision_id)
    answer = convergence.runtime_update_sync("own", user_id="u", decision_id=decision, reward=1.0)
    assert answer["success"]
    kept = convergence.runtime_get_decision_sync("own", user_id="u", decision_id=decision)
    assert kept is not None
    assert kept["reward"] == 1.0
    bred = convergence.runtime_evolve_arms_sync("own", user_id="u", top_n=2)
    assert all(arm.params not in [one["params"] for one in ARMS] for arm in bred)
    assert all(0.2 <= float(str(arm.params["t"])) <= 0.9 for arm in bred)


def test_without_enough_arms_the_first_default_serves_and_nothing_is_kept():
    class Forgetful(Memory):
        async def initialize_arms(self, **_: Any) -> None:
            return None

    async def go() -> None:
        memory = Forgetful()
        await configure(memory)
        found = await convergence.runtime_select("own", user_id="u")
        assert (found.decision_id, found.arm_id) == (None, "good")
        assert found.metadata == {"fallback": True}
        assert memory.decisions == {}
        answer = await convergence.runtime_update("own", user_id="u", decision_id=None, reward=1.0)
        assert answer["status"] == "none"
        await configure(memory, default_arms=[])
        with pytest.raises(NoArmsError, match="no default"):
            await convergence.runtime_select("own", user_id="u")

    asyncio.run(go())


def test_objects_and_storages_without_computed_updates_are_served_as_well():
    @dataclass
    class Arm:
        arm_id: str
        params: dict[str, Any]
        alpha: float = 1.0
        beta: float = 1.0

    class Older(Memory):
        async def get_arms(self, *, user_id: str, agent_type: str) -> Any:
            return [Arm("one", {"t": 1})]

        async def create_decision(self, **of: Any) -> str:
            return str((await super().create_decision(**of))["decision_id"])

        async def update_performance(  # type: ignore[override]  # as older ones have it
            self, *, user_id: str, agent_type: str, decision_id: str, reward: float,
            engagement: Any = None, grading: Any = None, metadata: Any = None,
        ) -> None:  # fmt: skip
            self.decisions[decision_id]["reward"] = reward

    async def go() -> None:
        memory = Older()
        await configure(memory)
        found = await convergence.runtime_select("own", user_id="u")
        assert found.arm_id == "one"
        await convergence.runtime_update(
            "own", user_id="u", decision_id=found.decision_id, reward=0.5
        )
        assert memory.decisions[str(found.decision_id)]["reward"] == 0.5

    asyncio.run(go())


def test_an_arm_that_is_none_is_refused_by_name():
    class Broken(Memory):
        async def get_arms(self, *, user_id: str, agent_type: str) -> Any:
            return [{"arm_id": "a", "params": {}, "alpha": -1.0}]

    async def go() -> None:
        await configure(Broken())
        with pytest.raises(ValueError, match="`alpha`"):
            await convergence.runtime_select("own", user_id="u")

    asyncio.run(go())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "verdict"),
        ("sticky", "user"),
        ("rewards_per_false_alarm", 1000),
        ("kind", "gaussian"),
        ("discount", 0.9),
    ],
)
def test_what_needs_the_store_is_refused(key: str, value: Any):
    with pytest.raises(ConfigurationError, match=key):
        asyncio.run(configure(Memory(), **{key: value}))


def test_nightly_priors_evidence_and_what_is_no_storage_are_refused(tmp_path: Path):
    arms = [{**ARMS[0], "prior_mean": 0.5, "prior_sd": 0.1}]
    with pytest.raises(ConfigurationError, match="prior_mean"):
        asyncio.run(configure(Memory(), default_arms=arms))
    with pytest.raises(ConfigurationError, match="get_arms"):
        asyncio.run(configure(object()))
    asyncio.run(configure(Memory()))
    with pytest.raises(ConfigurationError, match="folder"):
        convergence.runtime_evidence_sync("own")
    # A store takes over where a folder is given.
    convergence.configure_runtime_sync("own", config={"default_arms": ARMS}, storage=tmp_path)
    assert convergence.runtime_select_sync("own", user_id="u").metadata["propensity"]
