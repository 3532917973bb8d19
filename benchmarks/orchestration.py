"""What orchestration adds to calls that take their time, and what it costs the server.

    python -m benchmarks.orchestration [--rounds 3]
    python -m benchmarks.orchestration --feed
    python -m benchmarks.orchestration --garbage

A server of our own answers after 300 ms. A run of 10 generations of 20 candidates with 10 cells
each, 20 calls in flight, goes through Prefect (server already up, shipped profile); a bare asyncio
loop of 20 workers on one ``httpx.AsyncClient`` then makes as many calls of the same server. Both
run in fresh processes, in alternating order.

Told of each run are the wall time, from reading its configuration to its result files, and that of
the whole process, imports included, as shares of the bare loop's; and the CPU of Prefect's server
for all that it did until every task run was recorded, less what it uses when idle. Flows of many
empty subflows, and of many empty tasks, give the price of each; the run's own share per task run is
what is left after its subflows. ``--feed`` tells only both prices of task runs, of a server whose feed of
events keeps all that they send, as Prefect's own does, and of one as we start it, in turn; ``--garbage``
that of an empty task run, of a server whose Python looks for garbage as often as it does by default, and
of one as we start it.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.answering import Answer, response, serve, serving
from benchmarks.machine import cpu_of, describe_machine
from deployments.nightly.plan import JOB_ENVIRONMENT
from tasks.prefect_support.settings import prepare
from tests.support.prefect_server import PrefectServer

ROOT = Path(__file__).parents[1]
N_WORKERS = 20
N_CANDIDATES = 20
N_CASES = 10
DELAY_S = 0.3
SETTLED_S = 3.0
"""How long the number of recorded task runs must not change."""
IDLE_S = 60.0
"""How long the idle server is watched: as long as the longest round of its services."""


# -- the server that is asked


def sleepy(delay_s: float) -> Answer:
    """Return what answers after a while; ``/calls`` at once, with the number of calls."""
    n_calls = 0

    def answer(head: bytes) -> tuple[bytes, float]:
        nonlocal n_calls
        if head.startswith(b"get /calls "):
            return response({"calls": n_calls}), 0.0
        n_calls += 1
        return _HAPPY, delay_s

    return answer


_HAPPY = response({"result": "happy"})


def sleeping_server(delay_s: float) -> AbstractContextManager[str]:
    """Run the server in a process of its own; return its URL."""
    return serving("benchmarks.orchestration", ("--part", "serve", "--delay", str(delay_s)))


def calls_of(url: str) -> int:
    """Return how many calls the server has answered."""
    found: int = httpx.get(f"{url}/calls", trust_env=False).json()["calls"]
    return found


# -- the parts, each in a process of its own


def write_project(
    folder: Path,
    url: str,
    *,
    generations: int,
    candidates: int = N_CANDIDATES,
    in_flight: int = N_WORKERS,
) -> Path:
    """Write the configuration of the run, and return its path."""
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
            "evolution": {"population_size": candidates, "generations": generations},
            "execution": {
                "parallel_workers": in_flight,
                "early_stopping": {"enabled": False},
            },
        },
    }
    path = folder / "optimization.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")  # which is YAML
    return path


def run_part(config: Path) -> None:
    """Run as the command line does and tell the wall time; imports are not in it."""
    prepare(quiet=True)
    import flows.optimize  # noqa: F401, PLC0415 - after its environment
    from convergence.optimize.execution import execute  # noqa: PLC0415 - as above
    from tasks.inputs.loader import load  # noqa: PLC0415 - as above
    from tasks.run.opener import prepare_run  # noqa: PLC0415 - as above

    began = time.perf_counter()
    execute(prepare_run(load(config)), verbose=False)
    wall_s = time.perf_counter() - began
    print(json.dumps({"wall_s": wall_s, "cpu_s": time.process_time()}))


async def bare_part(url: str, n_calls: int) -> None:
    """Make the calls from a bare loop and tell the wall time."""
    left = iter(range(n_calls))
    limits = httpx.Limits(max_connections=N_WORKERS, max_keepalive_connections=N_WORKERS)
    began = time.perf_counter()
    async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=30.0) as client:

        async def work() -> None:
            for number in left:
                body = {"message": str(number), "temperature": 0.5}
                response = await client.post(f"{url}/mood", json=body)
                response.raise_for_status()

        await asyncio.gather(*(work() for _ in range(N_WORKERS)))
    print(json.dumps({"wall_s": time.perf_counter() - began}))


def empty_part(n_subflows: int, n_tasks: int) -> None:
    """Run a flow of so many empty subflows and so many empty tasks."""
    prepare(quiet=True)
    from prefect import flow, task  # noqa: PLC0415 - as above

    @task
    def one(number: int) -> int:
        return number

    @flow
    def inner() -> None:
        pass

    @flow
    def outer() -> None:
        for _ in range(n_subflows):
            inner()
        for number in range(n_tasks):
            one(number)

    outer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part, run."""

    wall_s: float
    """As the part tells it; the whole process's where it tells none."""
    process_s: float
    """Of the whole process."""
    cpu_s: float
    """Of the process."""
    told: Any = None


def run(environment: dict[str, str], *arguments: str) -> Part:
    """Run a part of this script in a process of its own.

    Raises:
        RuntimeError: it failed.
    """
    before = os.times()
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.orchestration", *arguments],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    process_s = time.perf_counter() - began
    after = os.times()
    if done.returncode != 0:
        raise RuntimeError(f"{arguments} failed:\n{done.stdout}\n{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    return Part(
        wall_s=told.get("wall_s", process_s),
        process_s=process_s,
        cpu_s=told.get(
            "cpu_s",
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system,
        ),
        told=told,
    )


# -- Prefect's server


def recorded(api_url: str) -> tuple[int, int]:
    """Return how many flow runs and task runs the server knows in an end state."""
    ended = {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]}}
    counts = []
    for kind in ("flow", "task"):
        body = {f"{kind}_runs": {"state": ended}}
        answer = httpx.post(f"{api_url}/{kind}_runs/count", json=body, timeout=60, trust_env=False)
        counts.append(int(answer.json()))
    return counts[0], counts[1]


def settle(api_url: str) -> tuple[int, int]:
    """Wait until the server has recorded all that it was told."""
    before = (-1, -1)
    while (now := recorded(api_url)) != before:
        before = now
        time.sleep(SETTLED_S)
    return now


@dataclass(slots=True, kw_only=True)
class Served:
    """What the server did for a while."""

    cpu_s: float = 0.0
    """Beyond what it uses when idle."""
    n_flows: int = 0
    n_tasks: int = 0


class Watched:
    """A Prefect server whose CPU is watched."""

    def __init__(self, server: PrefectServer) -> None:
        self.server = server
        settle(server.api_url)
        time.sleep(SETTLED_S)
        self.idle = self._rate(IDLE_S)
        """CPU seconds a second."""

    def _rate(self, seconds: float) -> float:
        began, cpu = time.perf_counter(), cpu_of(self.server.pid)
        time.sleep(seconds)
        return (cpu_of(self.server.pid) - cpu) / (time.perf_counter() - began)

    def run_of(self, config: Path) -> Part:
        """Run the optimization of a configuration."""
        environment = {**self.server.environment, **JOB_ENVIRONMENT}
        return run(environment, "--part", "run", "--config", str(config))

    @contextlib.contextmanager
    def counting(self) -> Iterator[Served]:
        """Count what the server does for the block, until all of it is recorded."""
        before = settle(self.server.api_url)
        began, cpu = time.perf_counter(), cpu_of(self.server.pid)
        counted = Served()
        yield counted
        after = settle(self.server.api_url)
        counted.cpu_s = cpu_of(self.server.pid) - cpu - self.idle * (time.perf_counter() - began)
        counted.n_flows, counted.n_tasks = after[0] - before[0], after[1] - before[1]

    def run(self, *arguments: str) -> tuple[Part, Served]:
        """Run a part against the server and wait until all of it is recorded."""
        environment = {**self.server.environment, **JOB_ENVIRONMENT}
        with self.counting() as counted:
            part = run(environment, *arguments)
        return part, counted


def measure(rounds: int, generations: int, scratch: Path) -> None:
    """Measure all and print the tables."""
    with PrefectServer(scratch) as server, sleeping_server(DELAY_S) as url:
        watched = Watched(server)
        watched.run("--part", "empty", "--subflows", "2", "--tasks", "20")  # caches are warm now
        base = watched.run("--part", "empty", "--subflows", "0", "--tasks", "0")[1].cpu_s
        _, subflows = watched.run("--part", "empty", "--subflows", "20", "--tasks", "0")
        _, tasks = watched.run("--part", "empty", "--subflows", "0", "--tasks", "400")
        subflow_s = (subflows.cpu_s - base) / 20
        task_s = (tasks.cpu_s - base) / 400
        print(f"idle server: {watched.idle * 1e3:.1f} ms CPU a second")
        print(f"empty flow run: {base * 1e3:.0f} ms server CPU; an empty subflow more: ", end="")
        print(f"{subflow_s * 1e3:.1f} ms; an empty task run more: {task_s * 1e3:.2f} ms\n")
        print(
            "| round | bare loop, s | run, s | share | process, s | share | client CPU, s ",
            end="",
        )
        print("| server CPU, s | a task run, subflows apart, ms |")
        print("|" + "---|" * 9)
        shares = []
        for number in range(rounds):
            folder = scratch / f"project-{number}"
            config = write_project(folder, url, generations=generations)
            n_before = calls_of(url)
            part, served = watched.run("--part", "run", "--config", str(config))
            n_calls = calls_of(url) - n_before
            bare = run({}, "--part", "bare", "--url", url, "--calls", str(n_calls))
            own = served.cpu_s - base - (served.n_flows - 1) * subflow_s
            shares.append((part.wall_s / bare.wall_s, part.process_s / bare.wall_s))
            print(
                f"| {number + 1}: {n_calls} calls, {served.n_flows} flow runs, {served.n_tasks} "
                f"task runs | {bare.wall_s:.1f} | {part.wall_s:.1f} | {shares[-1][0]:.1%} "
                f"| {part.process_s:.1f} | {shares[-1][1]:.1%} | {part.cpu_s:.1f} "
                f"| {served.cpu_s:.2f} | {own / served.n_tasks * 1e3:.2f} |",
                flush=True,
            )
        flow, process = (statistics.median(kind) for kind in zip(*shares, strict=True))
        print(f"\nmedian share of the bare loop: run {flow:.1%}, whole process {process:.1%}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a server asks for task runs, in CPU seconds."""

    empty_s: float
    """Of an empty task run."""
    own_s: float | None
    """Of a task run of the run, its subflows apart; ``None``: not asked for."""


def prices(server: PrefectServer, config: Path | None) -> Prices:
    """Measure the price of an empty task run, and of one of the run of a configuration."""
    watched = Watched(server)
    watched.run("--part", "empty", "--subflows", "2", "--tasks", "20")  # caches are warm now
    base = watched.run("--part", "empty", "--subflows", "0", "--tasks", "0")[1].cpu_s
    tasks = watched.run("--part", "empty", "--subflows", "0", "--tasks", "400")[1]
    empty_s = (tasks.cpu_s - base) / 400
    if config is None:
        return Prices(empty_s=empty_s, own_s=None)
    subflows = watched.run("--part", "empty", "--subflows", "20", "--tasks", "0")[1]
    served = watched.run("--part", "run", "--config", str(config))[1]
    own = served.cpu_s - base - (served.n_flows - 1) * (subflows.cpu_s - base) / 20
    return Prices(empty_s=empty_s, own_s=own / served.n_tasks)


def compare_garbage(rounds: int) -> None:
    """Print what an empty task run costs servers that look for garbage often and rarely, in turn."""
    print("| round | often, ms | rarely, ms |\n|---|---|---|")
    for number in range(rounds):
        found = []
        for collects_rarely in (False, True):
            with (
                tempfile.TemporaryDirectory() as scratch,
                PrefectServer(Path(scratch), collects_rarely=collects_rarely) as server,
            ):
                found.append(prices(server, None).empty_s)
        often, rarely = found
        print(f"| {number + 1} | {often * 1e3:.2f} | {rarely * 1e3:.2f} |", flush=True)


def compare_feed(rounds: int, generations: int) -> None:
    """Print what task runs cost servers that keep all their events and few of them, in turn."""
    print(
        "| round | events of task runs | an empty one, ms | one of the run, ms |\n|---|---|---|---|"
    )
    for number in range(rounds):
        for keeps_all in (number % 2 == 0, number % 2 == 1):
            with (
                tempfile.TemporaryDirectory() as scratch,
                sleeping_server(DELAY_S) as url,
                PrefectServer(Path(scratch), keeps_all_events=keeps_all) as server,
            ):
                config = write_project(Path(scratch) / "project", url, generations=generations)
                found = prices(server, config)
            assert found.own_s is not None
            print(
                f"| {number + 1} | {'all' if keeps_all else 'few'} | {found.empty_s * 1e3:.2f} "
                f"| {found.own_s * 1e3:.2f} |",
                flush=True,
            )


def main() -> None:
    """Measure, or be one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--generations", type=int, default=10)
    parser.add_argument("--feed", action="store_true", help="only compare feeds of events")
    parser.add_argument("--garbage", action="store_true", help="only compare collections")
    parser.add_argument("--part", choices=["serve", "run", "bare", "empty"])
    parser.add_argument("--delay", type=float, default=DELAY_S)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--url", default="")
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--subflows", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=0)
    options = parser.parse_args()
    match options.part:
        case "serve":
            asyncio.run(serve(sleepy(options.delay)))
        case "run":
            run_part(options.config)
        case "bare":
            asyncio.run(bare_part(options.url, options.calls))
        case "empty":
            empty_part(options.subflows, options.tasks)
        case _:
            print(f"{describe_machine()}, load {os.getloadavg()[0]:.1f} at the start\n")
            if options.garbage:
                compare_garbage(options.rounds)
                return
            if options.feed:
                compare_feed(options.rounds, options.generations)
                return
            with tempfile.TemporaryDirectory() as scratch:
                measure(options.rounds, options.generations, Path(scratch))


if __name__ == "__main__":
    main()
