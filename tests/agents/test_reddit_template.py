"""The template of an agent on Reddit: its simulated service, dry runs, and what a search finds in it."""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import yaml

from benchmarks.templates import best_of, found_of, is_planted
from convergence.templates import plan_files
from tasks.functions.user_functions import load_function
from tests.support.agents import asked, call_of, results_of, service_of, write_template
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.support.paid_runs import STORE, begin, play

TEMPLATE = "agno-reddit"
CALLS = 81
"""Calls of tools in one answer of a model."""


@pytest.fixture
def service(tmp_path: Path) -> Any:
    """The simulated service, as a user's project has it."""
    return service_of(TEMPLATE, tmp_path)


def ask(
    service: Any, method: str, path: str, token: str, form: dict[str, str] | None = None
) -> tuple[int, Any]:
    data = None if form is None else urllib.parse.urlencode(form).encode()
    return asked(service, method, path, {"Authorization": f"Bearer {token}"}, data)


def test_the_simulation_keeps_a_state_for_each_client(service: Any):
    first, second = service.new_token(), service.new_token()
    status, made = ask(service, "POST", "/api/submit", first, {"sr": "baking", "title": "Hi"})
    assert (status, made["json"]["errors"]) == (200, [])
    post_id = made["json"]["data"]["id"]
    _, top = ask(service, "GET", "/r/baking/top?limit=100", first)
    assert post_id in {one["data"]["id"] for one in top["data"]["children"]}
    status, said = ask(
        service, "POST", "/api/comment", first, {"thing_id": f"t3_{post_id}", "text": "Ho"}
    )
    assert status == 200
    (reply,) = said["json"]["data"]["things"]
    assert (reply["data"]["body"], reply["data"]["parent_id"]) == ("Ho", f"t3_{post_id}")
    of_reply = {"thing_id": reply["data"]["name"], "text": "Hm"}
    assert ask(service, "POST", "/api/comment", first, of_reply)[0] == 200
    _, (of_post, comments) = ask(service, "GET", f"/comments/{post_id}", first)
    assert of_post["data"]["children"][0]["data"]["title"] == "Hi"
    assert [one["data"]["body"] for one in comments["data"]["children"]] == ["Ho", "Hm"]
    assert ask(service, "GET", f"/comments/{post_id}", second)[0] == 404
    assert service.writes == [("POST", "/api/submit"), *[("POST", "/api/comment")] * 2]


def test_the_simulation_keeps_no_connection_of_a_client(service: Any):
    headers = {"Authorization": f"Bearer {service.new_token()}"}
    answer = httpx.get(f"{service.url}/subreddits/popular", headers=headers)
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")


@pytest.mark.parametrize(
    ("method", "path", "form"),
    [
        ("GET", "/r/nowhere/about", None),
        ("GET", "/r/nowhere/top", None),
        ("GET", "/user/nobody/about", None),
        ("GET", "/comments/zzz", None),
        ("GET", "/api/submit", None),
        ("GET", "/api/v1/access_token", None),
        ("GET", "/message/inbox", None),
        ("GET", "/../../../etc/passwd", None),
        ("POST", "/api/comment", {"thing_id": "t3_zzz", "text": "x"}),
        ("POST", "/api/comment", {"thing_id": "t5_baking", "text": "x"}),
        ("POST", "/api/compose", {"to": "ada", "text": "x"}),
        ("POST", "/api/vote", {"id": "t3_p000", "dir": "1"}),
        ("DELETE", "/api/v1/me/friends/ada", None),
    ],
)
def test_the_simulation_refuses_all_else(service: Any, method: str, path: str, form: Any):
    found = ask(service, method, path, service.new_token(), form)
    assert found == (404, {"message": "Not Found", "error": 404})
    assert ask(service, method, path, "nobody's", form)[0] == 401
    assert service.writes == []


def test_each_case_names_tools_and_posts_that_there_are(service: Any):
    cases = json.loads(plan_files(TEMPLATE)["test_cases.json"])
    assert len({case["id"] for case in cases}) == len(cases) == 30
    token = service.new_token()
    _, popular = ask(service, "GET", "/subreddits/popular?limit=5", token)
    subreddits = {one["data"]["display_name"] for one in popular["data"]["children"]}
    posts = {
        one["data"]["id"]
        for name in subreddits
        for one in ask(service, "GET", f"/r/{name}/top", token)[1]["data"]["children"]
    }
    for case in cases:
        for call in case["expected"]["tool_calls"]:
            arguments = call["arguments"]
            assert {arguments.get("subreddit")} <= subreddits | {None}
            assert {arguments.get("post_id")} <= posts | {None}
            if "username" in arguments:
                assert ask(service, "GET", f"/user/{arguments['username']}/about", token)[0] == 200
            assert call["name"] not in case["expected"]["forbidden"]


@pytest.mark.slow
def test_agnos_toolkit_reads_and_writes_by_praw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("praw", reason="needs the extra `agno` (pip install '.[agno]')")
    monkeypatch.delitem(sys.modules, "reddit_service", raising=False)
    write_template(TEMPLATE, tmp_path)
    make: Any = load_function("agents.py:make", tmp_path, key="api.function")
    part = SimpleNamespace(secrets=("REDDIT_CLIENT_ID", "REDDIT_USERNAME"))
    with pytest.raises(ValueError, match="lacks REDDIT_CLIENT_SECRET, REDDIT_PASSWORD"):
        make({"toolkit": "all", "instructions": "", "temperature": 0.0}, part)
    context = SimpleNamespace(
        secrets=(), model=lambda **_: None, rewrite=lambda *_: None, allow_writes=True
    )
    agent = make({"toolkit": "all", "instructions": "", "temperature": 0.0}, context)
    (tools,) = agent.tools
    assert len(tools.functions) == 8

    def told(name: str, **arguments: Any) -> str:
        return str(tools.functions[name].entrypoint(**arguments))

    assert json.loads(told("get_user_info", username="ada"))["comment_karma"] == 2711
    found = json.loads(told("get_top_posts", subreddit="trains", limit=1))
    assert [one["title"] for one in found["top_posts"]] == ["The night train is back"]
    assert json.loads(told("get_subreddit_info", subreddit_name="baking"))["url"] == "/r/baking/"
    assert json.loads(told("get_subreddit_stats", subreddit="baking"))["subreddit_stats"]
    popular = json.loads(told("get_trending_subreddits"))["trending_subreddits"]
    assert popular == ["gardening", "baking", "printers", "trains"]
    made = json.loads(told("create_post", subreddit="baking", title="T", content="C"))["post"]
    assert (made["title"], made["author"]) == ("T", "helper")
    reply = json.loads(told("reply_to_post", post_id="p000", content="R"))["reply"]
    assert (reply["body"], reply["submission_id"]) == ("R", "p000")
    again = json.loads(told("reply_to_comment", comment_id="k000", content="A"))["reply"]
    assert (again["parent_id"], again["submission_id"]) == ("t1_k000", "p000")
    service: Any = sys.modules["reddit_service"].service
    assert len(service.writes) == 3


@pytest.mark.slow
def test_of_500_writing_calls_none_reaches_the_service_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("agno", reason="needs the extra `agno` (pip install '.[agno]')")
    monkeypatch.delitem(sys.modules, "reddit_service", raising=False)

    def write(request: Request) -> Answer:
        if results := results_of(request):
            return chat_answer(results[-1], model="m")
        calls = []
        for n in range(CALLS):
            name = ("create_post", "reply_to_post", "reply_to_comment")[n % 3]
            place: dict[str, str] = (
                {"subreddit": "baking", "title": f"t{n}"},
                {"post_id": "p000"},
                {"comment_id": "k000"},
            )[n % 3]
            made = call_of(name, f"call_{n}", content=f"m{n}", **place)
            calls += made.body["choices"][0]["message"]["tool_calls"]
        return chat_answer(None, model="m", finish_reason="tool_calls", tool_calls=calls)

    def writes(folder: Path, n_cases: int, *, allow: bool) -> tuple[int, int]:
        """Return how many writing calls a model made, and how many reached the service."""
        folder.mkdir()
        tree = write_template(TEMPLATE, folder, endpoint=f"{server.url}/v1", auth={"type": "none"})
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
        assert result.failures == ()
        made = sum(len(request.body["messages"]) < 4 for request in server.requests) * CALLS
        shown = {result for request in server.requests for result in results_of(request)}
        assert not any("127.0.0.1" in result for result in shown)
        assert any("https://www.reddit.com/r/baking" in result for result in shown) is allow
        server.requests.clear()
        service: Any = sys.modules["reddit_service"].service
        return made, len(service.writes)

    with LoopbackServer(write) as server:
        made, reached = writes(tmp_path / "dry", 4, allow=False)
        assert made >= 500
        assert reached == 0
        made, reached = writes(tmp_path / "wet", 2, allow=True)
        assert reached >= made // 2


@pytest.mark.slow
@pytest.mark.prefect
def test_the_planted_configuration_is_found(tmp_path: Path):
    """One seed of those that ``benchmarks/templates.py`` runs."""
    pytest.importorskip("agno", reason="needs the extra `agno` (pip install '.[agno]')")
    result = found_of(TEMPLATE, 1, tmp_path)
    assert is_planted(TEMPLATE, best_of(result))
    assert result["failures"] == []
    assert (tmp_path / STORE).is_dir()
