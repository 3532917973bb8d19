"""Settings at run time: those that fit are kept for every process, the others refused by name."""

from pathlib import Path
from typing import Any

import pytest

import convergence
from convergence_core.errors import ConfigurationError
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.runtime.requests import configured, select
from tests.support.bandits import Bandit

ARMS = [{"arm_id": "a", "params": {}}]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "fast"}, "mode"),
        ({"unknown": 1}, "`unknown` is not a setting. Known settings: system, "),
        (
            {"default_arms": [{"params": {}, "name": "a"}]},
            "not a setting. Known settings: params, arm_id",
        ),
        ({"default_arms": [{}]}, r"`default_arms\.0\.params` must be given"),
        ({"alpha": 7}, "`alpha` must be less than 1, but got 7. Correct it"),
        ({"system": "other"}, "must be the name"),
        ({"default_arms": [{"params": {}, "prior_mean": 0.5}]}, "prior_sd"),
        ({"kind": "linear", "mode": "verdict"}, "need kind beta"),
        ({"kind": "linear", "rewards_per_false_alarm": 1_000}, "need kind beta"),
        (
            {"kind": "linear", "guardrails": {"cost": 0.1}},
            "`guardrails` need arms of `kind: beta`, .*, but got cost",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, settings: dict[str, Any], words: str
):
    with pytest.raises(ConfigurationError, match=words):
        configured(tmp_path, **settings)


def test_settings_hold_for_every_process_that_serves(tmp_path: Path):
    system = configured(tmp_path, default_arms=ARMS)
    with RuntimeStore(tmp_path / "s") as other:
        assert Bandit(other, system).settings.mode == "regret"
        config = {"default_arms": ARMS, "mode": "verdict", "alpha": 0.01}
        convergence.configure_runtime_sync(system, config=config, storage=tmp_path / "s")
        select(system)
        again = Bandit(other, system)
        assert (again.settings.mode, again.settings.alpha) == ("verdict", 0.01)
        # Without settings, those that are kept serve.
        known = convergence.configure_runtime_sync(system, storage=tmp_path / "s")
        assert (known.mode, known.alpha) == ("verdict", 0.01)
