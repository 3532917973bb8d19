"""Cost of orchestration, journal and store on top of the target.

    python -m benchmarks.overhead [--runs 3]

Two measurements. (1) Client CPU per evaluation of a 0 ms function with a server up: one generation
of 20 candidates with 50 cells each against one with a single cell each (built-in metric, minimum
over runs). The difference is 980 cells of the search and 49 of the final test. (2) Wall time without
a running server: `convergence optimize` of one and of five generations against a bare flow of one task.
"""

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import Measured, describe_machine, measure, options
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
    """Write a configuration with 20 candidates per generation."""
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


def optimize(folder: Path, env: dict[str, str]) -> Measured:
    """Run the command in a folder."""
    command = [sys.executable, "-m", "convergence", "optimize", "--quiet"]
    return measure(command, cwd=folder, env=env)


def cpu_per_evaluation(scratch: Path, runs: int) -> None:
    """Measure (1). The count includes the final test's one cell per case."""
    cpu: dict[int, list[float]] = {1: [], 50: []}
    with PrefectServer(scratch) as server:
        env = {**os.environ, **server.environment, "PYTHONPATH": str(ROOT)}
        for run in range(runs + 1):
            for n_cases, seconds in cpu.items():
                folder = scratch / f"cpu-{n_cases}-{run}"
                write_project(folder, n_cases=n_cases, generations=1)
                seconds.append(optimize(folder, env).cpu_s)
    # The first run warms the caches. Noise only adds CPU time, so the minimum is the cleanest.
    few, many = (min(seconds[1:]) for seconds in cpu.values())
    print(f"client CPU, 21 cells:     {few:.2f} s (fixed cost)")
    print(f"client CPU, 1,050 cells:  {many:.2f} s")
    print(f"client CPU per evaluation: {(many - few) / (1_050 - 21) * 1e3:.3f} ms")


def wall_beyond_a_bare_flow(scratch: Path, runs: int) -> None:
    """Measure (2), each time with a fresh ephemeral server; the first run warms the caches."""
    env = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"}
    env |= {"PYTHONPATH": str(ROOT), "PREFECT_HOME": str(scratch / "home")}
    walls: dict[int, list[float]] = {0: [], 1: [], 5: []}
    for run in range(runs + 1):
        for generations, seconds in walls.items():
            if not generations:
                seconds.append(measure([sys.executable, "-c", BARE], cwd=ROOT, env=env).wall_s)
                continue
            folder = scratch / f"wall-{generations}-{run}"
            write_project(folder, n_cases=5, generations=generations)
            seconds.append(optimize(folder, env).wall_s)
    base, one, five = (statistics.median(seconds[1:]) for seconds in walls.values())
    print(f"bare one-task flow, no server running: {base:.1f} s")
    print(f"convergence optimize, 1 generation: {one:.1f} s, {one - base:+.1f} s (goal: 3 s)")
    print(f"convergence optimize, 5 generations: {five:.1f} s, {five - base:+.1f} s (goal: 7 s)")


def main() -> None:
    """Run both and print them."""
    runs = options(__doc__, runs=3).runs
    print(describe_machine())
    for measured in (cpu_per_evaluation, wall_beyond_a_bare_flow):
        with tempfile.TemporaryDirectory() as scratch:
            measured(Path(scratch), runs)


if __name__ == "__main__":
    main()
