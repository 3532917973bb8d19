"""The commands of the page on the web application start it as they stand, and it answers."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.docs.test_documents import ROOT, blocks

PAGE = (ROOT / "docs/ui.md").read_text(encoding="utf-8")
COMMANDS = [block for block in blocks(PAGE, "sh") if "convergence ui" in block]


@pytest.mark.parametrize(
    "at", [0, *(pytest.param(at, marks=pytest.mark.slow) for at in range(1, len(COMMANDS)))]
)
def test_each_command_starts_a_server_that_answers(at: int, tmp_path: Path):
    script = COMMANDS[at].replace("--no-open", "--no-open --port 0")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    token = {"UI_TOKEN": "a-token-that-nobody-guesses-0123456789"}
    server = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, **token, "PATH": path, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+/ui/\?token=\S+", server.stdout.readline())
        assert found is not None
        with httpx.Client(follow_redirects=True) as client:
            assert client.get(found[0]).status_code == 200
            overview = client.get(f"{found[0].partition('?')[0]}api/overview")
            assert "convergence optimize" in overview.text
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)


def test_every_page_is_described():
    for name in (
        "Overview",
        "Run",
        "Answers",
        "Compare",
        "Prompts",
        "Production",
        "Chat",
        "Review",
        "Training",
        "SQL",
    ):
        assert f"- *{name}*: " in PAGE
