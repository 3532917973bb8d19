"""What is decided about agents before Agno is needed: tools that write, messages, the extra itself."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import ConfigurationError
from tasks.agents.agent_run import dry_run_result, writes
from tasks.inputs.factories import make_target
from tasks.inputs.loader import load
from tasks.targets.agno import input_text
from tests.support.agents import write_project


def test_a_missing_extra_is_one_sentence_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "agno" else find(name, *more),
    )
    path = write_project(tmp_path, "http://127.0.0.1:9", agents="def make(params, context): ...")
    with pytest.raises(ConfigurationError) as caught:
        make_target(load(path))
    (problem,) = caught.value.problems
    assert problem.key == "api.kind"
    assert problem.rule == "needs Agno, which is not installed"
    assert re.fullmatch(r"Run pip install -e '.*\[agno\]'\.", problem.fix)


@pytest.mark.parametrize(
    ("name", "toolkit", "expected"),
    [
        ("send_message", None, True),
        ("sendMessage", None, True),
        ("gmail_send", None, True),
        ("DeletePost", "Unknown", True),
        ("get_messages", None, False),
        ("get_sent_mails", None, False),
        ("look_up", None, False),
        ("get_channel_info", "DiscordTools", False),
        ("get_channel_info_v2", "DiscordTools", True),
        ("wipe_all", None, False),
    ],
)
def test_tools_that_write_are_told_by_their_names(name: str, toolkit: str | None, expected: bool):
    assert writes(name, toolkit=toolkit) is expected


def test_further_tools_that_write_are_named_by_the_configuration():
    assert writes("wipe_all", toolkit=None, more=["wipe_*"])
    assert not writes("wipe_all", toolkit=None, more=["wipe"])


def test_the_agent_is_told_that_nothing_was_done():
    result = dry_run_result("send", {"text": "x" * 9000})
    assert "was not carried out" in result
    assert len(result) < 1000


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("hello", "hello"),
        ({"question": "hello"}, "hello"),
        ({"a": "x", "b": 1}, '{"a":"x","b":1}'),
        ({"a": 3}, '{"a":3}'),
        ([1, 2], "[1,2]"),
    ],
)
def test_an_agent_is_told_the_text_of_a_case(given: Any, text: str):
    assert input_text(given).replace(" ", "") == text


def test_what_agents_do_not_read_is_refused(tmp_path: Path):
    path = write_project(tmp_path, "http://127.0.0.1:9", api__request={"stream": True})
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert {problem.key for problem in caught.value.problems} >= {"api.request.stream"}
    tree: dict[str, Any] = {"api__kind": "http", "api__agent": {"allow_writes": True}}
    path = write_project(tmp_path, "http://127.0.0.1:9", **tree)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    fixes = {problem.key: problem.fix for problem in caught.value.problems}
    assert fixes["api.agent.allow_writes"] == "Remove it, or write `kind: agno`."
