"""Sample ratio of stored traffic: alarms for decisions and rewards, once, and beside every verdict."""

from pathlib import Path

import numpy as np
import pytest

from convergence_core.caveats import TRAFFIC
from tasks.serving.fold import fold_store
from tasks.serving.offers import offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import alarms
from tests.support.bandits import Bandit

WINDOW_S = 10.0


@pytest.fixture
def bandit(tmp_path: Path) -> Bandit:
    store = RuntimeStore(tmp_path / "s")
    store.offer("bot", "default", [offer_of({"t": n}, n) for n in "ab"], trust=0.5)
    settings = RuntimeConfig(system="bot", floor=1.0, expires_after_s=WINDOW_S)
    store.save_settings("bot", settings.model_dump(mode="json"))
    return Bandit(store, "bot", seed=1)


def serve(bandit: Bandit, n: int, *, lost: float) -> None:
    """Serve n requests long ago; of arm b some rewards never come."""
    rng, store = np.random.default_rng(2), bandit.store
    store.now_us = lambda: 1_000_000
    for _ in range(n):
        chosen = bandit.select("u")
        if chosen.arm_id == "a" or rng.random() >= lost:
            bandit.update(chosen.decision_id, 1.0)


def test_rewards_that_are_missing_from_one_arm_are_an_alarm_once(bandit: Bandit, tmp_path: Path):
    serve(bandit, 700, lost=0.5)
    (alarm,) = fold_store(tmp_path / "s").alarms
    assert alarm.kind == "missing_rewards"
    assert alarm.before == pytest.approx(0.5)
    assert abs(alarm.after - 0.5) > 0.1
    assert alarm.n < 700
    assert alarm.sentence.startswith("Sample ratio: arm ")
    assert "of bot/default has " in alarm.sentence
    fold_store(tmp_path / "s")
    assert alarms(bandit.store, "bot") == [alarm], "the test begins again after an alarm"
    caveat = bandit.evidence().caveat
    assert caveat.startswith(alarm.sentence)
    assert caveat.endswith(TRAFFIC)


def test_decisions_that_depart_from_their_propensities_are_an_alarm(
    bandit: Bandit, tmp_path: Path
):
    serve(bandit, 300, lost=0.0)
    assert fold_store(tmp_path / "s").alarms == ()
    with bandit.store.database.transaction() as connection:
        connection.execute("DELETE FROM decisions WHERE arm_id = 'b' AND seq % 2 = 0")
    kinds = {alarm.kind for alarm in fold_store(tmp_path / "s").alarms}
    assert "sample_ratio" in kinds


@pytest.mark.parametrize("settings", [{"missing_reward": 0.0}, {"expires_after_s": None}])
def test_rewards_that_are_not_missing_are_no_alarm(
    bandit: Bandit, tmp_path: Path, settings: dict[str, float | None]
):
    """One is stated for them, or they can still come."""
    config = RuntimeConfig.model_validate({**bandit.settings.model_dump(), **settings})
    bandit.store.save_settings("bot", config.model_dump(mode="json"))
    serve(Bandit(bandit.store, "bot", seed=1), 500, lost=0.6)
    assert fold_store(tmp_path / "s").alarms == ()
