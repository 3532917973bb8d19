"""Where Prefect's page says that a report lies."""

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tasks.artifacts import report_location


def test_a_report_is_shown_by_its_path_and_a_command_and_not_by_a_link():
    run: Any = SimpleNamespace(
        label="bot-1a2b", store=SimpleNamespace(path=Path("/data/my store"))
    )
    text = report_location(run, Path("/data/results/bot-1a2b/report.html"))
    blocks = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert blocks[0] == "/data/results/bot-1a2b/report.html"
    assert shlex.split(blocks[1])[:3] == ["convergence", "report", "bot-1a2b"]
    assert shlex.split(blocks[1])[-2:] == ["--store", "/data/my store"]
    assert "://" not in text
    assert "](" not in text
