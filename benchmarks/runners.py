"""The same run of 200 candidates on each runner: wall time, and whether the result is the same.

    python -m benchmarks.runners [--runners threads processes ray]

Ten generations of twenty candidates with nine cells each of a function that answers at once, so
that all of the time is our own; two processes. A runner's start, imports of its workers included, is
told apart: it is paid once a run. Runners whose extra is missing are left out.
"""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import describe_machine
from tasks.inputs.loader import load
from tasks.run.opener import prepare_run
from tests.support.optimizations import tables_of, write_project
from tests.support.searching import finish

NEEDS = {"ray": "ray"}


def run(runner: str, folder: Path) -> tuple[float, float, str]:
    """Return the seconds of opening and of the rest, and what was found."""
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
    for row in tables["runs"]:
        del row["config_sha256"]
    return opened - began, ended - opened, json.dumps(tables, default=str)


def main() -> None:
    """Run on each and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runners", nargs="+", default=["threads", "processes", "ray"])
    options = parser.parse_args()
    print(f"{describe_machine()}, load {os.getloadavg()[0]:.1f}\n")
    print("| runner | opening, s | run, s | same result |")
    print("|---|---|---|---|")
    first = None
    with tempfile.TemporaryDirectory() as folder:
        for runner in options.runners:
            if runner in NEEDS and importlib.util.find_spec(NEEDS[runner]) is None:
                print(f"{runner}: its extra is not installed", file=sys.stderr)
                continue
            opening_s, run_s, found = run(runner, Path(folder) / runner)
            first = first or found
            same = "yes" if found == first else "no"
            print(f"| `{runner}` | {opening_s:.1f} | {run_s:.1f} | {same} |", flush=True)


if __name__ == "__main__":
    main()
