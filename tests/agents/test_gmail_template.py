"""The template of an agent for Gmail: its simulated service, dry runs, and what a search finds in it."""

import importlib.util
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from convergence.templates import plan_files
from tasks.functions.user_functions import load_function
from tests.support.agents import call_of, results_of
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.support.paid_runs import begin, play

TEMPLATE = "agno-gmail"
CALLS = 81
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
    (tmp_path / "gmail_service.py").write_text(plan_files(TEMPLATE, {})["gmail_service.py"])
    spec = importlib.util.spec_from_file_location(
        "gmail_service_under_test", tmp_path / "gmail_service.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.service


RAW = (
    "VG86IGFkYUBleGFtcGxlLmNvbQpTdWJqZWN0OiBIaQoKSG8K"  # To: ada@example.com, Subject: Hi, and Ho
)
BOX = "/gmail/v1/users/me"


def ask(service: Any, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(  # noqa: S310 - loopback
        service.url + path,
        method=method,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        data=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_simulation_keeps_a_mailbox_for_each_token(service: Any):
    first, second = service.new_token(), service.new_token()
    status, made = ask(service, "POST", f"{BOX}/messages/send", first, {"raw": RAW})
    assert (status, made["labelIds"]) == (200, ["SENT"])
    _, found = ask(service, "GET", f"{BOX}/messages/{made['id']}?format=full", first)
    headers = {one["name"]: one["value"] for one in found["payload"]["headers"]}
    assert (headers["To"], headers["Subject"]) == ("ada@example.com", "Hi")
    status, draft = ask(service, "POST", f"{BOX}/drafts", first, {"message": {"raw": RAW}})
    assert (status, draft["message"]["labelIds"]) == (200, ["DRAFT"])
    assert [one["labelIds"] for one in service.states[first][:2]] == [["DRAFT"], ["SENT"]]
    assert len(service.states[second]) == len(service.states[first]) - 2
    assert [path for _, path in service.writes] == [f"{BOX}/messages/send", f"{BOX}/drafts"]
    _, listed = ask(service, "GET", f"{BOX}/messages?maxResults=500", first)
    assert len(listed["messages"]) == listed["resultSizeEstimate"] == 11, "what came in alone"


@pytest.mark.parametrize(
    ("query", "n"),
    [("", 11), ("from:margaret*", 2), ("from:margaret@example.com is:unread", 1), ("subject:lunch", 1),
     ("E42", 1), ("e42 toner", 0), ("is:starred", 0), ("from:nobody", 0)],
)  # fmt: skip
def test_queries_are_answered_as_gmail_answers_them(service: Any, query: str, n: int):
    path = f"{BOX}/messages?q={urllib.parse.quote(query)}"
    status, found = ask(service, "GET", path, service.new_token())
    assert (status, len(found.get("messages", [])), found["resultSizeEstimate"]) == (200, n, n)
    assert ("messages" in found) == (n > 0)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"{BOX}/messages?maxResults=0", None, 400),
        ("GET", f"{BOX}/messages?maxResults=x", None, 400),
        ("GET", f"{BOX}/messages/nobody", None, 404),
        ("GET", f"{BOX}/drafts", None, 404),
        ("GET", f"{BOX}/settings", None, 404),
        ("GET", "/gmail/v1/users/ada@example.com/messages", None, 404),
        ("GET", "/../../../etc/passwd", None, 404),
        ("POST", f"{BOX}/messages/send", b"{", 400),
        ("POST", f"{BOX}/messages/send", {}, 400),
        ("POST", f"{BOX}/messages/send", [1], 400),
        ("POST", f"{BOX}/messages/send", {"raw": 3}, 400),
        ("POST", f"{BOX}/messages/send", {"raw": "x"}, 400),
        ("POST", f"{BOX}/messages/send", {"raw": "SGk="}, 400),
        ("POST", f"{BOX}/messages/18f00000/trash", {}, 404),
        ("DELETE", f"{BOX}/messages/18f00000", None, 404),
    ],
)
def test_the_simulation_refuses_in_googles_form(
    service: Any, method: str, path: str, body: Any, status: int
):
    found = ask(service, method, path, service.new_token(), body)
    assert (found[0], found[1]["error"]["code"]) == (status, status)
    assert ask(service, method, path, "nobody's", body)[0] == 401
    assert service.writes == []


def test_each_case_names_tools_and_emails_that_there_are(service: Any):
    cases = json.loads(plan_files(TEMPLATE, {})["test_cases.json"])
    assert len({case["id"] for case in cases}) == len(cases) == 30
    token = service.new_token()
    for case in cases:
        for call in case["expected"]["tool_calls"]:
            arguments = call["arguments"]
            meant = arguments.get("query") or f"from:{arguments.get('user') or arguments['to']}"
            path = f"{BOX}/messages?q={urllib.parse.quote(meant)}"
            assert ask(service, "GET", path, token)[1]["resultSizeEstimate"] > 0, case["id"]
            assert call["name"] not in case["expected"]["forbidden"]


@pytest.mark.slow
def test_agnos_toolkit_reads_and_writes_by_googles_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("googleapiclient", reason="needs the extra `agno-gmail`")
    monkeypatch.delitem(sys.modules, "gmail_service", raising=False)
    write_template(tmp_path)
    make: Any = load_function("agents.py:make", tmp_path, key="api.function")
    context = SimpleNamespace(
        secrets=(), model=lambda **_: None, rewrite=lambda *_: None, allow_writes=True
    )
    agent = make({"toolkit": "all", "instructions": "", "temperature": 0.0}, context)
    (tools,) = agent.tools
    assert len(tools.functions) == 6

    def told(name: str, **arguments: Any) -> Any:
        return json.loads(str(tools.functions[name].entrypoint(**arguments)))

    found = told("get_emails_from_user", user="alan@example.com", count=1)
    assert [one["body"] for one in found["emails"]] == ["The meeting moves to 14:30 on Tuesday."]
    assert told("search_emails", query="E42")["emails"][0]["from"] == "margaret@example.com"
    assert told("get_unread_emails", count=9)["count"] == 5
    assert told("get_latest_emails", count=2)["emails"][0]["subject"] == "You have won"
    sent = told("send_email", to="ada@example.com", subject="S", body="B")
    assert sent["labelIds"] == ["SENT"]
    assert told("create_draft_email", to="ada@example.com", subject="D", body="B")["id"]
    service: Any = sys.modules["gmail_service"].service
    assert len(service.writes) == 2


@pytest.mark.slow
def test_of_500_writing_calls_none_reaches_the_service_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("googleapiclient", reason="needs the extra `agno-gmail`")
    monkeypatch.delitem(sys.modules, "gmail_service", raising=False)

    def write(request: Request) -> Answer:
        if results := results_of(request):
            return chat_answer(results[-1], model="m")
        calls = []
        for n in range(CALLS):
            name = ("send_email", "create_draft_email")[n % 2]
            letter = {"to": "ada@example.com", "subject": f"s{n}", "body": f"b{n}"}
            made = call_of(name, f"call_{n}", **letter)
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
        assert any('"SENT"' in result for result in shown) is allow
        server.requests.clear()
        service: Any = sys.modules["gmail_service"].service
        return made, len(service.writes)

    with LoopbackServer(write) as server:
        made, reached = writes(tmp_path / "dry", 4, allow=False)
        assert made >= 500
        assert reached == 0
        made, reached = writes(tmp_path / "wet", 2, allow=True)
        assert reached >= made // 2
