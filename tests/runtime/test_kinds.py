"""Contextual arms, served end to end."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import convergence
from convergence_core.bandit.contextual import ContextualArms
from convergence_core.bandit.features import request_features
from convergence_core.bandit.router import CaseTable, routing_of
from convergence_core.errors import ArmChangedError, ConfigurationError, NoArmsError
from convergence_core.result import CandidateReport, Estimate, LeaderboardRow, RunResult
from tasks.serving import contextual_fold
from tasks.serving.offers import offer_of
from tasks.serving.promotion import offer_routed, put_on_offer
from tasks.serving.settings import RuntimeConfig, read_settings
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import contextual_state
from tests.runtime import requests
from tests.runtime.requests import select, update
from tests.support.bandits import Bandit
from tests.support.results import bare_result

ARMS = [{"arm_id": name, "params": {"n": name}} for name in ("a", "b", "c")]


def configured(path: Path, **settings: object) -> str:
    return requests.configured(path, default_arms=ARMS, seed=4, **settings)


def good(arm: str, language: str) -> float:
    return 0.9 if {"de": "a", "fr": "b"}[language] == arm else 0.2


def test_contextual_arms_learn_which_serves_which_request(tmp_path: Path):
    system = configured(tmp_path, kind="linear")
    rng, hits = np.random.default_rng(0), []
    for number in range(400):
        language, user = ("de", "fr")[number % 2], f"u{number % 5}"
        context = {"language": language, "session_id": "s"}
        found = select(system, user_id=user, context=context)
        assert 0.0 < found.metadata["propensity"] <= 1.0
        reward = float(rng.random() < good(found.arm_id, language))
        update(system, found, user_id=user, reward=reward)
        hits.append(good(found.arm_id, language) > 0.5)
    assert np.mean(hits[:12]) < 0.75
    assert np.mean(hits[-100:]) > 0.85, np.mean(hits[-100:])


def test_contextual_posteriors_are_the_fold_of_the_requests_in_any_process(
    state: RuntimeStore, monkeypatch: pytest.MonkeyPatch
):
    """Also when what was learned is saved on the way, by this version or another, and when an arm comes later."""
    monkeypatch.setattr(contextual_fold, "SAVE_EVERY", 15)
    rng = np.random.default_rng(1)
    state.offer("bot", "default", [offer_of({}, n) for n in "ab"], trust=0.5, kind="linear")
    with state.database.transaction() as connection:
        connection.execute("""UPDATE groups SET state_json = '{"version": 1, "arms": {}}'""")
    settings = RuntimeConfig(system="bot", kind="linear")
    bandits = [Bandit(state, "bot", settings=settings, seed=seed) for seed in (1, 2, 3)]
    reference = ContextualArms([np.nan] * 3, [1.0] * 3)
    for number in range(50):
        if number == 30:
            state.offer("bot", "default", [offer_of({}, "c")], trust=0.5, kind="linear")
        served, user = bandits[number % 2], f"u{number % 3}"
        context: dict[str, float | str] = {"x": float(rng.normal()), "plan": "free"}
        chosen = served.select(user, context={**context, "session_id": "s"})
        reward = float(rng.random())
        served.update(chosen.decision_id, reward)
        reference.tell("abc".index(chosen.arm_id), reward, context, user)
    text, seq = contextual_state(state, 1)
    assert text is not None
    assert seq >= 30
    expected = reference.posterior({"x": 0.3, "plan": "paid"}, "u1")
    group = state.group("bot", "default")
    assert group is not None
    for served in bandits:
        served.select("u0", context={"x": 0.0})
        assert served._contextual is not None
        context = {"x": 0.3, "plan": "paid"}
        posterior = served._contextual.posterior(group, state.arms(1), "u1", context)
        np.testing.assert_allclose(posterior.means, expected.means, rtol=1e-8)
        np.testing.assert_allclose(posterior.sds, expected.sds, rtol=1e-8)
        np.testing.assert_allclose(posterior.propensities, expected.propensities, rtol=1e-6)


def test_one_group_has_arms_of_one_kind(tmp_path: Path):
    system = configured(tmp_path, kind="linear")
    with pytest.raises(ArmChangedError, match="must stay linear"):
        convergence.configure_runtime_sync(
            system, config={"default_arms": ARMS}, storage=tmp_path / "s"
        )
    with pytest.raises(NoArmsError, match="linear arms, whose best depends on the request"):
        convergence.runtime_evidence_sync(system)


QUESTIONS = {
    "law": "contract court statute appeal clause evidence ruling liability",
    "code": "function loop variable import return class compile error",
}


def routed_result(n: int = 120) -> RunResult:
    """Return a run whose candidate `a` is better for law and `b` for code."""
    rng = np.random.default_rng(0)
    topics = rng.integers(2, size=n)
    texts = [" ".join(rng.choice(QUESTIONS[["law", "code"][t]].split(), 12)) for t in topics]
    means = np.where(topics[:, None] == [0, 1], 0.9, 0.2)
    routing = routing_of(
        CaseTable(
            contexts=[request_features({"text": text}) for text in texts],
            candidates=["a", "b"],
            rewards=(rng.random((n, 2)) < means).astype(float),
            groups=[None] * n,
            weights=np.ones(n),
        ),
        rng=rng,
    )
    rows = tuple(
        LeaderboardRow(
            rank=rank, candidate_id=name, label=name, params={"n": name}, mean=0.55, low=0.5, high=0.6,
            cautious=0.5, n_cells=n, n_cases=n, n_failed=0, origin="sample", generation=0,
        )
        for rank, name in enumerate("ab", 1)
    )  # fmt: skip
    return replace(bare_result(), system="bot", leaderboard=rows, routing=routing)


def shares_of(state: RuntimeStore, text: str) -> float:
    """Return the mean propensity of arm `a` for a question."""
    bandit = Bandit(state, "bot", seed=0)
    chosen = [bandit.select("u", context={"text": text, "session_id": "s"}) for _ in range(8)]
    shares = [c.propensity or math.nan for c in chosen]
    return float(
        np.mean([p if c.arm_id == "a" else 1 - p for p, c in zip(shares, chosen, strict=True)])
    )


def test_what_a_run_knows_of_its_cases_routes_the_first_request_and_is_doubted(
    state: RuntimeStore,
):
    result = routed_result()
    assert result.routing is not None
    assert sorted(offer_routed(state, result, result.routing)) == ["a", "b"]
    assert read_settings("bot", state.settings_text("bot")).kind == "linear"
    assert shares_of(state, QUESTIONS["law"]) > 0.7
    assert shares_of(state, QUESTIONS["code"]) < 0.3
    rows = state.fetch("SELECT context_json FROM decisions")
    assert not any("contract" in row[0] for row in rows), "the text is not stored"
    assert all('"session_id":"s"' in row[0] and "text.length" in row[0] for row in rows)
    # Requests say the contrary.
    bandit = Bandit(state, "bot", seed=1)
    for number in range(120):
        topic = ("law", "code")[number % 2]
        chosen = bandit.select("u", context={"text": QUESTIONS[topic]})
        bandit.update(chosen.decision_id, float((chosen.arm_id == "b") == (topic == "law")))
    assert shares_of(state, QUESTIONS["law"]) < 0.1
    # The next night begins with its cases, and with all rewards so far.
    offer_routed(state, result, result.routing)
    assert shares_of(state, QUESTIONS["law"]) < 0.3


def test_a_promotion_tells_linear_arms_what_the_run_knows(state: RuntimeStore):
    result = routed_result()
    state.save_settings("bot", RuntimeConfig(system="bot", kind="linear").model_dump(mode="json"))
    estimate = Estimate(mean=0.6, low=0.5, high=0.7, n_cases=30)
    best = CandidateReport(
        candidate_id="a",
        label="a",
        params={"n": "a"},
        origin="sample",
        generation=0,
        search=estimate,
    )
    assert put_on_offer(state, replace(result, winner=best)) == ("a", None)
    assert [arm.arm_id for arm in state.arms(1)] == ["a", "b"]
    assert shares_of(state, QUESTIONS["law"]) > 0.7


def test_arms_that_are_not_linear_are_not_routed(state: RuntimeStore):
    result = routed_result()
    assert result.routing is not None
    state.save_settings("bot", RuntimeConfig(system="bot", mode="verdict").model_dump(mode="json"))
    with pytest.raises(ConfigurationError, match="mode"):
        offer_routed(state, result, result.routing)
    state.offer("bot", "default", [offer_of({}, "a")], trust=0.5)
    with pytest.raises(ArmChangedError, match="must stay beta"):
        offer_routed(state, result, result.routing)
