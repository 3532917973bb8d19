"""Overhead of orchestration on slow calls.

    python -m benchmarks.orchestration --rounds 3

A local server answers after 300 ms. A run of 10 generations of 20 candidates with 10 cells each,
20 calls in flight, uses Prefect (server already up, shipped profile). A bare asyncio loop of 20
workers on one ``httpx.AsyncClient`` then makes as many calls to the same server. Each runs in a
separate process. A run's wall time spans from reading its configuration to writing its result
files; *with imports* covers the whole process.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.answering import Answer, response, serve, serving
from benchmarks.machine import Measured, describe_machine, measure, options
from benchmarks.tables import header, row
from deployments.nightly.plan import JOB_ENVIRONMENT
from tests.support.prefect_server import PrefectServer

ROOT = Path(__file__).parents[1]
MODULE = "benchmarks.orchestration"
N_WORKERS = 20
DELAY_S = 0.3
_HAPPY = response({"result": "happy"})


def sleepy() -> Answer:
    """Return a responder that delays; ``/calls`` answers immediately with the number of calls."""
    n_calls = 0

    def answer(head: bytes) -> tuple[bytes, float]:
        nonlocal n_calls
        if head.startswith(b"get /calls "):
            return response({"calls": n_calls}), 0.0
        n_calls += 1
        return _HAPPY, DELAY_S

    return answer


def calls_of(url: str) -> int:
    """Return the number of calls the server has answered."""
    return int(httpx.get(f"{url}/calls", trust_env=False).json()["calls"])


def write_project(folder: Path, url: str) -> Path:
    """Write the run's configuration and return its path."""
    folder.mkdir(parents=True)
    cases = [{"id": f"c{n}", "input": {"message": str(n)}, "expected": "happy"} for n in range(10)]
    tree = {
        "api": {"name": "sleeper", "kind": "http", "endpoint": f"{url}/mood"},
        "search_space": {"parameters": {"temperature": {"type": "float", "min": 0, "max": 1}}},
        "evaluation": {
            "test_cases": {"inline": cases},
            "metrics": {"right": {"type": "exact_match", "weight": 1}},
        },
        "optimization": {
            "algorithm": "random",
            "evolution": {"population_size": 20, "generations": 10},
            "execution": {"parallel_workers": N_WORKERS, "early_stopping": {"enabled": False}},
        },
    }
    path = folder / "optimization.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
    return path


def run_part(config: str) -> None:
    """Run as the command line does and print the wall time without imports."""
    from tasks.prefect_support.settings import prepare  # noqa: PLC0415 - sets the environment first

    prepare(quiet=True)
    import flows.optimize  # noqa: F401, PLC0415 - after its environment
    from convergence.optimize.execution import execute  # noqa: PLC0415 - as above
    from tasks.inputs.loader import load  # noqa: PLC0415 - as above
    from tasks.run.opener import prepare_run  # noqa: PLC0415 - as above

    began = time.perf_counter()
    execute(prepare_run(load(Path(config))), verbose=False)
    print(f"\n{time.perf_counter() - began}")


async def bare_part(url: str, n_calls: int) -> None:
    """Make the calls from a bare loop and print the wall time."""
    left = iter(range(n_calls))
    limits = httpx.Limits(max_connections=N_WORKERS, max_keepalive_connections=N_WORKERS)
    began = time.perf_counter()
    async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=30.0) as client:

        async def work() -> None:
            for number in left:
                body = {"message": str(number), "temperature": 0.5}
                (await client.post(f"{url}/mood", json=body)).raise_for_status()

        await asyncio.gather(*(work() for _ in range(N_WORKERS)))
    print(f"\n{time.perf_counter() - began}")


def part(environment: dict[str, str], *arguments: str) -> tuple[float, Measured]:
    """Run a part of this script in a separate process; return the wall time it prints."""
    env = {**os.environ, **environment}
    done = measure([sys.executable, "-m", MODULE, *arguments], cwd=ROOT, env=env)
    return float(done.output.splitlines()[-1]), done


def main() -> None:
    """Measure all parts and print the table."""
    rounds = options(__doc__, rounds=3).rounds
    print(describe_machine())
    names = ("bare loop, s", "run, s", "share", "with imports, s", "share", "CPU of the run, s")
    print(header(*names))
    shares = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        PrefectServer(Path(scratch)) as server,
        serving(MODULE, ("serve",)) as url,
    ):
        for number in range(rounds):
            config = write_project(Path(scratch) / f"project-{number}", url)
            n_before = calls_of(url)
            run_s, run = part({**server.environment, **JOB_ENVIRONMENT}, "run", str(config))
            bare_s, _ = part({}, "bare", url, str(calls_of(url) - n_before))
            shares.append((run_s / bare_s, run.wall_s / bare_s))
            cells = (f"{bare_s:.1f}", f"{run_s:.1f}", f"{shares[-1][0]:.1%}", f"{run.wall_s:.1f}")
            print(row(*cells, f"{shares[-1][1]:.1%}", f"{run.cpu_s:.1f}"), flush=True)
    medians = [statistics.median(kind) for kind in zip(*shares, strict=True)]
    print(f"\nmedian share of the bare loop: run {medians[0]:.1%}, with imports {medians[1]:.1%}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sleepy()))
    elif sys.argv[1:2] == ["run"]:
        run_part(sys.argv[2])
    elif sys.argv[1:2] == ["bare"]:
        asyncio.run(bare_part(sys.argv[2], int(sys.argv[3])))
    else:
        main()
