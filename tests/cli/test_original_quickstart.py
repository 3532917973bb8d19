"""The quick start of version 0.1's README, with its missing import, against a local endpoint."""

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_server import Answer, LoopbackServer, Request

# As in the README of the-convergence 0.1.8 (Apache-2.0); two names were missing in its import.
SNIPPET = """\
from convergence import run_optimization
from convergence.types import ConvergenceConfig, ApiConfig, SearchSpaceConfig
from convergence.types import EvaluationConfig, RunnerConfig  # missing there

config = ConvergenceConfig(
    api=ApiConfig(name="my_api", endpoint="https://api.example.com/v1/chat"),
    search_space=SearchSpaceConfig(parameters={
        "temperature": {"type": "float", "min": 0.1, "max": 1.5},
        "model": {"type": "categorical", "choices": ["gpt-4o-mini", "gpt-4o"]}
    }),
    evaluation=EvaluationConfig(required_metrics=["quality"], weights={"quality": 1.0}),
    runner=RunnerConfig(generations=10, population=20)
)

result = await run_optimization(config)
print(f"Best config: {result['best_config']}")
print(f"Best score: {result['best_score']}")
"""


def quality_of(request: Request) -> Answer:
    """Answer with the quality of what was asked."""
    asked = request.body
    quality = 1 - abs(asked["temperature"] - 0.7) - (0.1 if asked["model"] == "gpt-4o" else 0)
    return Answer({"success": True, "result": {"quality": max(0.0, quality)}})


@pytest.mark.prefect
@pytest.mark.slow
def test_quick_start_of_the_original_runs(here: Path, capsys: pytest.CaptureFixture[str]):
    with LoopbackServer(quality_of) as server:
        code = compile(
            SNIPPET.replace("https://api.example.com/v1/chat", f"{server.url}/v1/chat"),
            "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        )  # fmt: skip
        names: dict[str, Any] = {}
        asyncio.run(eval(code, names))  # noqa: S307 - top-level await, as in a notebook
    seen = [request.body for request in server.requests]
    result = names["result"]
    assert result["success"] is True
    assert abs(result["best_config"]["temperature"] - 0.7) < 0.2
    assert result["best_config"]["model"] == "gpt-4o-mini"
    assert result["best_score"] > 0.8
    assert f"Best config: {result['best_config']}" in capsys.readouterr().out
    assert {"temperature", "model"} == set(seen[0])
    assert all(0.1 <= body["temperature"] <= 1.5 for body in seen)
