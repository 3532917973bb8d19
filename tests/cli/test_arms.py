"""``arms`` and ``fold``: what is on offer, live, and production brought home."""

from pathlib import Path

import pytest

from tasks.serving.offers import offer_of
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import begin_guard
from tests.support.bandits import Bandit
from tests.support.commands import Runner


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with RuntimeStore(tmp_path / "store") as opened:
        opened.offer("bot", "default", [offer_of({"m": 1}, "a")], trust=0.5)
    return tmp_path / "store"


def test_arms_come_and_go_by_command(store: Path, cli: Runner):
    done = cli("arms", "add", "bot", "b", "--params", '{"m": 2}', "--prior", "0.8,0.05",
               "--store", store)  # fmt: skip
    assert done.code == 0, done.err
    assert cli("arms", "retire", "bot", "a", "--store", store).code == 0
    assert "already" in cli("arms", "retire", "bot", "a", "--store", store).err
    listed = {
        one["arm_id"]: one
        for one in cli("arms", "list", "bot", "--json", "--store", store).json["arms"]
    }
    assert listed["a"]["retired"]
    assert listed["b"]["prior"]["mean"] == 0.8
    assert listed["b"]["params"] == {"m": 2}
    shown = cli("arms", "list", "bot", "--store", store).out
    assert "0.800 as 20 rewards" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "bot", "b", "--params", "[1]"), "must be a JSON object"),
        (("add", "bot", "b", "--prior", "2,1"), "must be a mean in"),
        (("add", "bot", "a", "--params", "{}"), "must keep its parameters"),
        (("retire", "bot", "nobody"), "no arm `nobody`"),
        (("list", "nobody"), "no arm was ever active"),
    ],
)
def test_what_makes_no_sense_is_refused(
    store: Path, cli: Runner, arguments: tuple[str, ...], words: str
):
    done = cli("arms", *arguments, "--store", store)
    assert done.code == 2, done
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_fold_tells_what_it_saw(store: Path, cli: Runner):
    with RuntimeStore(store) as opened:
        group = opened.offer("bot", "default", [offer_of({"m": 2}, "b")], trust=0.5)
        begin_guard(
            opened, group.group_id, promoted="b", champion="a", alpha=0.05, tolerance=0.0,
            holdback=0.5,
        )  # fmt: skip
        bandit = Bandit(opened, "bot", seed=1)
        for _ in range(6):
            bandit.update(bandit.select("u").decision_id, 1.0)
    told = cli("fold", "--store", store).out
    assert "6 decisions and 6 rewards exported" in told
    assert "promoted b at 50 % against a: watching" in told
    found = cli("fold", "--json", "--store", store).json
    assert (found["decisions"], found["rewards"]) == (0, 0)
    assert found["guards"]["bot/default"]["decision"] == "watching"
    assert set(found["evidence"]) == {"bot/default"}
