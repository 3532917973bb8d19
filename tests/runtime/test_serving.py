"""Requests served: propensities are those in force, evidence is that of fresh decisions."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import convergence
from convergence.runtime.functions import systems_of
from convergence_core.caveats import CASES, TRAFFIC
from convergence_core.errors import ConfigurationError, NoArmsError
from tasks.serving.bandit import Bandit
from tasks.serving.offers import decision_id, offer_of
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.store.runtime.rows import StoredPolicy
from tasks.store.runtime.runtime_store import RuntimeStore

ARMS = [offer_of({"model": name}, name) for name in ("a", "b", "c")]


def bandit(path: Path, settings: RuntimeConfig | None = None, seed: int = 1) -> Bandit:
    store = RuntimeStore(path)
    store.offer("bot", "default", ARMS, trust=0.5)
    return Bandit(store, "bot", settings=settings, seed=seed)


def served(bandit: Bandit, means: dict[str, float], n: int, seed: int = 0) -> dict[str, int]:
    """Serve and reward n requests; return how often each arm served."""
    rng, seen = np.random.default_rng(seed), dict.fromkeys(means, 0)
    for _ in range(n):
        chosen = bandit.select("u")
        seen[chosen.arm_id] += 1
        bandit.update(chosen.decision_id, float(rng.random() < means[chosen.arm_id]))
    return seen


def in_force(bandit: Bandit) -> StoredPolicy:
    """Return the policy that the next request is served by."""
    return bandit._store.policy(1, bandit.select("u").policy_version or 0)


def test_the_better_arm_gets_most_requests(tmp_path: Path):
    seen = served(bandit(tmp_path / "s"), {"a": 0.2, "b": 0.9, "c": 0.3}, 200)
    assert seen["b"] > 130, seen


def test_propensities_are_those_of_the_logged_version(tmp_path: Path):
    system = bandit(tmp_path / "s")
    served(system, {"a": 0.2, "b": 0.6, "c": 0.5}, 30)
    chosen = system.select("u")
    policy = system._store.policies(1)[-1]
    place = policy.arms.index(chosen.arm_id)
    assert chosen.propensity == policy.shares[place]
    assert sum(policy.shares) == pytest.approx(1.0)
    assert min(policy.shares) >= 0.02 / 3 - 1e-12, "the floor"


def test_a_second_process_serves_by_the_same_version(tmp_path: Path):
    first = bandit(tmp_path / "s")
    served(first, {"a": 0.2, "b": 0.6, "c": 0.5}, 20)
    version = first.select("u").policy_version
    other = Bandit(RuntimeStore(tmp_path / "s"), "bot", seed=9)
    assert other.select("u").policy_version == version


def test_same_seed_and_same_rewards_make_the_same_choices(tmp_path: Path):
    runs = []
    for name in ("one", "two"):
        system = bandit(tmp_path / name, seed=5)
        runs.append([system.select("u").arm_id for _ in range(20)])
    assert runs[0] == runs[1]


def test_evidence_of_both_modes_leads_to_the_right_winner(tmp_path: Path):
    for mode in ("regret", "verdict"):
        system = bandit(tmp_path / mode, RuntimeConfig(system="bot", mode=mode, floor=0.3))
        for block in range(8):
            served(system, {"a": 0.1, "b": 0.9, "c": 0.2}, 60, seed=block)
            if system.evidence().winner is not None:
                break
        found = system.evidence()
        assert found.winner == "b", (mode, found)
        assert found.n_to_verdict == 0
        assert sum(found.numbers) == 60 * (block + 1)
        assert found.regret > 0


def test_after_the_verdict_the_winner_serves_and_the_floor_goes_to_the_others(tmp_path: Path):
    system = bandit(tmp_path / "s", RuntimeConfig(system="bot", mode="verdict", floor=0.06))
    for block in range(20):
        served(system, {"a": 0.1, "b": 0.9, "c": 0.2}, 60, seed=block)
        if system.evidence().winner is not None:
            break
    assert system.evidence().winner == "b"
    served(system, {"a": 0.1, "b": 0.9, "c": 0.2}, 60, seed=99)  # a version made after it
    found = in_force(system)
    shares = dict(zip(found.arms, found.shares, strict=True))
    assert shares == pytest.approx({"a": 0.02, "b": 0.96, "c": 0.02})


def test_a_winner_is_shown_with_what_it_takes_for_granted(tmp_path: Path):
    system = bandit(tmp_path / "s", RuntimeConfig(system="bot", floor=0.3))
    assert system.evidence().sentence == "no winner yet"
    for block in range(20):
        served(system, {"a": 0.1, "b": 0.9, "c": 0.2}, 60, seed=block)
        if system.evidence().winner is not None:
            break
    found = system.evidence()
    assert found.caveat == TRAFFIC
    assert found.sentence == f"b is the winner. {TRAFFIC}"
    for word in ("delay", "wanders", "bursts", "clusters"):
        assert word in TRAFFIC
    page = (Path(__file__).parents[2] / "docs/runtime.md").read_text(encoding="utf-8")
    assert " ".join(TRAFFIC.split()) in " ".join(page.split())
    assert " ".join(CASES.split()) in " ".join(page.split())


def test_arms_come_and_go_live(tmp_path: Path):
    system = bandit(tmp_path / "s")
    served(system, {"a": 0.2, "b": 0.6, "c": 0.5}, 20)
    system._store.retire("bot", "default", "b")
    system._store.offer("bot", "default", [offer_of({"model": "d"}, "d")], trust=0.5)
    seen = served(system, {"a": 0.2, "c": 0.5, "d": 0.9}, 60)
    assert seen["d"] > 20, seen
    assert system.evidence().arms == ("a", "b", "c", "d")


def test_users_keep_their_arm(tmp_path: Path):
    system = bandit(tmp_path / "s", RuntimeConfig(system="bot", sticky="user"))
    first = system.select("u")
    assert first.fresh
    for _ in range(10):
        again = system.select("u")
        assert (again.arm_id, again.propensity) == (first.arm_id, first.propensity)
        assert not again.fresh


def test_sessions_keep_their_arm_and_requests_without_one_do_not(tmp_path: Path):
    system = bandit(tmp_path / "s", RuntimeConfig(system="bot", sticky="session"))
    arms = {system.select("u", context={"session_id": "x"}).arm_id for _ in range(8)}
    assert len(arms) == 1
    assert len({system.select("u").arm_id for _ in range(30)}) > 1


def test_after_an_alarm_requests_are_spread(tmp_path: Path):
    system = bandit(tmp_path / "s")
    system._store.save_settings("bot", {"rewards_per_false_alarm": 2_000})
    served(system, {"a": 0.05, "b": 1.0, "c": 0.05}, 80)
    told = None
    for _ in range(200):
        chosen = system.select("u")
        told = system.update(chosen.decision_id, 0.0).alarm or told
        if told:
            break
    assert told is not None
    assert re.search(r"from (1|0\.\d+) to 0", told)
    shares = in_force(system).shares
    assert min(shares) >= 0.2 / 3 - 1e-9


def test_nothing_on_offer_is_refused(tmp_path: Path):
    store = RuntimeStore(tmp_path / "s")
    with pytest.raises(NoArmsError, match="nothing is on offer"):
        Bandit(store, "bot").select("u")
    store.offer("bot", "default", ARMS[:1], trust=0.5)
    store.retire("bot", "default", "a")
    with pytest.raises(NoArmsError, match="retired"):
        Bandit(store, "bot").select("u")
    with pytest.raises(NoArmsError, match="two arms"):
        Bandit(store, "bot").evidence()


def test_decision_ids_are_uuids_of_version_7_that_sort_by_time():
    early, late = decision_id(1_700_000_000_000_000), decision_id(1_700_000_000_002_000)
    assert early < late
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", early
    )
    assert int(early.replace("-", "")[:12], 16) == 1_700_000_000_000


CONFIG = {
    "default_arms": [
        {"params": {"model": "small"}},
        {"params": {"model": "large"}, "arm_id": "l"},
    ],
    "reward_metrics": [{"name": "quality", "weight": 0.8}, {"name": "speed", "weight": 0.2}],
    "seed": 3,
}


@pytest.fixture
def system(tmp_path: Path) -> str:
    name = f"bot {tmp_path.name}"
    convergence.configure_runtime_sync(name, config=CONFIG, storage=tmp_path / "s")
    return name


def test_a_request_is_served_and_its_reward_learned(system: str):
    chosen = convergence.runtime_select_sync(system, user_id="u", context={"language": "de"})
    assert chosen.params["model"] in {"small", "large"}
    assert 0.0 < chosen.metadata["propensity"] <= 1.0
    assert {arm["n"] for arm in chosen.arms_state} == {0}
    answer = convergence.runtime_update_sync(
        system, user_id="u", decision_id=chosen.decision_id, signals={"quality": 1.0, "speed": 0.5}
    )
    assert answer["reward"] == pytest.approx(0.9)
    assert answer["computed_update"] == pytest.approx({"alpha": 0.9, "beta": 0.1})
    assert (answer["success"], answer["status"]) == (True, "ok")
    found = convergence.runtime_get_decision_sync(
        system, user_id="u", decision_id=str(chosen.decision_id)
    )
    assert found is not None
    assert found["reward"] == pytest.approx(0.9)
    assert (
        convergence.runtime_get_decision_sync(
            system, user_id="another", decision_id=str(chosen.decision_id)
        )
        is None
    )


def test_the_async_functions_do_the_same(system: str):
    import asyncio

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
        ({}, None),
    ],
)
def test_which_number_is_the_reward(system: str, given: dict[str, float], expected: float | None):
    chosen = convergence.runtime_select_sync(system, user_id="u")
    answer = convergence.runtime_update_sync(
        system,
        user_id="u",
        decision_id=chosen.decision_id,
        **given,  # type: ignore[arg-type]
    )
    assert answer["reward"] == expected
    assert answer["status"] == ("none" if expected is None else "ok")


def test_what_is_told_beside_a_reward_is_stored(system: str):
    chosen = convergence.runtime_select_sync(system, user_id="u")
    convergence.runtime_update_sync(
        system, user_id="u", decision_id=chosen.decision_id, signals={"quality": 1.0},
        grading_score=0.7, metadata={"ticket": 12},
    )  # fmt: skip
    store = systems_of(system).store
    with store.database.reading() as connection:
        (text,) = connection.execute("SELECT details_json FROM rewards").fetchone()
    assert json.loads(text) == {
        "grading_score": 0.7,
        "metadata": {"ticket": 12},
        "signals": {"quality": 1.0},
    }


def test_settings_hold_for_every_process_that_serves(system: str, tmp_path: Path):
    with RuntimeStore(tmp_path / "s") as other:
        served = Bandit(other, system)
        assert served.settings.mode == "regret"
        convergence.configure_runtime_sync(
            system, config={**CONFIG, "mode": "verdict", "alpha": 0.01}, storage=tmp_path / "s"
        )
        convergence.runtime_select_sync(system, user_id="u")
        again = Bandit(other, system)
        assert (again.settings.mode, again.settings.alpha) == ("verdict", 0.01)
        # Whoever gives no settings serves by those that are kept.
        known = convergence.configure_runtime_sync(system, storage=tmp_path / "s")
        assert (known.mode, known.alpha) == ("verdict", 0.01)


def test_another_users_decision_is_unknown(system: str):
    chosen = convergence.runtime_select_sync(system, user_id="u")
    answer = convergence.runtime_update_sync(
        system, user_id="other", decision_id=chosen.decision_id, reward=1.0
    )
    assert (answer["success"], answer["status"]) == (False, "unknown")


def test_signals_out_of_range_are_refused(system: str):
    chosen = convergence.runtime_select_sync(system, user_id="u")
    with pytest.raises(ValueError, match=r"signals\.quality"):
        convergence.runtime_update_sync(
            system, user_id="u", decision_id=chosen.decision_id, signals={"quality": 2.0}
        )


def test_too_few_arms_serve_the_default_and_learn_nothing(tmp_path: Path):
    config = RuntimeConfig(system="few", default_arms=(RuntimeArm(params={"x": 1}),), min_arms=2)
    convergence.configure_runtime_sync("few", config=config, storage=tmp_path / "s")
    chosen = convergence.runtime_select_sync("few", user_id="u")
    assert (chosen.decision_id, chosen.params) == (None, {"x": 1})
    assert chosen.metadata == {"fallback": True}
    answer = convergence.runtime_update_sync("few", user_id="u", decision_id=None, reward=1.0)
    assert answer["success"] is False


def test_a_nightly_prior_is_shown_and_serves_first(tmp_path: Path):
    arms = [
        {"params": {"m": 1}, "arm_id": "good", "prior_mean": 0.9, "prior_sd": 0.05},
        {"params": {"m": 2}, "arm_id": "poor", "prior_mean": 0.3, "prior_sd": 0.05},
    ]
    convergence.configure_runtime_sync(
        "warm", config={"default_arms": arms, "seed": 1}, storage=tmp_path / "s"
    )
    chosen = [convergence.runtime_select_sync("warm", user_id="u") for _ in range(40)]
    assert sum(c.arm_id == "good" for c in chosen) > 22
    prior = chosen[0].arms_state[0]["prior"]
    assert prior == {"mean": 0.9, "sd": 0.05, "weight": pytest.approx(20.0)}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"mode": "fast"}, "mode"),
        ({"unknown": 1}, "unknown"),
        ({"system": "other"}, "must be the name"),
        ({"default_arms": [{"params": {}, "prior_mean": 0.5}]}, "prior_sd"),
    ],
)
def test_wrong_settings_are_refused_by_name(tmp_path: Path, config: dict[str, object], words: str):
    with pytest.raises(ConfigurationError, match=words):
        convergence.configure_runtime_sync("wrong", config=config, storage=tmp_path / "s")
