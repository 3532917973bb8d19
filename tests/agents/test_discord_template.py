"""The template of an agent on Discord: its simulated service, dry runs, and what a search finds in it."""

import importlib.util
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence.templates import plan_files
from tests.support.agents import call_of, results_of
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.support.paid_runs import begin, play

TEMPLATE = "agno-discord"
CALLS = 80
"""Calls of tools in one answer of a model."""


def write_template(folder: Path, **api: Any) -> dict[str, Any]:
    """Write the template's files, with other keys of ``api``; return the configuration."""
    for name, text in plan_files(TEMPLATE, {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    tree: dict[str, Any] = yaml.safe_load((folder / "optimization.yaml").read_text())
    tree["api"].update(api)
    return tree


@pytest.fixture
def service(tmp_path: Path) -> Any:
    """The simulated service, as a user's project has it."""
    (tmp_path / "discord_service.py").write_text(plan_files(TEMPLATE, {})["discord_service.py"])
    spec = importlib.util.spec_from_file_location(
        "discord_service_under_test", tmp_path / "discord_service.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.service


def ask(service: Any, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(  # noqa: S310 - loopback
        service.url + path,
        method=method,
        headers={"Authorization": f"Bot {token}", "Content-Type": "application/json"},
        data=None
        if body is None
        else body
        if isinstance(body, bytes)
        else json.dumps(body).encode(),
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
            raw = answer.read()
            return answer.status, json.loads(raw) if raw else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


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


@pytest.mark.parametrize(
    ("method", "path", "body", "refusal"),
    [
        ("GET", "/guilds/1/channels", None, (404, 10004)),
        ("GET", "/channels/12345", None, (404, 10003)),
        ("GET", "/channels/general", None, (400, 50035)),
        ("GET", "/channels/910000000000000001/messages?limit=101", None, (400, 50035)),
        ("GET", "/channels/910000000000000001/messages?limit=-1", None, (400, 50035)),
        ("POST", "/channels/910000000000000001/messages", {"content": " "}, (400, 50006)),
        ("POST", "/channels/910000000000000001/messages", {"content": 3}, (400, 50006)),
        ("POST", "/channels/910000000000000001/messages", b"{", (400, 50006)),
        ("POST", "/channels/910000000000000001/messages", [1], (400, 50006)),
        ("POST", "/channels/910000000000000001/messages", {"content": "x" * 2001}, (400, 50035)),
        ("DELETE", "/channels/910000000000000001/messages/1", None, (404, 10008)),
        ("PATCH", "/channels/910000000000000001", {}, (404, 0)),
        ("GET", "/users/@me", None, (404, 0)),
        ("GET", "/../../../etc/passwd", None, (404, 0)),
        ("POST", "/guilds/900100200300400500/channels", {"name": "x"}, (404, 0)),
    ],
)
def test_the_simulation_refuses_in_discords_forms(
    service: Any, method: str, path: str, body: Any, refusal: tuple[int, int]
):
    found = ask(service, method, path, service.new_token(), body)
    assert (found[0], found[1]["code"]) == refusal
    assert ask(service, method, path, "nobody's", body)[0] == 401
    assert service.writes == []


def test_each_case_names_tools_and_channels_that_there_are(service: Any):
    cases = json.loads(plan_files(TEMPLATE, {})["test_cases.json"])
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


@pytest.mark.slow
def test_of_500_writing_calls_none_reaches_the_service_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("agno", reason="needs the extra `agno` (pip install '.[agno]')")
    monkeypatch.delitem(sys.modules, "discord_service", raising=False)

    def write(request: Request) -> Answer:
        if results := results_of(request):
            return chat_answer(results[-1], model="m")
        calls = []
        for n in range(CALLS):
            name = "send_message" if n % 2 else "delete_message"
            more = {"message": f"m{n}"} if n % 2 else {"message_id": f"92000000000000100{n % 4}"}
            made = call_of(name, f"call_{n}", channel_id="910000000000000001", **more)
            calls += made.body["choices"][0]["message"]["tool_calls"]
        return chat_answer(None, model="m", finish_reason="tool_calls", tool_calls=calls)

    def writes(folder: Path, n_cases: int, *, allow: bool) -> tuple[int, int]:
        """Return how many writing calls a model made, and how many reached the service."""
        folder.mkdir()
        tree = write_template(folder, endpoint=f"{server.url}/v1", auth={"type": "none"})
        tree["api"]["agent"]["allow_writes"] = allow
        tree["search_space"]["parameters"]["model"] = {
            "type": "categorical", "choices": ["m"], "default": "m",
        }  # fmt: skip
        tree["search_space"]["parameters"]["toolkit"] |= {"choices": ["all"], "default": "all"}
        tree["optimization"]["evolution"] = {
            "population_size": 2,
            "generations": 1,
            "elite_size": 1,
        }
        cases = json.loads((folder / "test_cases.json").read_text())[:n_cases]
        (folder / "test_cases.json").write_text(json.dumps(cases))
        tree["evaluation"]["test_cases"] = {"path": "test_cases.json"}
        tree["prices"] = {"m": {"input": 1, "output": 1}}
        (folder / "optimization.yaml").write_text(yaml.safe_dump(tree))
        result = play(begin(folder))
        assert result.n_failed == 0
        made = sum(len(request.body["messages"]) < 4 for request in server.requests) * CALLS
        shown = {result for request in server.requests for result in results_of(request)}
        assert not any("127.0.0.1" in result for result in shown)
        assert any("for url: https://discord.com/api/v10" in result for result in shown) is allow
        server.requests.clear()
        service: Any = sys.modules["discord_service"].service
        return made, len(service.writes)

    with LoopbackServer(write) as server:
        made, reached = writes(tmp_path / "dry", 4, allow=False)
        assert made >= 500
        assert reached == 0
        made, reached = writes(tmp_path / "wet", 2, allow=True)
        assert reached >= made // 2
