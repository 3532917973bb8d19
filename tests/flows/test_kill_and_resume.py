"""kill -9 at any point, run again: the run ends as the unbroken one, nothing paid twice."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.optimizations import ledger, start_command, tables_of, write_project

WORKERS = 4


def run_to_its_end(folder: Path, *arguments: str) -> None:
    done = start_command(*arguments, cwd=folder)
    out, err = done.communicate(timeout=300)
    assert done.returncode == 0, f"{out}\n{err}"


def kill_after(
    process: "subprocess.Popen[str]", folder: Path, n_calls: int, delay_s: float
) -> bool:
    """Kill the process once it made so many more calls and a moment passed; False: it ended first."""
    before = len(ledger(folder))
    while process.poll() is None:
        if len(ledger(folder)) >= before + n_calls:
            time.sleep(delay_s)
            break
        time.sleep(0.002)
    if process.poll() is not None:
        process.communicate()
        return False
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return True


def end_by_kills(folder: Path, rng: random.Random, most: int, **size: Any) -> int:
    """Run a project to its end through random kills; return how many there were."""
    write_project(folder, **size)
    kills = 0
    command: tuple[str, ...] = ("optimize", "--quiet")
    while kills < most:
        process = start_command(*command, cwd=folder, TARGET_DELAY_S="0.01")
        if not kill_after(process, folder, rng.randint(0, 30), rng.random() * 0.15):
            break
        kills += 1
        if ledger(folder):
            command = ("resume", "--quiet")
    else:
        run_to_its_end(folder, *command)
    return kills


def kill_and_compare(tmp_path: Path, n_kills: int, seed: int, **size: Any) -> None:
    """Kill runs until there were so many kills; hold each run against the unbroken one."""
    unbroken = tmp_path / "unbroken"
    write_project(unbroken, **size)
    run_to_its_end(unbroken, "optimize", "--quiet")
    expected = Counter(ledger(unbroken))
    rng = random.Random(seed)
    kills = 0
    for number in range(n_kills):
        broken = tmp_path / f"broken-{number}"
        killed = end_by_kills(broken, rng, n_kills - kills, **size)
        kills += killed
        assert tables_of(broken / "convergence-data") == tables_of(unbroken / "convergence-data")
        made = Counter(ledger(broken))
        assert not expected - made, "a call of the unbroken run is missing"
        # Only calls in flight at a kill may be made again: at most one per worker.
        assert sum((made - expected).values()) <= killed * WORKERS
        assert winner_of(broken) == winner_of(unbroken)
        if kills >= n_kills:
            return
    pytest.fail(f"only {kills} kills")


def winner_of(folder: Path) -> object:
    file = next((folder / "results").glob("*/best_config.json"))
    return json.loads(file.read_text(encoding="utf-8"))["config"]


@pytest.mark.prefect
@pytest.mark.slow
def test_a_killed_run_ends_like_the_unbroken_one(tmp_path: Path):
    kill_and_compare(tmp_path, 1, seed=1, optimization__evolution__generations=3)


@pytest.mark.prefect
@pytest.mark.slow
def test_a_run_killed_at_twenty_random_points_ends_like_the_unbroken_one(tmp_path: Path):
    kill_and_compare(tmp_path, 20, seed=2)
