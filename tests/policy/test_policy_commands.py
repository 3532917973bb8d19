"""``convergence policy serve`` as a process: its client, its refusals, kills, and the tables."""

import json
import os
import re
import secrets
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence.policy import EpisodeResult, PolicyClient
from convergence.policy.__main__ import demonstrate
from convergence_core.policy.prompt_state import PROMPT_ACTIONS
from tasks.serving.fold import fold_store
from tasks.store.policy.experience_store import ExperienceStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.children import ROOT
from tests.support.killed_collectors import kill_while_collecting


def score(prompt: str) -> float:
    """Share of three wishes that a prompt fulfils."""
    wishes = ("result only", "best answer", "Work in steps")
    return sum(wish.lower() in prompt.lower() for wish in wishes) / 3


def test_a_client_trains_a_policy_and_its_steps_are_in_the_tables(tmp_path: Path):
    seen: list[EpisodeResult] = []
    store = tmp_path / "store"
    with PolicyClient() as client:
        url = client.start_server(store, "--set", "batch_size=8")
        assert url.startswith("http://127.0.0.1:")
        stats = client.stats()
        assert (stats["embedding"], stats["embedding_dim"]) == ("hashed-ngrams", 1536)
        assert stats["config"]["batch_size"] == 8
        assert client.update() is None
        result = client.train(
            ["Answer the question of {user}.", "Sum up the text of {user}."],
            episodes=20, update_interval=5, score=score, on_episode=seen.append,
        )  # fmt: skip
        assert [one.start[:3] for one in result.episodes[:3]] == ["Ans", "Sum", "Ans"]
        assert list(result.episodes) == seen
        for one in result.episodes:
            assert one.gain == pytest.approx(one.scores[-1] - one.scores[0])
            assert len(one.actions) <= 5
            assert one.actions[-1] == "stop" or len(one.actions) == 5
        assert result.updates
        assert client.stats()["policy_version"] == len(result.updates)
        shares = client.get_distribution(prompt="Answer the question of {user}.")
        assert set(shares) == set(PROMPT_ACTIONS)
        shares = client.get_distribution(
            prompt="Answer it.", history=deque(["reflect"]), excluded=deque(["expansion"])
        )
        assert shares["reflect"] == shares["expansion"] == 0.0
        assert client.select_action(prompt="Answer it.", deterministic=True).decision_id is None
        assert client.save("first")
        assert client.load("first")
        assert not client.load("second")
        assert not client.save("../first")
        short = client.train_episode(["Answer it now, please."], 1, score=score)
        assert len(short.actions) == 1
    n = sum(len(one.actions) for one in result.episodes) + 1
    assert fold_store(store).policy == {
        "policy_experiences": n, "policy_versions": len(result.updates) + 2,
    }  # fmt: skip
    assert set(fold_store(store).policy.values()) == {0}
    tables = ParquetStore(store)
    found = tables.rows("SELECT action, reward, terminated, truncated FROM policy_experiences")
    assert [row["action"] for row in found[:-1]] == [
        action for one in result.episodes for action in one.actions
    ]
    assert sum(float(str(row["reward"])) for row in found) == pytest.approx(
        sum(one.gain for one in (*result.episodes, short))
    )
    kinds = tables.rows("SELECT kind FROM policy_versions ORDER BY version")
    assert [row["kind"] for row in kinds][:: len(kinds) - 1] == ["begun", "loaded"]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (("--set", "gamma=2"), "`gamma` must be in [0, 1], but got 2"),
        (("--set", "n_epochs=many"), "`n_epochs` must be a whole number"),
        (("--set", "gamma"), "must set one of"),
        (("--set", "gamma=null"), "`gamma` must be a number, but got None"),
        *((("--set", f"gamma={text}"), "must have a finite number") for text in (".nan", "[", "")),
        (("--offline",), "needs a configuration with an `llm` to mock"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    given: tuple[str, ...], rule: str,
):  # fmt: skip
    monkeypatch.setenv("APP_TOKEN", secrets.token_urlsafe(32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    arguments = ["policy", "serve", "--token", "APP_TOKEN", "--port", "0", "--store", "s", *given]
    assert run(arguments) == 2
    assert rule in capsys.readouterr().err
    with ExperienceStore(tmp_path / "other") as store:
        assert store.latest_version() is None


def test_the_demonstration_trains_a_policy_without_a_service(capsys: pytest.CaptureFixture[str]):
    demonstrate()
    means = [float(mean) for mean in re.findall(r"an episode (\S+)", capsys.readouterr().out)]
    assert len(means) == 8
    assert means[-1] > means[0]


@pytest.mark.slow
def test_the_printed_requests_work(tmp_path: Path):
    requests = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
    (script,) = re.findall(
        r"^```sh\n(python -m convergence.policy --server.*?)^```$", requests, re.M | re.S
    )
    server, *curls = script.strip().splitlines()
    command = [sys.executable, *server.replace("8765", "0").split()[1:-1]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://(\S+)", process.stdout.readline())
        assert found is not None
        vector = json.dumps([0.1] * 1536)
        try:
            for line in curls:
                filled = line.replace("localhost:8765", found[1]).replace("[...]", vector)
                done = subprocess.run(
                    ["bash", "-c", f"{filled} --silent --show-error --fail-with-body"],
                    capture_output=True, text=True, check=False,
                )  # fmt: skip
                assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
                assert isinstance(json.loads(done.stdout), dict)
        finally:
            process.terminate()
    assert len(curls) == 9


@pytest.mark.slow
def test_a_kill_loses_nothing_that_was_acknowledged_and_adds_nothing(tmp_path: Path):
    found = kill_while_collecting(tmp_path / "store", n_collectors=4, n_each=25, n_kills=1, seed=1)
    assert found.acknowledged == found.stored
    assert len(found.stored) == 100
