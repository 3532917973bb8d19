"""No telemetry and no outside call: a whole run asks nothing beyond this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.optimizations import ROOT, write_project

WATCH = """
import sys

def hook(event, args):
    if event == "socket.connect":
        address = args[1]
        host = address[0] if isinstance(address, tuple) else ""
        if host and not (host.startswith("127.") or host in {"::1", "localhost"}):
            open(LOG, "a").write(f"connect {address}\\n")
    elif event == "socket.getaddrinfo":
        host = args[0]
        if host not in (None, "", "127.0.0.1", "::1", "localhost", b"localhost"):
            open(LOG, "a").write(f"look up {host}\\n")

sys.addaudithook(hook)
"""


@pytest.mark.slow
def test_a_run_with_the_ephemeral_server_calls_nothing_outside(tmp_path: Path):
    log = tmp_path / "outside.log"
    watch = tmp_path / "watch"
    watch.mkdir()
    # Imported by every Python process that starts with this folder on its path.
    (watch / "sitecustomize.py").write_text(f"LOG = {str(log)!r}\n{WATCH}")
    project = tmp_path / "project"
    write_project(project, optimization__evolution__generations=2)
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "DO_NOT_TRACK"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "convergence", "optimize", "--quiet"],
        cwd=project,
        env={**env, "PYTHONPATH": f"{watch}:{ROOT}", "PREFECT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not log.exists(), log.read_text()
