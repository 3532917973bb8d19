"""The template of an agent on Discord: its simulated service, dry runs, and what a search finds in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from convergence.templates import plan_files
from tests.support.agents import asked, service_of

TEMPLATE = "agno-discord"
"""Calls of tools in one answer of a model."""


@pytest.fixture
def service(tmp_path: Path) -> Any:
    """The simulated service, as a user's project has it."""
    return service_of(TEMPLATE, tmp_path)


def ask(service: Any, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bot {token}", "Content-Type": "application/json"}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    return asked(service, method, path, headers, data)


def test_the_simulation_keeps_a_state_for_each_token(service: Any):
    first, second = service.new_token(), service.new_token()
    status, channels = ask(service, "GET", "/guilds/900100200300400500/channels", first)
    assert status == 200
    place = next(one["id"] for one in channels if one["name"] == "support")
    status, made = ask(service, "POST", f"/channels/{place}/messages", first, {"content": "Hi"})
    assert (status, made["content"], made["channel_id"]) == (200, "Hi", place)
    _, said = ask(service, "GET", f"/channels/{place}/messages?limit=2", first)
    assert said[0]["content"] == "Hi"
    assert ask(service, "DELETE", f"/channels/{place}/messages/{made['id']}", first) == (204, None)
    path = f"/channels/{place}/messages"
    assert said[1:] == ask(service, "GET", path, first)[1][:1]
    assert ask(service, "GET", path, first) == ask(service, "GET", path, second)
    assert [method for method, _ in service.writes] == ["POST", "DELETE"]


def test_each_case_names_tools_and_channels_that_there_are(service: Any):
    cases = json.loads(plan_files(TEMPLATE)["test_cases.json"])
    assert len({case["id"] for case in cases}) == len(cases) == 30
    token = service.new_token()
    _, channels = ask(service, "GET", "/guilds/900100200300400500/channels", token)
    known = {one["id"] for one in channels}
    messages = {
        one["id"]
        for place in known
        for one in ask(service, "GET", f"/channels/{place}/messages", token)[1]
    }
    for case in cases:
        for call in case["expected"]["tool_calls"]:
            arguments = call.get("arguments", {})
            assert {arguments.get("channel_id")} <= known | {None}
            assert {arguments.get("message_id")} <= messages | {None}
            assert call["name"] not in case["expected"]["forbidden"]
