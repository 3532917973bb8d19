"""Contextual arms, served end to end."""

from pathlib import Path

import numpy as np
import pytest

import convergence
from convergence_core.bandit.contextual import ContextualArms
from convergence_core.errors import ArmChangedError, NoArmsError
from tasks.serving import contextual_fold
from tasks.serving.bandit import Bandit
from tasks.serving.offers import offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import contextual_state
from tests.runtime import requests
from tests.runtime.requests import select, update

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
