"""``convergence serve`` as a process: asked for strong tokens, ended by signals, killed."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from convergence.client import Client, ServiceRefusedError
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.rebuilt_counts import rebuilt

TOKEN = secrets.token_urlsafe(32)
ROOT = Path(__file__).parents[2]


@contextmanager
def serving(
    store: Path, *options: str, n_files: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "convergence", "serve", "--token", "BOT_TOKEN", "--port", "0"]
    if n_files is not None:
        command = ["bash", "-c", f'ulimit -n {n_files} && exec "$@"', "bash", *command]
    process = subprocess.Popen(
        [*command, "--store", str(store), "--rate", "0", *options],
        env={**os.environ, "BOT_TOKEN": TOKEN, "PYTHONPATH": str(ROOT), "COLUMNS": "400"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + str(process.stderr and process.stderr.read())
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def ended(path: Path, *, by: signal.Signals) -> tuple[int, int]:
    """Send a signal while requests come in; return the exit code and what was acknowledged."""
    acknowledged: list[tuple[str, float]] = []
    enough = threading.Event()
    with serving(path) as (process, url):
        with Client(url, token=TOKEN) as client:
            for name in ("a", "b"):
                client.offer("bot", name, {})

        def ask(number: int) -> None:
            with Client(url, token=TOKEN, retries=0) as own:
                try:
                    while True:
                        chosen = own.select("bot", user_id=f"u{number}")
                        reward = len(acknowledged) % 5 / 4
                        told = own.update(
                            "bot", user_id=f"u{number}", decision_id=str(chosen.decision_id),
                            reward=reward,
                        )  # fmt: skip
                        assert told.status == "ok"
                        acknowledged.append((str(chosen.decision_id), reward))
                        if len(acknowledged) > 80:
                            enough.set()
                except ServiceRefusedError:
                    return  # it ended

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        assert enough.wait(120)
        process.send_signal(by)
        for thread in threads:
            thread.join(120)
        code = process.wait(120)
    with RuntimeStore(path) as store:
        group = store.group("bot", "default")
        assert group is not None
        arms = {arm.arm_id: (arm.alpha, arm.beta) for arm in store.arms(group.group_id)}
        assert {
            a: pytest.approx(pair) for a, pair in rebuilt(store, group.group_id).items()
        } == arms
        for decision_id, reward in acknowledged:
            found = store.decision(decision_id)
            assert found is not None
            assert found.reward == reward
        return code, group.n - len(acknowledged)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_loses_nothing(tmp_path: Path, by: signal.Signals):
    code, unheard = ended(tmp_path / "store", by=by)
    assert code == 0
    assert unheard == 0, "every reward that was taken in was acknowledged"


def test_a_kill_loses_no_acknowledged_reward(tmp_path: Path):
    code, unheard = ended(tmp_path / "store", by=signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert 0 <= unheard <= 4, "at most the answers on their way"


def test_docs_may_be_opened_and_the_schema_is_whole(tmp_path: Path):
    import httpx

    with serving(tmp_path / "store", "--docs") as (_, url):
        schema = httpx.get(f"{url}/openapi.json").json()
    assert json.dumps(schema).count("#/components/schemas/ProblemAnswer") > 10
    assert "ProblemAnswer" in schema["components"]["schemas"]
