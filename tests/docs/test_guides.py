"""The guides are walked through: files and commands as they stand on the pages, in a fresh folder."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from docs.configuration_keys import reference
from tests.docs.test_documents import ROOT, blocks, in_shell

GUIDES = ("test-cases", "metrics", "targets", "promoting", "troubleshooting")
PAGES = {name: (ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in GUIDES}
FILES = re.compile(r"^`([\w.-]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCES = ("convergence", "convergence_core", "tasks")


def write_files(*names: str, to: Path) -> None:
    """Write the files that the guides print."""
    printed = {name: text for page in PAGES.values() for name, text in FILES.findall(page)}
    for name in names:
        (to / name).write_text(printed[name], encoding="utf-8")


def commands(page: str, word: str) -> str:
    (found,) = [block for block in blocks(PAGES[page], "sh") if word in block]
    return f"export PYTHONPATH={ROOT} COLUMNS=100\n{found}"


@pytest.mark.prefect
@pytest.mark.slow
def test_an_own_function_with_own_cases_and_metrics_is_judged_offline(tmp_path: Path):
    write_files("cases.csv", "bot.py", "metrics.py", "optimization.yaml", to=tmp_path)
    printed = in_shell(commands("metrics", "report"), tmp_path)
    assert "optimization.yaml is valid." in printed
    assert "9 for the search" in printed or "8 for the search" in printed
    assert "help_desk.offline" in printed
    assert "brevity" in printed
    assert (tmp_path / "results/offline/latest/report.html").is_file()
    looks = in_shell(f"export PYTHONPATH={ROOT}; {blocks(PAGES['promoting'], 'sh')[0]}", tmp_path)
    assert "help_desk.offline" in looks


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.prefect
@pytest.mark.slow
def test_an_own_endpoint_is_optimized_as_printed(port: int, tmp_path: Path):
    write_files("cases.csv", "server.py", "endpoint.yaml", to=tmp_path)
    text = (tmp_path / "endpoint.yaml").read_text().replace("8931", str(port))
    (tmp_path / "endpoint.yaml").write_text(text)
    start, *rest = blocks(PAGES["targets"], "sh")[0].splitlines()
    assert start == "python server.py &"
    server = subprocess.Popen(
        [sys.executable, "server.py"], cwd=tmp_path, env={**os.environ, "PORT": str(port)}
    )
    try:
        # It listens when it has begun.
        wait = f"until python -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))' 2>/dev/null; do sleep 0.2; done"
        script = "\n".join([f"export PYTHONPATH={ROOT} COLUMNS=100", wait, *rest])
        printed = in_shell(script, tmp_path)
    finally:
        server.terminate()
        server.wait()
    assert "helpdesk" in printed
    assert "most_words" in printed
    assert (tmp_path / "results/best_config.json").is_file()


@pytest.mark.prefect
@pytest.mark.slow
def test_a_chat_model_is_tried_offline_as_printed(tmp_path: Path):
    write_files("cases.csv", "chat.yaml", to=tmp_path)
    printed = in_shell(commands("targets", "chat.yaml --offline"), tmp_path)
    assert "topics.offline" in printed
    assert not (tmp_path / "results/latest").exists()


@pytest.mark.prefect
@pytest.mark.slow
def test_an_agent_is_tried_offline_as_printed(tmp_path: Path):
    pytest.importorskip("agno", reason="needs the extra `agno` (pip install '.[agno]')")
    write_files("stock.py", "stock_cases.json", "agent.yaml", to=tmp_path)
    printed = in_shell(commands("targets", "agent.yaml --offline"), tmp_path)
    assert "stock.offline" in printed
    report = (tmp_path / "results/offline/latest/report.md").read_text("utf-8")
    assert "Every planned evaluation has a reward." in report


def test_cases_of_all_forms_are_read(tmp_path: Path):
    write_files("cases.csv", "cases.jsonl", to=tmp_path)
    for name, n, fields in (
        ("cases.csv", 12, {"question", "channel"}),
        ("cases.jsonl", 2, {"question"}),
    ):
        from tasks.inputs.loader import load_mapping

        tree = {
            **yaml.safe_load("api: {name: a, function: 'b:c'}"),
            "search_space": {"parameters": {"t": {"type": "float", "min": 0, "max": 1}}},
            **yaml.safe_load(
                next(b for b in blocks(PAGES["test-cases"], "yaml") if "holdout" in b)
            ),
        }
        tree["evaluation"]["test_cases"]["path"] = name
        cases = load_mapping(tree, tmp_path).cases
        assert len(cases) == n
        assert isinstance(cases[0].input, dict)
        assert set(cases[0].input) == fields


@pytest.mark.slow
def test_a_configuration_of_promptfoo_runs_as_printed(tmp_path: Path):
    write_files("promptfooconfig.yaml", to=tmp_path)
    printed = in_shell(commands("test-cases", "import promptfoo"), tmp_path)
    assert (tmp_path / "imported/cases.jsonl").read_text().count("\n") == 3
    assert "optimization.yaml is valid." in printed


def test_every_message_of_the_page_is_one_that_is_told():
    """By its words in the code, where they may be broken over lines."""
    told = " ".join(
        re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    messages = re.findall(r"^\| `([^`]+)` \|", PAGES["troubleshooting"], re.MULTILINE)
    assert len(messages) >= 15
    assert [message for message in messages if message not in told] == []


def test_every_key_that_a_guide_names_is_known():
    known = {row.key for row in reference()}
    named = {
        key
        for page in PAGES.values()
        for key in re.findall(r"`((?:api|evaluation|promotion|budget)\.[a-z_.]+)`", page)
    }
    assert named
    assert {key for key in named if key not in known} == set()
