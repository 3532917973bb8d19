"""A server does not outlive the process that started it, however that one ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.prefect_support.program import PARENT
from tests.cli.test_running import ROOT, Session, calls, wait_for_calls, write_project
from tests.support.children import start_child

WAIT_S = 60.0
"""Only ends what hangs."""


def parent_of(pid: int) -> int:
    """Return a process's parent, 0 if there is no such process or only its zombie is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[1])


def children_of(pid: int) -> dict[int, str]:
    """Return the living children of a process with their command lines."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and parent_of(int(folder.name)) == pid:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            found[int(folder.name)] = line.decode()
    return found


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(parent_of(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still there: {[p for p in pids if parent_of(p)]}"
        time.sleep(0.02)


pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


@pytest.mark.parametrize("stubborn", ["no", pytest.param("yes", marks=pytest.mark.slow)])
def test_a_server_ends_after_its_parent_was_killed(stubborn: str):
    with start_child("tests.cli.server_starter", stubborn) as parent:
        assert parent.stdout is not None
        told = parent.stdout.readline().split()
        server = int(told[0])
        assert parent_of(server) == parent.pid
        assert told[1:] == ["ready", "False"], "children of the server do not look for its parent"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until_gone(server)


def test_a_server_whose_parent_was_killed_before_it_could_look_ends_at_once():
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tasks.prefect_support.program",
            "tests.cli.server_starter",
            "serve",
            "no",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), PARENT: str(dead.pid)},
        stdout=subprocess.DEVNULL,
    )
    assert server.wait(WAIT_S) == -signal.SIGTERM


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_behind_and_is_told_as_interrupted(tmp_path: Path):
    write_project(tmp_path)
    session = Session(tmp_path, "optimize", sleep_s=600)
    wait_for_calls(tmp_path, 1)
    started = children_of(session.process.pid)
    assert any("uvicorn" in line for line in started.values()), started
    os.kill(session.process.pid, signal.SIGKILL)  # it alone, not its group
    session.process.wait()
    try:
        wait_until_gone(*started)
    finally:
        for pid in filter(parent_of, started):
            os.kill(pid, signal.SIGKILL)
        session.end()
    told = Session(tmp_path, "runs", "--json", sleep_s=0).end()
    assert [row["status"] for row in json.loads(told.out)] == ["interrupted"]


@pytest.mark.slow
def test_ctrl_c_while_prefect_starts_ends_at_once_and_leaves_nothing(tmp_path: Path):
    write_project(tmp_path)
    session = Session(tmp_path, "optimize", sleep_s=0)
    deadline = time.monotonic() + WAIT_S
    while not any("uvicorn" in line for line in children_of(session.process.pid).values()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    started = children_of(session.process.pid)
    session.press_ctrl_c()
    done = session.end()
    assert done.code == 130
    assert "interrupted before the first call." in done.err
    assert "Traceback" not in done.err
    assert calls(tmp_path) == []
    wait_until_gone(*started)
    assert json.loads(Session(tmp_path, "runs", "--json", sleep_s=0).end().out) == []
