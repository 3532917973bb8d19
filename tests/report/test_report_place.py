"""What Prefect's page says of where a report lies."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tasks.artifacts import report_location
from tests.support.results import made_up_result

RUN: Any = SimpleNamespace(
    label="bot-1a2b",
    record=SimpleNamespace(name="bot"),
    store=SimpleNamespace(path=Path("/data/my store")),
)
FILES = {"report.html": "/data/results/bot-1a2b/report.html"}


def test_a_report_is_shown_by_its_path_and_a_command_and_not_by_a_link():
    text = report_location(RUN, replace(made_up_result(), files=FILES))
    blocks = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert blocks[0] == "/data/results/bot-1a2b/report.html"
    assert shlex.split(blocks[1])[:3] == ["convergence", "report", "bot-1a2b"]
    assert shlex.split(blocks[1])[-2:] == ["--store", "/data/my store"]
    assert "://" not in text


def test_links_lead_to_pages_of_the_same_server():
    for files in ({}, FILES):
        text = report_location(RUN, replace(made_up_result(), files=files))
        links = re.findall(r"\]\((.*?)\)", text)
        assert "/artifacts/key/bot-leaderboard" in links
        assert all(link.startswith("/artifacts/key/bot-") for link in links)
