"""Agents of Agno as targets: their model calls under all limits, their tools, and what ends them."""

import asyncio
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from convergence_core.result import RunResult
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.agents import AGENTS, article_of, call_of, clerk, results_of, write_project
from tests.support.chat_servers import anthropic_answer
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.support.paid_runs import STORE, begin, is_done, play, start

pytest.importorskip("agno", reason="needs the extra `agno` (pip install '.[agno]')")
pytestmark = pytest.mark.slow

EACH_USD = (7 * 1.0 + 3 * 2.0) / 1e6
"""What an answer of the model costs."""


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return [dict(row) for row in ParquetStore(folder / STORE).rows(sql)]


def evaluations(folder: Path) -> list[dict[str, Any]]:
    return rows(
        folder,
        "select status, fault, error_type, error, cost_usd, tokens_in, p.text as answer "
        "from evaluations e left join payloads p using (run_id, payload_sha256)",
    )


def run(folder: Path, server: LoopbackServer, **more: Any) -> RunResult:
    write_project(folder, server.url, **more)
    return play(begin(folder))


def error_of(folder: Path, **more: Any) -> tuple[str, str]:
    """Return type and text of the one fault by which all evaluations failed."""
    with LoopbackServer(clerk) as server:
        run(folder, server, **more)
    ((fault, kind, text),) = {
        (row["fault"], row["error_type"], row["error"]) for row in evaluations(folder)
    }
    assert fault == "candidate"
    return kind, text


def test_model_calls_are_priced_and_journaled_and_the_answer_is_measured(tmp_path: Path):
    with LoopbackServer(clerk) as server:
        result = run(tmp_path, server)
        n_asked = len(server.requests)
    calls = rows(tmp_path, "select purpose, cost_usd, call_key, model from attempts")
    assert len({call["call_key"] for call in calls}) == len(calls)
    of_model = [call for call in calls if call["purpose"] == "agent"]
    assert len(of_model) == n_asked == 2 * (len(calls) - n_asked)
    assert {(round(call["cost_usd"], 9), call["model"]) for call in of_model} == {(EACH_USD, "m")}
    assert {call["cost_usd"] for call in calls if call["purpose"] != "agent"} == {0.0}
    assert result.cost_usd == pytest.approx(n_asked * EACH_USD)
    found = evaluations(tmp_path)
    assert {row["status"] for row in found} == {"ok"}
    assert {round(row["cost_usd"] / EACH_USD, 6) for row in found} == {2.0}
    assert {row["tokens_in"] for row in found} == {14}
    answer = json.loads(found[0]["answer"])
    assert answer["content"].startswith("There are ")
    (made,) = answer["tool_calls"]
    assert made["name"] == "look_up"
    assert made["result"].endswith("in stock")


CLAUDE = {
    "search_space__parameters__model": {
        "type": "categorical", "choices": ["anthropic/claude-m"], "default": "anthropic/claude-m",
    },
    "prices": {"claude-m": {"input": 1.0, "output": 2.0}},
}  # fmt: skip
THOUGHTS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Two shelves.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "ZGF0YQ=="},
]


def test_claude_calls_tools_in_its_own_form_and_gets_its_thoughts_back(tmp_path: Path):
    """Two calls in one answer; Anthropic refuses their results without the thoughts before them."""
    calls = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "look_up", "input": {"article": "x" * n}}
        for n in (2, 5)
    ]
    asked: list[dict[str, Any]] = []

    def answer(request: Request) -> Answer:
        assert request.path == "/v1/messages"
        asked.append(request.body)
        if len(request.body["messages"]) == 1:
            said = [*THOUGHTS, {"type": "text", "text": "Let me see."}, *calls]
            return anthropic_answer(model="claude-m", content=said, stop_reason="tool_use")
        return anthropic_answer("There are 2 and 5.", model="claude-m")

    with LoopbackServer(answer) as server:
        result = run(tmp_path, server, **CLAUDE)
    (first, second) = (next(body for body in asked if len(body["messages"]) == n) for n in (1, 3))
    assert [one["name"] for one in first["tools"]] == ["look_up", "send_order"]
    assert first["tools"][0]["input_schema"]["properties"].keys() == {"article"}
    assert (first["max_tokens"], first["model"]) == (1024, "claude-m")
    _, said, results = second["messages"]
    text = {"type": "text", "text": "Let me see."}
    assert said == {"role": "assistant", "content": [*THOUGHTS, text, *calls]}
    assert results["role"] == "user"
    assert [(one["type"], one["tool_use_id"]) for one in results["content"]] == [
        ("tool_result", "toolu_2"), ("tool_result", "toolu_5"),
    ]  # fmt: skip
    assert "5 of xxxxx in stock" in json.dumps(results["content"][1])
    found = evaluations(tmp_path)
    assert {row["status"] for row in found} == {"ok"}
    told = json.loads(found[0]["answer"])
    assert told["content"] == "Let me see.There are 2 and 5.", "Agno joins what its model said"
    assert [one["arguments"] for one in told["tool_calls"]] == [one["input"] for one in calls]
    assert result.cost_usd == pytest.approx(len(asked) * EACH_USD)


@pytest.mark.parametrize(
    "field", [{"reasoning_content": "Hm."}, {"reasoning_details": [{"type": "reasoning.text"}]}]
)
def test_a_server_gets_its_models_thoughts_back_beside_results_and_nowhere_else(
    tmp_path: Path, field: dict[str, Any]
):
    ((name, thought),) = field.items()

    def answer(request: Request) -> Answer:
        found = clerk(request)
        found.body["choices"][0]["message"][name] = thought
        found.body["choices"][0]["message"]["reasoning"] = "never sent back"
        return found

    with LoopbackServer(answer) as server:
        run(tmp_path, server)
        bodies = [request.body for request in server.requests]
    sent = [m for body in bodies for m in body["messages"] if m["role"] == "assistant"]
    assert sent
    assert {json.dumps(m.get(name)) for m in sent} == {json.dumps(thought)}
    assert not any("reasoning" in m for m in sent)
    assert {row["status"] for row in evaluations(tmp_path)} == {"ok"}


def test_what_was_paid_for_before_a_kill_is_not_paid_for_again(tmp_path: Path):
    """The process is killed while a model answers the second question of an agent."""
    killed: list[int] = []

    def answer(request: Request) -> Answer:
        if len(server.requests) == 4 and not killed:
            killed.append(process.pid or 0)
            os.kill(killed[0], signal.SIGKILL)
        return clerk(request)

    with LoopbackServer(answer) as server:
        write_project(tmp_path, server.url, optimization__execution__parallel_workers=1)
        process = start(tmp_path)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        process = start(tmp_path)
        process.join()
        assert process.exitcode == 0
        assert is_done(tmp_path)
        n_asked = len(server.requests)
    calls = rows(tmp_path, "select call_key, attempt, state from attempts where purpose = 'agent'")
    assert n_asked == len(calls)
    again = [call for call in calls if call["attempt"] > 1]
    assert len(again) == 1  # the one that was under way
    assert len({call["call_key"] for call in calls}) == n_asked - 1


@pytest.mark.parametrize("cap", [{"max_calls": 11}, {"max_usd": 5.2 * 0.009}])
def test_caps_hold_within_an_agents_run(tmp_path: Path, cap: dict[str, float]):
    """A call reserves its prompt and 1,024 tokens of answer, the dearest of them about $0.0022."""
    with LoopbackServer(clerk) as server:
        prices = {"m": {"input": 1.0, "output": 2.0, "request": 0.009}}
        run(tmp_path, server, budget=cap, prices=prices)
        n_asked = len(server.requests)
    n_runs = len(rows(tmp_path, "select * from attempts where purpose != 'agent'"))
    ((usd,),) = (row.values() for row in rows(tmp_path, "select sum(cost_usd) from attempts"))
    assert 1 <= n_asked <= 5 if "max_usd" in cap else n_asked + n_runs <= 11
    assert usd <= cap.get("max_usd", 1.0)
    assert {row["fault"] for row in evaluations(tmp_path)} <= {None, "infrastructure"}


def test_a_loop_of_tools_ends_at_max_model_calls(tmp_path: Path):
    def loop(request: Request) -> Answer:
        n = len(results_of(request))
        return call_of("look_up", call_id=f"call_{n}", article=article_of(request))

    with LoopbackServer(loop) as server:
        run(tmp_path, server, api__agent={"max_model_calls": 3})
        found = evaluations(tmp_path)
        assert len(server.requests) == 3 * len(found)
    assert {(row["fault"], row["error_type"]) for row in found} == {
        ("candidate", "too_many_steps")
    }
    assert "api.agent.max_model_calls=3" in found[0]["error"]
    assert "look_up (3 times)" in found[0]["error"]


def test_secrets_in_arguments_and_results_are_stored_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    secret = "canary-5f0c2b81aa"  # noqa: S105 - a bait
    monkeypatch.setenv("STOCK_TOKEN", secret)

    def leak(request: Request) -> Answer:
        if results := results_of(request):
            return chat_answer(f"The token is {results[-1]}", model="m")
        return call_of("look_up", article=secret)

    agents = AGENTS.replace(
        "    return Agent", '    assert context.secret("STOCK_TOKEN")\n    return Agent'
    )
    with LoopbackServer(leak) as server:
        run(tmp_path, server, agents=agents, api__agent={"secrets": ["STOCK_TOKEN"]})
    found = evaluations(tmp_path)
    assert {(row["fault"], row["error_type"]) for row in found} == {("evaluator", "redacted")}
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    assert secret not in repr(found)


def test_of_500_calls_that_write_none_is_carried_out_unless_allowed(tmp_path: Path):
    def write(request: Request) -> Answer:
        results = results_of(request)
        if results:
            return chat_answer(results[-1], model="m")
        calls = [
            call_of("send_order", f"call_{n}", article=f"a{n}").body["choices"][0]["message"][
                "tool_calls"
            ][0]
            for n in range(50)
        ]
        return chat_answer(None, model="m", finish_reason="tool_calls", tool_calls=calls)

    with LoopbackServer(write) as server:
        run(tmp_path / "dry", server)
        found = evaluations(tmp_path / "dry")
        made = [call for row in found for call in json.loads(row["answer"])["tool_calls"]]
        assert len(made) >= 500
        assert all(call["dry_run"] for call in made)
        assert "was not carried out" in made[0]["result"]
        assert not (tmp_path / "dry/carried-out.txt").exists()
        run(tmp_path / "wet", server, api__agent={"allow_writes": True})
        n_made = len(evaluations(tmp_path / "wet")) * 50
        assert len((tmp_path / "wet/carried-out.txt").read_text().splitlines()) == n_made


@pytest.mark.parametrize(
    ("made", "kind", "text"),
    [
        ("raise ZeroDivisionError('no stock')", "ZeroDivisionError", "no stock"),
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("return 'an agent'", "no_agent", "the factory returned a str"),
        ("return Agent(tools=[look_up])", "no_model", "Write `model=context.model(…)`"),
        ("return Agent(model=context.model(3))", "no_model", "no model is named"),
        ("context.secret('HOME')", "unknown_secret", "api.agent.secrets"),
    ],
)
def test_a_factory_that_makes_no_agent_is_the_candidates_fault(
    tmp_path: Path, made: str, kind: str, text: str
):
    agents = AGENTS.replace("    return Agent", f"    {made}\n    return Agent")
    found = error_of(tmp_path, agents=agents)
    assert found[0] == kind
    assert text in found[1]


def test_a_model_of_the_agents_own_is_refused(tmp_path: Path):
    agents = AGENTS.replace(
        "    return Agent",
        """    from agno.models.base import Model
    from tasks.agents.agno_agents import RunModel
    class Own(RunModel, Model):
        pass
    Foreign = type("Foreign", (Model,), {name: Own.invoke for name in Model.__abstractmethods__})
    return Agent(model=context.model(), reasoning_model=Foreign(id="own"))
    return Agent""",
    )
    kind, text = error_of(tmp_path, agents=agents)
    assert kind == "foreign_model"
    assert "whose calls no limit would see" in text


def test_a_tool_that_hangs_ends_its_evaluation_and_is_heard_no_more(tmp_path: Path):
    released = tmp_path / "released"
    waits = f"""    import pathlib, time
    while not pathlib.Path({str(released)!r}).exists():
        time.sleep(0.01)
    return f"""
    kind, text = error_of(
        tmp_path,
        agents=AGENTS.replace("    return f", waits),
        api__request={"timeout_seconds": 0.3},
    )
    assert kind == "timeout"
    assert "look_up (1 times)" in text
    outlived = [one for one in threading.enumerate() if one.name == "agent-tool"]
    assert outlived
    released.touch()
    for one in outlived:
        one.join(60)  # one that raised would end this test
        assert not one.is_alive()


def test_runs_of_several_loops_wait_for_each_other(monkeypatch: pytest.MonkeyPatch):
    import_module("tasks.agents.agno_agents")
    cancellation = import_module("agno.run.cancel")

    # The lock that all runs of a process share is held long enough that others wait for it.
    def slow_clock() -> float:
        time.sleep(0.001)
        return time.monotonic()

    monkeypatch.setattr(cancellation.get_cancellation_manager(), "_clock", slow_clock)

    def begin(n: int) -> None:
        asyncio.run(asyncio.wait_for(cancellation.aregister_run(str(n)), 20))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(40)))  # raises what one raises
    assert {str(n) for n in range(40)} <= cancellation.get_active_runs().keys()


def test_a_tool_that_raises_is_told_to_the_model(tmp_path: Path):
    agents = AGENTS.replace(
        "    return f", "    raise ValueError('no such article')\n    return f"
    )
    with LoopbackServer(clerk) as server:
        run(tmp_path, server, agents=agents)
        results = {result for request in server.requests for result in results_of(request)}
    assert results == {"no such article"}
    assert {row["status"] for row in evaluations(tmp_path)} == {"ok"}


def test_teams_and_workflows_ask_by_the_runs_models(tmp_path: Path):
    agents = (
        AGENTS
        + """

def make_team(params, context):
    from agno.team import Team
    member = make(params, context)
    member.name = "Clerk"
    return Team(members=[member], model=context.model(), instructions="lead")


def make_workflow(params, context):
    from agno.workflow import Step, Workflow
    return Workflow(name="two", steps=[Step(name="a", agent=make(params, context)),
                                       Step(name="b", agent=make(params, context))])
"""
    )

    def lead(request: Request) -> Answer:
        tools = [tool["function"]["name"] for tool in request.body["tools"]]
        if "delegate_task_to_member" not in tools:
            return clerk(request) if article_of(request) else chat_answer("none", model="m")
        if results := results_of(request):
            return chat_answer(f"The clerk says: {results[-1]}", model="m")
        return call_of(
            "delegate_task_to_member", member_id="clerk", task=f"stock of {article_of(request)}?"
        )

    with LoopbackServer(lead) as server:
        for name, n_calls in (("make_team", 4), ("make_workflow", 4)):
            run(
                tmp_path / name,
                server,
                agents=agents,
                api__function=f"agents.py:{name}",
                api__request={"timeout_seconds": 120},
            )
            found = evaluations(tmp_path / name)
            assert {row["status"] for row in found} == {"ok"}
            assert {round(row["cost_usd"] / EACH_USD, 6) for row in found} == {n_calls}
            assert all("in stock" in row["answer"] for row in found)
