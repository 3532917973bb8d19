"""The page on the chat is walked through, in a fresh folder."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from convergence.cli.chat_session import COMMANDS
from convergence_core.feedback.records import LABELS, Rating
from convergence_core.feedback.roles import BUILT_IN
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.docs.test_documents import ROOT, blocks, in_shell

PAGE = (ROOT / "docs/chat.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_walk_ends_with_what_the_page_shows(tmp_path: Path):
    begin, piped, _ = blocks(PAGE, "sh")
    script = begin.replace(
        "convergence chat --offline\n", "convergence chat --offline <<< 'Hi?'\n"
    )
    printed = in_shell(f"export COLUMNS=100\n{script}{piped}", tmp_path)
    (shown,) = blocks(PAGE, "text")
    assert shown in printed
    history = printed.partition(shown)[2]
    assert re.search(r"2 Average \(no month was named\)  stand-in gpt-4o-mini\n", history)
    assert re.search(r"unrated  stand-in gpt-4o-mini\n  asked     And lavender\?\n", history)
    with FeedbackStore(tmp_path / "talk/convergence-data") as store:
        found = store.history("ada")
        counts = store.fetch("SELECT role, COUNT(*) FROM interactions GROUP BY role ORDER BY role")
    assert [answer.role for answer, _ in found] == ["gardener"] * 2
    assert [tuple(row) for row in counts] == [("assistant", 1), ("gardener", 2)]


@pytest.mark.slow
def test_openais_client_talks_to_the_service_as_the_page_shows(tmp_path: Path):
    begin, _, serve = blocks(PAGE, "sh")
    in_shell(begin.partition(" && ")[0], tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    token = "-".join(["a", "long", "one", "that", "nobody", "guesses", "0123456789"])
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "TALK_TOKEN": token}
    server = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", serve.splitlines()[1] + " --port 0"],
        cwd=tmp_path / "talk",
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        codes = blocks(PAGE, "python")
        assert all("http://127.0.0.1:8700" in code for code in codes)
        done, generated = (
            subprocess.run(
                [sys.executable, "-c", code.replace("http://127.0.0.1:8700", found[0])],
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            for code in codes
        )
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)
    assert done.returncode == 0, done.stderr
    answer, label = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert (bool(answer), label) == (True, "4 Excellent")
    with FeedbackStore(tmp_path / "talk/convergence-data") as store:
        (kept, mark), (prompted, _) = store.history("ada")
    assert generated.returncode == 0, generated.stderr
    assert generated.stdout.startswith(prompted.interaction_id)
    assert (prompted.role, prompted.source) == ("gardener", "generate")
    assert mark is not None
    assert (kept.role, mark.rating) == ("gardener", 4)


def test_keys_commands_and_roles_are_those_of_the_code():
    for number, label in LABELS.items():
        reward = Rating(interaction_id="a", user_id="b", rating=number).reward
        assert f"| `{number}` | {label} | {reward:g} |" in PAGE
    for name in COMMANDS:
        assert f"`{name}" in PAGE
    for role in BUILT_IN:
        assert f"`{role}`" in PAGE or f"--role {role}`" in PAGE
    (block,) = blocks(PAGE, "yaml")
    written = (ROOT / "convergence/templates/chat/optimization.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(block)["feedback"] == yaml.safe_load(written)["feedback"]
