"""Runs that think, without Prefect: a project whose optimum is known, one generation at a time."""

from pathlib import Path
from typing import Any

import yaml

from tasks.rlp.learner import RlpLearner
from tasks.run.run import Run
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.optimizations import write_project
from tests.support.stepped_runs import STORE, begin, play
from tests.support.thinking_server import ThinkingWorld, thinking_server

SETTING = {"x": 0.71, "kind": "b"}
"""Near the optimum."""


def truth(told: dict[str, str]) -> float:
    """The reward of the project's function, cases aside."""
    return 1.0 - (float(told["x"]) - 0.7) ** 2 * 2.0 - (0.3 if told["kind"] != "b" else 0.0)


TARGET = """
import json
from pathlib import Path

HERE = Path(__file__).parent


def answer(case, params):
    with (HERE / "ledger.jsonl").open("a") as ledger:
        ledger.write(json.dumps([case["n"], sorted(params.items())]) + "\\n")
    import os, time
    time.sleep(float(os.environ.get("TARGET_DELAY_S", "0")))
    loss = 2.0 * (params["x"] - 0.7) ** 2 + (0.3 if params["kind"] != "b" else 0)
    return {"result": 1.0 - loss - 0.01 * (case["n"] % 5)}


def worth(result, expected, params, metric):
    return min(1.0, max(0.0, result))
"""


def write_thoughtful(folder: Path, url: str | None, **overrides: Any) -> Path:
    """Write a project that asks a thinker at a URL; ``None``: it names no model."""
    settings: dict[str, Any] = {
        "society": {"enabled": True},
        "optimization__evolution": {"population_size": 8, "generations": 4},
        **overrides,
    }
    if url is not None:
        settings["llm"] = {"model": "thinker", "endpoint": url, "timeout_seconds": 5}
    path = write_project(folder, **settings)
    (folder / "target.py").write_text(TARGET, encoding="utf-8")
    return path


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return ParquetStore(folder / STORE).rows(sql)


def run_whole(folder: Path, world: ThinkingWorld, **overrides: Any) -> list[Any]:
    """Run a project to its end; return what listeners were told."""
    events: list[Any] = []
    with thinking_server(world) as server:
        write_thoughtful(folder, server.url, **overrides)
        play(begin(folder, on_event=events.append))
    return events


def learner_of(run: Run) -> RlpLearner:
    """RLP of a run in which it is on."""
    found = run.learners["rlp"]
    assert isinstance(found, RlpLearner)
    return found


def configuration_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "optimization.yaml").read_text("utf-8"))
    return found


def scored_thoughts(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what a run's thoughts, forecasts and candidates share with those of another run."""
    thoughts = "select * exclude (created_at, run_id, thought_id) from thoughts order by all"
    predictions = (
        "select * exclude (committed_at, run_id, thought_id) from predictions order by all"
    )
    candidates = "select * exclude (run_id) from candidates order by all"
    return {
        "thoughts": rows(folder, thoughts),
        "predictions": rows(folder, predictions),
        "candidates": rows(folder, candidates),
    }
