"""What orchestration, journal and store cost beside the target itself.

    python -m benchmarks.overhead [--runs 3]

Two measurements. (1) Client CPU per evaluation of a 0 ms function with a server up: one generation
of 20 candidates with 50 cells each against one with a single cell each (built-in metric, least of
the runs), so that the difference is 980 cells of the search and 49 of the final test. (2) Wall time without a running server: `convergence optimize` of one
and of five generations against a bare flow of one task.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import describe_machine, measure
from tests.support.prefect_server import PrefectServer

ROOT = Path(__file__).parents[1]
TARGET = """
def answer(case, params):
    return {"result": params["x"]}
"""
BARE = """
from tasks.prefect_support.settings import prepare
prepare(quiet=True)
from prefect import flow, task
@task
def one(): return 1
@flow
def bare(): return one()
bare()
"""


def write_project(folder: Path, *, n_cases: int, generations: int) -> None:
    """Write a configuration of 20 candidates a generation on so many cases."""
    folder.mkdir(parents=True)
    (folder / "target.py").write_text(TARGET, encoding="utf-8")
    cases = [{"id": f"c{i}", "input": {"n": i}, "expected": 1} for i in range(n_cases)]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    (folder / "optimization.yaml").write_text(
        f"""
api: {{name: zero, kind: function, function: "target.py:answer"}}
search_space: {{parameters: {{x: {{type: float, min: 0, max: 1}}}}}}
evaluation:
  test_cases: {{path: cases.json}}
  metrics: {{exact_match: {{weight: 1}}}}
optimization:
  algorithm: random
  evolution: {{population_size: 20, generations: {generations}}}
  execution: {{parallel_workers: 8, early_stopping: {{enabled: false}}}}
output: {{formats: [json]}}
""",
        encoding="utf-8",
    )


def optimize(folder: Path, env: dict[str, str]) -> tuple[float, float]:
    """Return (wall seconds, CPU seconds) of one run."""
    done = measure(
        [sys.executable, "-m", "convergence", "optimize", "--quiet"], cwd=folder, env=env
    )
    return done.wall_s, done.cpu_s


def cpu_per_evaluation(scratch: Path, runs: int) -> None:
    """Measure (1); the final test adds one cell per case, which is counted."""
    scratch.mkdir()
    with PrefectServer(scratch) as server:
        env = {**os.environ, **server.environment, "PYTHONPATH": str(ROOT)}
        cpu: dict[int, list[float]] = {}
        n_cells = {}
        for run in range(runs + 1):
            for n_cases in (1, 50):
                folder = scratch / f"cpu-{n_cases}-{run}"
                write_project(folder, n_cases=n_cases, generations=1)
                _, seconds = optimize(folder, env)
                n_cells[n_cases] = 20 * n_cases + n_cases
                if run > 0:  # the first run warms the caches
                    cpu.setdefault(n_cases, []).append(seconds)
    # Noise only ever adds CPU time, so the least of several runs is the cleanest.
    few, many = min(cpu[1]), min(cpu[50])
    per_cell = (many - few) / (n_cells[50] - n_cells[1])
    print(f"client CPU, {n_cells[1]} cells:    {few:.2f} s (fixed cost)")
    print(f"client CPU, {n_cells[50]} cells:  {many:.2f} s")
    print(f"client CPU per evaluation: {per_cell * 1e3:.3f} ms")


def wall_beyond_a_bare_flow(scratch: Path, runs: int) -> None:
    """Measure (2), each time with a fresh ephemeral server."""
    scratch.mkdir()
    env = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"}
    env |= {"PYTHONPATH": str(ROOT), "PREFECT_HOME": str(scratch / "home")}
    bare: list[float] = []
    ours: dict[int, list[float]] = {1: [], 5: []}
    for run in range(runs + 1):
        seconds = measure([sys.executable, "-c", BARE], cwd=ROOT, env=env).wall_s
        walls = {}
        for generations in ours:
            folder = scratch / f"wall-{generations}-{run}"
            write_project(folder, n_cases=5, generations=generations)
            walls[generations], _ = optimize(folder, env)
        if run > 0:
            bare.append(seconds)
            for generations, wall in walls.items():
                ours[generations].append(wall)
    base = statistics.median(bare)
    print(f"bare one-task flow, no server running: {base:.1f} s")
    for generations, walls_s in ours.items():
        wall = statistics.median(walls_s)
        beyond = wall - base
        allowed = 2 + generations
        print(
            f"convergence optimize, {generations} generation(s):   {wall:.1f} s, "
            f"{beyond:+.1f} s beyond the bare flow (goal: at most {allowed} s)"
        )


def main() -> None:
    """Run both and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=["cpu", "wall"], help="one of the two measurements")
    options = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as scratch:
        if options.only != "wall":
            cpu_per_evaluation(Path(scratch) / "cpu", options.runs)
        if options.only != "cpu":
            wall_beyond_a_bare_flow(Path(scratch) / "wall", options.runs)


if __name__ == "__main__":
    main()
