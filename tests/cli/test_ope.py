"""Off-policy estimates from files and from our own tables."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tasks.serving.offers import offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.bandits import Bandit
from tests.support.commands import Runner

MEANS = {"small": 0.2, "large": 0.6}


def table(n: int = 4_000, share: float = 0.7) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    actions = rng.choice(["small", "large"], size=n, p=[share, 1 - share])
    rewards = [float(rng.random() < MEANS[a]) for a in actions]
    return pl.DataFrame(
        {
            "action": actions,
            "reward": rewards,
            "propensity": [share if a == "small" else 1 - share for a in actions],
        }
    )


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_tells_what_another_policy_would_have_earned(here: Path, cli: Runner, ending: str):
    path = here / f"log.{ending}"
    if ending == "csv":
        table().write_csv(path)
    else:
        table().write_parquet(path)
    done = cli("ope", path, "--policy", "large", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["arms"] == ["large", "small"]
    assert found["low"] < MEANS["large"] < found["high"]
    assert found["ess"] == pytest.approx((table()["action"] == "large").sum())
    assert found["alarms"] == []


def test_too_little_evidence_is_an_alarm_and_a_code(here: Path, cli: Runner):
    table(300, share=0.99).write_parquet(here / "log.parquet")
    done = cli("ope", "log.parquet", "--policy", "large")
    assert done.code == 100
    assert "effective sample size" in done.err


def test_our_own_tables_are_a_log(here: Path, cli: Runner):
    rng = np.random.default_rng(1)
    with RuntimeStore(here / "convergence-data") as store:
        store.offer("bot", "default", [offer_of({}, name) for name in MEANS], trust=0.5)
        bandit = Bandit(store, "bot", settings=RuntimeConfig(system="bot", floor=0.6), seed=2)
        for _ in range(300):
            chosen = bandit.select("u")
            bandit.update(chosen.decision_id, float(rng.random() < MEANS[chosen.arm_id]))
        bandit.select("u")  # without a reward: no row
    found = json.loads(cli("ope", "bot", "--policy", "small", "--least-ess", "30", "--json").out)
    assert found["n"] == 300
    assert found["low"] < MEANS["small"] < found["high"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "huge"), "must name arms of the log"),
        (("--policy", "small=0.5"), "sum to 1"),
        (("--policy", "small=x"), "share to each arm"),
        (("--column", "reward"), "name=column"),
        (("--column", "reward=nothing"), "must have the columns"),
    ],
)
def test_what_does_not_fit_is_refused(
    here: Path, cli: Runner, arguments: tuple[str, ...], words: str
):
    table(100).write_csv(here / "log.csv")
    done = cli("ope", "log.csv", *arguments)
    assert done.code == 2
    assert words in " ".join(done.err.split())
