"""The template of an agent for Gmail: its simulated service, dry runs, and what a search finds in it."""

import base64
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from convergence.templates import plan_files
from tasks.functions.user_functions import load_function
from tests.support.agents import asked, service_of, write_template

TEMPLATE = "agno-gmail"
"""Calls of tools in one answer of a model."""


@pytest.fixture
def service(tmp_path: Path) -> Any:
    """The simulated service, as a user's project has it."""
    return service_of(TEMPLATE, tmp_path)


RAW = (
    "VG86IGFkYUBleGFtcGxlLmNvbQpTdWJqZWN0OiBIaQoKSG8K"  # To: ada@example.com, Subject: Hi, and Ho
)
BOX = "/gmail/v1/users/me"


def ask(service: Any, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    return asked(service, method, path, headers, data)


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


def encoded(letter: str) -> dict[str, str]:
    return {"raw": base64.urlsafe_b64encode(letter.encode()).decode()}


UNREADABLE = "Missing or unreadable raw message"
PARTS = "To: a@b.c\nContent-Type: multipart/mixed; boundary=q\n\n--q\nContent-Type: text/plain\n\nhi\n--q--"


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        *(("POST", "drafts", body, UNREADABLE) for body in (
            {"message": "x"}, {"message": [1]}, {"message": None}, {"raw": RAW}, [1], b"null", b"")),
        *(("POST", "messages/send", body, UNREADABLE) for body in (
            {"raw": 5}, {"raw": "a"}, {"message": {"raw": RAW}}, encoded(PARTS))),
        *(("POST", "messages/send", body, "Missing or unreadable message") for body in (
            b"{", b"\xff", b'{"a":' + b"[" * 100_000)),
        ("POST", "messages/send", encoded("Subject: x\n\nhi"), "Recipient address required"),
        ("POST", "drafts", {"message": encoded("To: ada\n\nhi")}, "Recipient address required"),
        ("GET", "messages?maxResults=x", None, "Invalid maxResults"),
        ("GET", "messages?q=nothing&maxResults=1.5", None, "Invalid maxResults"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_reason(
    service: Any, method: str, path: str, body: Any, words: str
):
    token = service.new_token()
    status, told = ask(service, method, f"{BOX}/{path}", token, body)
    assert (status, told["error"]["code"], told["error"]["message"]) == (400, 400, words)
    assert (len(service.states[token]), service.writes) == (11, [])


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


def test_each_case_names_tools_and_emails_that_there_are(service: Any):
    cases = json.loads(plan_files(TEMPLATE)["test_cases.json"])
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
    write_template(TEMPLATE, tmp_path)
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
