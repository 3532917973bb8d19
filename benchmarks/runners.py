"""The same run of 200 candidates on each runner: wall time and equality of results.

    python -m benchmarks.runners --runners threads processes

Ten generations of twenty candidates with nine cells each. The function answers immediately, so the
time is all overhead. There are two processes. A runner's start, including its workers' imports, is
shown separately: it occurs once per run.
"""

import json
import tempfile
import time
from pathlib import Path

from benchmarks.machine import describe_machine, options
from benchmarks.tables import header, row
from tasks.inputs.loader import load
from tasks.run.opener import prepare_run
from tests.support.optimizations import tables_of, write_project
from tests.support.searching import finish


def run(runner: str, folder: Path) -> tuple[float, float, str]:
    """Return the seconds of opening and of the rest, and the result."""
    changes: dict[str, object] = {"optimization__execution__runner": runner}
    if runner != "threads":
        changes["optimization__execution__processes"] = 2
    config = write_project(
        folder,
        optimization__algorithm="random",
        optimization__evolution__population_size=20,
        optimization__evolution__generations=10,
        **changes,
    )
    began = time.perf_counter()
    prepared = prepare_run(load(config))
    opened = time.perf_counter()
    finish(prepared)
    ended = time.perf_counter()
    tables = tables_of(folder / "convergence-data")
    for stored in tables["runs"]:
        del stored["config_sha256"]
    return opened - began, ended - opened, json.dumps(tables, default=str)


def main() -> None:
    """Run on each runner and print the table."""
    runners = options(__doc__, runners=("threads", "processes", "ray")).runners
    print(describe_machine())
    print(header("runner", "opening, s", "run, s", "same result"))
    first = None
    with tempfile.TemporaryDirectory() as folder:
        for runner in runners:
            opening_s, run_s, found = run(runner, Path(folder) / runner)
            first = first or found
            same = "yes" if found == first else "no"
            print(row(f"`{runner}`", f"{opening_s:.1f}", f"{run_s:.1f}", same), flush=True)


if __name__ == "__main__":
    main()
