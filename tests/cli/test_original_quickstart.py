"""The quick start of version 0.1's README, with its missing import, against a local endpoint."""

import ast
import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

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


class Endpoint(BaseHTTPRequestHandler):
    """Answers with the quality of what it was asked."""

    seen: list[dict[str, Any]]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        quality = 1 - abs(body["temperature"] - 0.7) - (0.1 if body["model"] == "gpt-4o" else 0)
        data = json.dumps({"success": True, "result": {"quality": max(0.0, quality)}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    seen: list[dict[str, Any]] = []
    handler = type("Handler", (Endpoint,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/chat", seen
        server.shutdown()


@pytest.mark.prefect
@pytest.mark.slow
def test_quick_start_of_the_original_runs(
    endpoint: tuple[str, list[dict[str, Any]]], here: Path, capsys: pytest.CaptureFixture[str]
):
    url, seen = endpoint
    code = compile(
        SNIPPET.replace("https://api.example.com/v1/chat", url),
        "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )  # fmt: skip
    names: dict[str, Any] = {}
    asyncio.run(eval(code, names))  # noqa: S307 - top-level await, as in a notebook
    result = names["result"]
    assert result["success"] is True
    assert abs(result["best_config"]["temperature"] - 0.7) < 0.2
    assert result["best_config"]["model"] == "gpt-4o-mini"
    assert result["best_score"] > 0.8
    assert f"Best config: {result['best_config']}" in capsys.readouterr().out
    assert {"temperature", "model"} == set(seen[0])
    assert all(0.1 <= body["temperature"] <= 1.5 for body in seen)
