"""Runs without a key: results apart, and a mock with which every part of a run can be tried."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import ConfigurationError
from convergence_core.records import Case, Params, Reply
from tasks.calls.metric_calls import PaidCall
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_metrics, make_target
from tasks.inputs.loader import load, load_mapping
from tasks.metrics.judge.judge import LlmJudge
from tasks.mock.mock_server import MockServer
from tests.docs.test_documents import ROOT, blocks
from tests.flows.test_network import WATCH
from tests.support.commands import Runner

PAGE = (ROOT / "docs/offline.md").read_text(encoding="utf-8")
CONVERGENCE = [sys.executable, "-m", "convergence"]
"""What is added to the example of chat endpoints; its own limit ends the run before the pairs are judged."""


@pytest.mark.prefect
@pytest.mark.slow
def test_an_endpoint_its_judge_and_society_are_stood_in_for_as_printed_and_no_host_is_called(
    here: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    (block,) = [b for b in blocks(PAGE, "yaml") if "auto_generate_agents" in b]
    (here / "optimization.yaml").write_text(block)
    (here / "test_cases.json").write_text(blocks(PAGE, "json")[0])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("API_KEY", "target-key-1234567")
    valid = cli("validate")
    assert valid.code == 0, valid.out + valid.err
    # Imported by every Python process that starts with this folder on its path.
    (here / "watch").mkdir()
    (here / "watch/sitecustomize.py").write_text(f"LOG = {str(here / 'outside.log')!r}\n{WATCH}")
    done = subprocess.run(
        [*CONVERGENCE, "optimize", "--offline", "--generations", "4", "--json"],
        env={**os.environ, "PYTHONPATH": f"{here / 'watch'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (here / "outside.log").exists(), (here / "outside.log").read_text()
    assert json.loads(done.stdout)["thinking"]["n_thoughts"] > 0
    calls = cli(
        "query", "select purpose, sum(n_calls) as n from costs group by all", "--json"
    ).json
    assert {"evaluation", "judge", "thought", "sao"} <= {c["purpose"] for c in calls}
    sent = cli("query", "select distinct text from payloads", "--json").out
    assert "https://host/v1/chat" in sent
    assert "target-key-1234567" not in sent


ANSWERS: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
    ({}, {"text": {"type": "similarity", "expected_field": "team"}}, str),
    ({"result_field": "data[1].text", "cost_field": "bill.usd"}, {"cost_usd": {}}, str),
    (
        {"result_field": "result"},
        {"team": {"type": "exact_match", "field": "out.team", "expected_field": "team"}},
        {"out": {"team": str}},
    ),
    ({}, {"same": {"type": "exact_match"}}, {"team": str, "sure": bool, "tags": list, "n": int}),
]


@pytest.mark.parametrize(("response", "metrics", "form"), ANSWERS)
def test_an_endpoints_stand_in_answers_in_the_form_that_the_configuration_reads(
    response: dict[str, Any], metrics: dict[str, Any], form: Any, tmp_path: Path
):
    expected = [{"team": t, "sure": True, "tags": ["a"], "n": 3} for t in ("red", "blue", "red")]
    tree = {
        "api": {"name": "a", "endpoint": "https://host.invalid/x", "response": response},
        "search_space": {"parameters": {"temperature": {"type": "float", "min": 0, "max": 1}}},
        "evaluation": {
            "test_cases": {
                "inline": [{"input": {"q": i}, "expected": e} for i, e in enumerate(expected)]
            },
            "metrics": metrics,
        },
    }

    async def answer(url: str) -> Reply:
        loaded = load_mapping(tree, tmp_path)
        target = make_target(loaded, Environment.of(loaded.configuration, mock_url=url))
        try:
            return await target.call({"temperature": 0.3}, loaded.cases[0])
        finally:
            await target.aclose()

    with MockServer() as server:
        reply = asyncio.run(answer(server.url))
    assert _form_of(reply.value) == form
    assert (reply.cost_usd is None) == ("cost_field" not in response)


def _form_of(value: Any) -> Any:
    return {k: _form_of(v) for k, v in value.items()} if isinstance(value, dict) else type(value)


def test_a_run_that_asks_no_model_has_nobody_to_stand_in_for(here: Path, cli: Runner):
    assert cli("init", ".", "--template", "function", "--non-interactive").code == 0
    done = cli("optimize", "--offline")
    assert done.code == 2
    assert "calls nothing that `--offline` can mock" in done.err
    assert "metrics of type `llm_judge`" in done.err.replace("\n", " ")


def test_the_stand_in_judges_a_function_of_which_no_model_is_named(here: Path, cli: Runner):
    (here / "f.py").write_text("def go(k, text):\n    return text * k\n")
    (here / "cases.csv").write_text("input.text,expected\nhello,hello\n")
    (here / "optimization.yaml").write_text(
        "api: {name: s, function: 'f.py:go'}\n"
        "search_space: {parameters: {k: {type: int, min: 1, max: 3}}}\n"
        "evaluation: {test_cases: cases.csv, metrics: {quality: {type: llm_judge}}}\n"
    )
    for command in ("validate", "estimate"):
        done = cli(command)
        assert done.code == 2
        assert "`evaluation.metrics.quality.llm` is required" in done.err.replace("\n", " ")
    loaded = load(here / "optimization.yaml")
    with pytest.raises(ConfigurationError, match="quality"):
        Environment.of(loaded.configuration)
    with MockServer() as server:
        world = Environment.of(loaded.configuration, mock_url=server.url)
        (judge,) = make_metrics(loaded, world)
        assert isinstance(judge, LlmJudge)

        async def judged() -> dict[str, float]:
            try:
                return await judge.judge(
                    Reply(value="hello", latency_ms=1.0), loaded.cases[0], {}, asker
                )
            finally:
                await judge.aclose()

        asker = _Asker()
        assert 0 <= asyncio.run(judged())["quality"] <= 1
    assert [(reply.cost_usd, reply.model) for reply in asker.replies] == [(0, "stand-in")]


class _Asker:
    """Makes calls of a judge as they come."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    async def ask(self, call: PaidCall) -> Reply:
        self.replies.append(await call.send())
        return self.replies[-1]

    async def answer_of(self, params: Params, case: Case) -> Reply:
        raise NotImplementedError
