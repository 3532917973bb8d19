"""Small real optimizations for tests: a Python function whose optimum is known."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.configuration_files import write_configuration

ROOT = Path(__file__).parents[2]

TARGET = '''
"""A function with a known optimum, x=0.7 and kind="b", that writes down every call."""

import json
import os
import time
from pathlib import Path
from tests.support.configuration_files import write_configuration

HERE = Path(__file__).parent


def answer(case, params):
    line = json.dumps([case["n"], sorted(params.items())]) + "\\n"
    with (HERE / "ledger.jsonl").open("a") as ledger:
        ledger.write(line)
        ledger.flush()
    time.sleep(float(os.environ.get("TARGET_DELAY_S", "0")))
    closeness = 1 - (params["x"] - 0.7) ** 2 - (0.3 if params["kind"] != "b" else 0)
    return {"result": closeness - 0.01 * (case["n"] % 5)}


def worth(result, expected, params, metric):
    return min(1.0, max(0.0, result))
'''


def write_project(folder: Path, **overrides: Any) -> Path:
    """Write a runnable project and return its configuration's path.

    Keyword arguments replace keys by dotted path, ``.`` written as ``__``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "target.py").write_text(TARGET, encoding="utf-8")
    cases = [{"id": f"c{n:02d}", "input": {"n": n}, "expected": None} for n in range(12)]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    tree: dict[str, Any] = {
        "api": {"name": "known", "kind": "function", "function": "target.py:answer"},
        "search_space": {
            "parameters": {
                "x": {"type": "float", "min": 0.0, "max": 1.0, "default": 0.1},
                "kind": {"type": "categorical", "choices": ["a", "b", "c"], "default": "a"},
            }
        },
        "evaluation": {
            "test_cases": {"path": "cases.json", "holdout": 0.25},
            "metrics": {
                "worth": {"type": "function", "function": "target.py:worth"},
                "latency_ms": {"weight": 0},
            },
        },
        "optimization": {
            "seed": 3,
            "evolution": {"population_size": 6, "generations": 4},
            "execution": {"parallel_workers": 4, "early_stopping": {"enabled": False}},
        },
    }
    return write_configuration(folder, tree, overrides)


def ledger(folder: Path) -> list[str]:
    """Return one line per call that reached the target."""
    path = folder / "ledger.jsonl"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def start_command(*arguments: str, cwd: Path, **env: str) -> "subprocess.Popen[str]":
    """Start the command line in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "convergence", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_command(*arguments: str, cwd: Path, **env: str) -> str:
    """Run the command line to its good end; return its standard output."""
    process = start_command(*arguments, cwd=cwd, **env)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, f"{out}\n{err}"
    return out


def kill_once(process: "subprocess.Popen[str]", look: Callable[[], bool]) -> None:
    """Kill a command with its group by SIGKILL as soon as ``look`` is true; it must not have ended."""
    while process.poll() is None and not look():
        time.sleep(0.002)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def tables_of(store: Path) -> dict[str, list[dict[str, object]]]:
    """Return what a run found, without times, latencies, attempt numbers and flow runs."""
    from tasks.store.tables.parquet_store import ParquetStore

    results = ParquetStore(store)
    queries = {
        "candidates": "select candidate_id, generation, origin, parent_ids, params_json "
        "from candidates order by all",
        "evaluations": "select generation, candidate_id, case_id, replicate, role, status, "
        "reward, metrics['worth'] as worth, cached, payload_sha256 from evaluations order by all",
        "generations": "select generation, status, n_candidates, n_evaluations, raw_best_reward, "
        "raw_mean_reward, rng_state_json, sampler_state_json from generations order by all",
        "runs": "select name, status, seed, config_sha256, n_generations, reason from runs "
        "where status = 'done'",
    }
    return {name: results.rows(sql) for name, sql in queries.items()}
