"""Requests served: propensities are those in force, evidence is that of fresh decisions."""

import asyncio
import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import convergence
from convergence_core.caveats import CASES, TRAFFIC
from tasks.serving.offers import decision_id, offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime.rows import StoredPolicy
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.runtime.requests import configured, select, update
from tests.support.bandits import Bandit

ARMS = [offer_of({"model": name}, name) for name in ("a", "b", "c")]
BEST_IS_B = {"a": 0.1, "b": 0.9, "c": 0.2}


def bandit(path: Path, seed: int = 1, **settings: object) -> Bandit:
    store = RuntimeStore(path)
    store.offer("bot", "default", ARMS, trust=0.5)
    config = RuntimeConfig.model_validate({"system": "bot", **settings})
    return Bandit(store, "bot", settings=config, seed=seed)


def served(bandit: Bandit, means: dict[str, float], n: int, seed: int = 0) -> dict[str, int]:
    """Serve and reward n requests; return how often each arm served."""
    rng, seen = np.random.default_rng(seed), dict.fromkeys(means, 0)
    for _ in range(n):
        chosen = bandit.select("u")
        seen[chosen.arm_id] += 1
        bandit.update(chosen.decision_id, float(rng.random() < means[chosen.arm_id]))
    return seen


def served_until_a_winner(bandit: Bandit, n_blocks: int) -> int:
    """Serve blocks of 60 requests of which b is the best; return how many."""
    for block in range(n_blocks):
        served(bandit, BEST_IS_B, 60, seed=block)
        if bandit.evidence().winner is not None:
            break
    return block + 1


def in_force(bandit: Bandit) -> StoredPolicy:
    """Return the policy that the next request is served by."""
    return bandit.store.policy(1, bandit.select("u").policy_version or 0)


def test_propensities_are_those_of_the_logged_version(tmp_path: Path):
    system = bandit(tmp_path / "s")
    served(system, {"a": 0.2, "b": 0.6, "c": 0.5}, 30)
    chosen = system.select("u")
    policy = system.store.policies(1)[-1]
    assert chosen.propensity == policy.shares[policy.arms.index(chosen.arm_id)]
    assert sum(policy.shares) == pytest.approx(1.0)
    assert min(policy.shares) >= 0.02 / 3 - 1e-12, "the floor"
    other = Bandit(RuntimeStore(tmp_path / "s"), "bot", seed=9)
    assert other.select("u").policy_version == chosen.policy_version, "of another process"


def test_same_seed_and_same_rewards_make_the_same_choices(tmp_path: Path):
    systems = [bandit(tmp_path / name, seed=5) for name in ("one", "two")]
    one, two = ([system.select("u").arm_id for _ in range(20)] for system in systems)
    assert one == two


@pytest.mark.parametrize("mode", ["regret", "verdict"])
def test_evidence_of_both_modes_leads_to_the_right_winner(tmp_path: Path, mode: str):
    system = bandit(tmp_path / "s", mode=mode, floor=0.3)
    assert system.evidence().sentence == "no winner yet"
    n_blocks = served_until_a_winner(system, 8)
    found = system.evidence()
    assert found.winner == "b", found
    assert found.n_to_verdict == 0
    assert sum(found.numbers) == 60 * n_blocks
    assert found.regret > 0
    assert found.caveat == TRAFFIC
    assert found.sentence == f"b is the winner. {TRAFFIC}"


def test_what_a_winner_takes_for_granted_is_documented():
    for word in ("missing", "wanders", "bursts", "clusters"):
        assert word in TRAFFIC
    page = (Path(__file__).parents[2] / "docs/runtime.md").read_text(encoding="utf-8")
    assert " ".join(TRAFFIC.split()) in " ".join(page.split())
    assert " ".join(CASES.split()) in " ".join(page.split())


def test_after_the_verdict_the_winner_serves_and_the_floor_goes_to_the_others(tmp_path: Path):
    system = bandit(tmp_path / "s", mode="verdict", floor=0.06)
    served_until_a_winner(system, 20)
    assert system.evidence().winner == "b"
    served(system, BEST_IS_B, 60, seed=99)  # a version made after it
    found = in_force(system)
    shares = dict(zip(found.arms, found.shares, strict=True))
    assert shares == pytest.approx({"a": 0.02, "b": 0.96, "c": 0.02})


def test_users_keep_their_arm(tmp_path: Path):
    system = bandit(tmp_path / "s", sticky="user")
    first = system.select("u")
    assert first.fresh
    for _ in range(10):
        again = system.select("u")
        assert (again.arm_id, again.propensity) == (first.arm_id, first.propensity)
        assert not again.fresh


def test_sessions_keep_their_arm_and_requests_without_one_do_not(tmp_path: Path):
    system = bandit(tmp_path / "s", sticky="session")
    arms = {system.select("u", context={"session_id": "x"}).arm_id for _ in range(8)}
    assert len(arms) == 1
    assert len({system.select("u").arm_id for _ in range(30)}) > 1


def test_decision_ids_are_uuids_of_version_7_that_sort_by_time():
    early, late = decision_id(1_700_000_000_000_000), decision_id(1_700_000_000_002_000)
    assert early < late
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", early
    )
    assert int(early.replace("-", "")[:12], 16) == 1_700_000_000_000


@pytest.fixture
def system(tmp_path: Path) -> str:
    return configured(
        tmp_path,
        default_arms=[
            {"params": {"model": "small"}},
            {"params": {"model": "large"}, "arm_id": "l"},
        ],
        reward_metrics=[{"name": "quality", "weight": 0.8}, {"name": "speed", "weight": 0.2}],
        seed=3,
    )


def test_a_request_is_served_and_its_reward_learned(system: str):
    chosen = select(system, context={"language": "de"})
    assert chosen.params["model"] in {"small", "large"}
    assert 0.0 < chosen.metadata["propensity"] <= 1.0
    assert {arm["n"] for arm in chosen.arms_state} == {0}
    answer = update(system, chosen, signals={"quality": 1.0, "speed": 0.5})
    assert answer["reward"] == pytest.approx(0.9)
    assert answer["computed_update"] == pytest.approx({"alpha": 0.9, "beta": 0.1})
    assert (answer["success"], answer["status"]) == (True, "ok")
    of_id = {"decision_id": str(chosen.decision_id)}
    found = convergence.runtime_get_decision_sync(system, user_id="u", **of_id)
    assert found is not None
    assert found["reward"] == pytest.approx(0.9)
    assert convergence.runtime_get_decision_sync(system, user_id="another", **of_id) is None


def test_a_default_arm_that_was_retired_serves_no_more(system: str):
    first, second = (arm["arm_id"] for arm in convergence.runtime_arms_sync(system))
    convergence.runtime_retire_arm_sync(system, first)
    assert {select(system).arm_id for _ in range(5)} == {second}
    convergence.runtime_retire_arm_sync(system, second)
    with pytest.raises(LookupError, match="are retired"):
        select(system)
    arm = {"arm_id": second, "params": {"model": "large"}}
    convergence.runtime_offer_arms_sync(system, [arm])
    assert select(system).arm_id == second


def test_the_async_functions_do_the_same(system: str):
    async def serve() -> dict[str, object]:
        chosen = await convergence.runtime_select(system, user_id="u")
        return await convergence.runtime_update(
            system, user_id="u", decision_id=chosen.decision_id, reward=1.0
        )

    assert asyncio.run(serve())["status"] == "ok"
    assert asyncio.run(convergence.runtime_evidence(system))["winner"] is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"reward": 0.3}, 0.3),
        ({"engagement_score": 0.4}, 0.4),
        ({"reward": 0.3, "engagement_score": 0.4}, 0.3),
        ({"signals": {"quality": 0.5}, "reward": 0.3}, 0.5),
        ({"signals": {"other": 0.5}, "reward": 0.3}, 0.3),
        ({"reward": True}, 1.0),
        ({"engagement_score": False}, 0.0),
        ({"signals": {"quality": True}}, 1.0),
        ({"reward": Decimal("0.3"), "cost": Decimal("0.01")}, 0.3),
        ({"reward": np.float32(0.5), "metadata": {"n": np.int64(3)}}, 0.5),
        ({"signals": {"quality": np.float32(0.5)}}, 0.5),
        ({}, None),
    ],
)
def test_which_number_is_the_reward(system: str, given: dict[str, float], expected: float | None):
    answer = update(system, select(system), **given)
    assert answer["reward"] == expected
    assert answer["status"] == ("none" if expected is None else "ok")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"reward": "0.5"}, '`reward` must be a number, but got "0.5"'),
        ({"reward": 0.5, "cost": True}, "`cost` must be a number, but got true"),
        ({"reward": 10**400}, "`reward` must be a finite number"),
        ({"reward": np.nan}, "`reward` is nan, not a finite number"),
        ({"signals": {"quality": "good"}}, "`quality` must be a number"),
        ({"reward": 0.5, "metadata": {"a": {1}}}, "`metadata.a` is of type builtins.set"),
    ],
)
def test_a_reward_that_is_no_number_is_refused_by_name(system: str, given, reason: str):
    chosen = select(system, context={"size": np.float32(2), "price": Decimal("3.10")})
    with pytest.raises(ValueError, match=reason):
        update(system, chosen, **given)
    assert update(system, chosen, reward=0.5)["status"] == "ok"


@pytest.mark.parametrize("user_id", [7, np.int64(7), UUID(int=7)])
def test_a_users_id_from_a_database_is_its_text(system: str, user_id: Any):
    chosen = convergence.runtime_select_sync(system, user_id=user_id)
    known = {"user_id": user_id, "decision_id": chosen.decision_id or ""}
    assert convergence.runtime_update_sync(system, **known, reward=1.0)["status"] == "ok"
    decision = convergence.runtime_get_decision_sync(system, **known)
    assert decision is not None
    assert decision["user_id"] == str(user_id)


@pytest.mark.parametrize("user_id", [None, True, 7.5, b"7"])
def test_other_values_are_no_users_ids(system: str, user_id: Any):
    with pytest.raises(ValueError, match="`user_id` must be a string, an integer or a UUID"):
        convergence.runtime_select_sync(system, user_id=user_id)


@pytest.mark.parametrize("user_id", ["", "a\n", "a" * 201, "\ud800"])
def test_users_ids_that_http_refuses_are_refused_in_python(system: str, user_id: str):
    with pytest.raises(ValueError, match="`user_id` must have 1 to 200 characters"):
        convergence.runtime_select_sync(system, user_id=user_id)


def test_a_nightly_prior_is_shown_and_serves_first(tmp_path: Path):
    arms = [
        {"params": {"m": 1}, "arm_id": "good", "prior_mean": 0.9, "prior_sd": 0.05},
        {"params": {"m": 2}, "arm_id": "poor", "prior_mean": 0.3, "prior_sd": 0.05},
    ]
    system = configured(tmp_path, default_arms=arms, seed=1)
    chosen = [select(system) for _ in range(40)]
    assert sum(c.arm_id == "good" for c in chosen) > 22
    prior = chosen[0].arms_state[0]["prior"]
    assert prior == {"mean": 0.9, "sd": 0.05, "weight": pytest.approx(20.0)}


def test_a_decision_is_named_by_a_uuid_too(system: str):
    chosen = select(system)
    name = UUID(str(chosen.decision_id))
    assert convergence.runtime_update_sync(system, decision_id=name, reward=0.5)["status"] == "ok"
    found = convergence.runtime_get_decision_sync(system, user_id="u", decision_id=name)
    assert found is not None
    assert found["reward"] == 0.5
    with pytest.raises(ValueError, match=r"`decision_id` must be a string, an integer or a UUID"):
        convergence.runtime_update_sync(system, decision_id=1.5, reward=0.5)  # type: ignore[arg-type]
