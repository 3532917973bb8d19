"""Examples of agent frameworks and of an MCP tool: optimized end to end, and faults told apart.

Each is skipped where its package is missing; docs/frameworks.md says which versions were tried.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tests.docs.test_documents import ROOT, in_shell

PAGE = (ROOT / "docs/frameworks.md").read_text(encoding="utf-8")
# Example -> the distribution it needs, and its module. Not the package: a user's `agents.py` that
# another test of this process imported would pass for the OpenAI Agents SDK.
AGENTS = {
    "langgraph_topics": ("langgraph", "graph"),
    "openai_agents": ("openai-agents", "agent"),
    "pydantic_ai_topics": ("pydantic-ai-slim", "agent"),
    "dspy_program": ("dspy", "program"),
}
LOOK = (
    'convergence query --format csv "select count(*), count(*) filter (fault is null), max(reward) '
    'from evaluations"'
)
ONE_CALL = """
import asyncio, importlib, json, sys
module = importlib.import_module(sys.argv[1])
from tasks.inputs.loader import load
loaded = load("optimization.yaml")
defaults = {name: one.default for name, one in loaded.configuration.search_space.parameters.items()}
try:
    print(asyncio.run(module.answer("Where is my parcel?", **defaults)))
except Exception as error:
    print(type(error).__name__)
"""
needs_mcp = pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None, reason="mcp is missing: pip install mcp"
)


def copied(name: str, folder: Path) -> Path:
    ignored = shutil.ignore_patterns("results", "convergence-data", "__pycache__")
    return shutil.copytree(ROOT / "examples" / name, folder / name, ignore=ignored)


@pytest.fixture(params=AGENTS)
def agent(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str]:
    """A copy of an example whose package is installed, and its module."""
    distribution, module = AGENTS[request.param]
    if not any(importlib.metadata.distributions(name=distribution)):
        pytest.skip(f"{distribution} is missing")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:.")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return copied(request.param, tmp_path), module


@pytest.fixture
def mock(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockServer]:
    with MockServer(MockOptions()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


@pytest.mark.prefect
@pytest.mark.slow
def test_an_agent_is_optimized_without_a_key(agent: tuple[Path, str], mock: MockServer):
    folder, _ = agent
    in_shell("convergence optimize optimization.yaml", folder)
    printed = in_shell(LOOK, folder)
    n_all, n_answered, best = printed.splitlines()[1].split(",")
    assert int(n_all) == int(n_answered) > 50
    assert float(best) == 1.0
    assert mock.stats()["calls"] >= int(n_answered)


@pytest.mark.slow
def test_an_overloaded_provider_is_no_fault_of_the_agent(
    agent: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
):
    folder, module = agent
    for options in (MockOptions(rate_429=1.0, retry_after_s=0.0), MockOptions(rate_500=1.0)):
        with MockServer(options) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            printed = in_shell(f"python -c '{ONE_CALL}' {module}", folder)
            assert printed.split()[-1] == "ConnectionError"
            assert server.stats()["calls"] == 1, "the framework tried again by itself"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert in_shell(f"python -c '{ONE_CALL}' {module}", folder).split()[-1] == "ConnectionError"


@needs_mcp
@pytest.mark.prefect
@pytest.mark.slow
def test_the_options_of_an_mcp_tool_are_tuned_as_the_page_shows(tmp_path: Path):
    folder = copied("mcp_tool", tmp_path)
    printed = in_shell("convergence optimize optimization.yaml 2>&1", folder)
    shown = re.findall(r"^(?:generation 0.*\n)+", PAGE, re.MULTILINE)
    assert len(shown) == 1
    assert shown[0] in printed


@needs_mcp
@pytest.mark.slow
def test_an_mcp_server_that_is_killed_is_started_again_and_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = copied("mcp_tool", tmp_path)
    script = """
import asyncio, os, signal, subprocess, tool

def servers():
    found = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "server.py"], capture_output=True)
    return [int(pid) for pid in found.stdout.split()]

async def walk():
    print(await tool.search("track a parcel", stem=4))
    (first,) = servers()
    os.kill(first, signal.SIGKILL)
    try:
        await tool.search("track a parcel", stem=4)
    except ConnectionError as error:
        print("lost")
    print(await tool.search("track a parcel", stem=4))
    try:
        await tool.search("track a parcel", stem="many")
    except ValueError as error:
        print("refused")

asyncio.run(walk())
print(servers())
"""
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setitem(os.environ, "SCRIPT", script)
    printed = in_shell('python -c "$SCRIPT"', folder)
    assert printed.split() == ["tracking", "lost", "tracking", "refused", "[]"]


def test_every_example_is_in_the_page_and_valid():
    from tasks.inputs.loader import load

    for name in (*AGENTS, "mcp_tool"):
        assert f"[{name}](../examples/{name})" in PAGE
        assert len(load(ROOT / "examples" / name / "optimization.yaml").cases) >= 12
