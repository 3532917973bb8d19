"""The server as a thread and as a command: starts, stops, and is the same in every process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tasks.mock.mock_server import MockError, MockServer
from tests.mock.answers import digest

ROOT = Path(__file__).parents[2]


def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


def start_mock(*arguments: str) -> subprocess.Popen[str]:
    code = "import sys, typer; from convergence.cli.mock import mock; typer.run(mock)"
    return start("-c", code, *arguments)


def test_answers_are_the_same_in_every_process():
    children = [start("-m", "tests.mock.answers", PYTHONHASHSEED=seed) for seed in ("1", "2")]
    printed = [child.communicate(timeout=120)[0].strip() for child in children]
    assert printed == [digest()] * 2


def test_a_taken_port_is_named():
    with MockServer() as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(MockError, match=f"`port` {port} of 127.0.0.1 cannot be listened on"):
            MockServer(port=port)


def test_the_command_prints_its_address_serves_and_stops_cleanly():
    with start_mock(
        "--port", "0", "--quiet", "--rate-hang", "1", "--hang-seconds", "600"
    ) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{url}/v1/chat/completions", json=body, timeout=httpx.Timeout(60, read=0.2)
            )
        while not (fates := httpx.get(f"{url}/mock/stats").json()["by_fate"]):
            time.sleep(0.01)  # a busy machine lets the server see the request after its end
        assert fates == {"hang": 1}
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
    assert (child.returncode, out, err) == (0, "", "")
