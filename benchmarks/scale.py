"""The model of docs/scale.md: what nights of 1, 10 and 1,000 systems take; and its check.

    python -m benchmarks.scale           the table, by the constants below
    python -m benchmarks.scale --check   three real nights beside what the model says of them

Constants are measured: what Prefect's server does by ``benchmarks.orchestration``, the rest by three
nights of other sizes than the table's. ``--check`` runs such nights against a server that answers
after 300 ms, through Prefect, two systems at a time in the last.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.orchestration import Watched, calls_of, sleeping_server, write_project
from tests.support.prefect_server import PrefectServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Seconds and bytes, on one core of the machine that measured them."""

    start_s: float = 2.9
    """Client CPU of a run that does nothing: imports, opening, its end and its report."""
    generation_s: float = 0.34
    """Client CPU of a generation beside its candidates and calls: subflow, learning, publishing."""
    candidate_s: float = 0.0045
    """Client CPU of a task run."""
    call_s: float = 0.0016
    """Client CPU of a call, journal and request included."""
    server_run_s: float = 0.62
    """CPU of Prefect's server for a run: its flow run and its artifacts."""
    server_generation_s: float = 0.075
    """The same for a subflow."""
    server_task_s: float = 0.0063
    """The same for a task run."""
    overhead_s: float = 0.2
    """Wall time of a generation in which no call is under way."""
    run_overhead_s: float = 7.9
    """Wall time of a run, imports included, before its first call and after its last."""
    run_bytes: float = 400_000.0
    """Tables and journal of a run that makes no call."""
    call_bytes: float = 1_165.0
    """The same for a call whose answer is short."""
    commits_per_call: float = 2.0
    """A claim and a settlement; calls that come together share one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """So many systems, each with a run of this size."""

    systems: int = 1
    generations: int = 10
    candidates: int = 20
    cells: int = 10
    """Of each candidate."""
    call_s: float = 1.0
    """What a call takes."""
    in_flight: int = 20
    """Calls of one run at the same time."""
    runs_at_once: int = 1

    @property
    def calls(self) -> int:
        """Of all systems, the final test left out."""
        return self.systems * self.generations * self.candidates * self.cells

    @property
    def task_runs(self) -> int:
        """Of all systems: candidates, sampling, learning, saving, and the final test."""
        return self.systems * (self.generations * (self.candidates + 3) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a night takes, by the model."""

    wall_s: float
    """Where processors, server and journal keep up."""
    client_cpu_s: float
    server_cpu_s: float
    commits_per_s: float
    """Durable commits while calls are under way, at most."""
    bytes_: float
    """Tables and journal."""

    @property
    def client_cores(self) -> float:
        """Busy cores of the workers."""
        return self.client_cpu_s / self.wall_s

    @property
    def server_cores(self) -> float:
        """Busy cores of Prefect's server, which has one: it is one process."""
        return self.server_cpu_s / self.wall_s


def predict(night: Night, constants: Constants | None = None) -> Needs:
    """Return what a night takes."""
    c = constants or Constants()
    waves = -(-night.candidates * night.cells // night.in_flight)
    calling_s = waves * night.call_s + night.candidates * night.cells * c.call_s
    one_s = c.run_overhead_s + night.generations * (c.overhead_s + calling_s)
    rounds = -(-night.systems // night.runs_at_once)
    generations = night.systems * night.generations
    per_s = night.in_flight / max(night.call_s, 1e-9) * min(night.runs_at_once, night.systems)
    return Needs(
        wall_s=rounds * one_s,
        client_cpu_s=night.systems * c.start_s
        + generations * c.generation_s
        + night.task_runs * c.candidate_s
        + night.calls * c.call_s,
        server_cpu_s=night.systems * c.server_run_s
        + generations * c.server_generation_s
        + night.task_runs * c.server_task_s,
        commits_per_s=per_s * c.commits_per_call,
        bytes_=night.systems * c.run_bytes + night.calls * c.call_bytes,
    )


def show_table() -> None:
    """Print what nights of three sizes take."""
    print("| systems | runs at once | calls | night | workers' cores | server's cores ", end="")
    print("| commits/s | GiB a year |")
    print("|" + "---|" * 8)
    for systems, at_once in ((1, 1), (10, 2), (1000, 1), (1000, 20), (1000, 50)):
        night = Night(systems=systems, runs_at_once=at_once)
        needs = predict(night)
        print(
            f"| {systems:,} | {at_once} | {night.calls:,} | {told_time(needs.wall_s)} "
            f"| {needs.client_cores:.2f} | {needs.server_cores:.2f} | {needs.commits_per_s:,.0f} "
            f"| {needs.bytes_ * 365 / 2**30:,.1f} |"
        )


def told_time(seconds: float) -> str:
    """Return a duration for people."""
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def check() -> None:
    """Run three nights and print them beside the model."""
    nights = (
        Night(generations=2, candidates=5, cells=10, call_s=0.3, in_flight=10),
        Night(generations=5, candidates=20, cells=10, call_s=0.3, in_flight=20),
        Night(
            systems=4, generations=3, candidates=20, cells=10, call_s=0.3, in_flight=20,
            runs_at_once=2,
        ),
    )  # fmt: skip
    print(
        "| night | wall, s | model | client CPU, s | model | server CPU, s | model | MiB | model |"
    )
    print("|" + "---|" * 9)
    with tempfile.TemporaryDirectory() as folder, sleeping_server(0.3) as url:
        scratch = Path(folder)
        with PrefectServer(scratch) as server:
            watched = Watched(server)
            for number, night in enumerate(nights):
                row(watched, night, url, scratch / f"night-{number}")


def row(watched: Watched, night: Night, url: str, folder: Path) -> None:
    """Run one night and print its row."""
    configs = [
        write_project(
            folder / f"system-{n}",
            url,
            generations=night.generations,
            candidates=night.candidates,
            in_flight=night.in_flight,
        )
        for n in range(night.systems)
    ]
    before = calls_of(url)
    began = time.perf_counter()
    with ThreadPoolExecutor(night.runs_at_once) as pool, watched.counting() as counted:
        parts = list(pool.map(watched.run_of, configs))
        wall_s = time.perf_counter() - began
    n_calls = calls_of(url) - before
    size = sum(
        file.stat().st_size
        for config in configs
        for file in (config.parent / "convergence-data").rglob("*")
        if file.is_file()
    )
    needs = predict(night)
    print(
        f"| {night.systems} x {night.generations} x {night.candidates} x {night.cells}: "
        f"{n_calls} calls | {wall_s:.1f} | {needs.wall_s:.1f} "
        f"| {sum(part.cpu_s for part in parts):.1f} | {needs.client_cpu_s:.1f} "
        f"| {counted.cpu_s:.2f} | {needs.server_cpu_s:.2f} "
        f"| {size / 2**20:.1f} | {needs.bytes_ / 2**20:.1f} |",
        flush=True,
    )


def main() -> None:
    """Print the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    print(f"{describe_machine()}, load {os.getloadavg()[0]:.1f}\n")
    if options.check:
        check()
    else:
        show_table()


if __name__ == "__main__":
    main()
