"""Command line; ``README.md`` has examples."""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.optimizer import records, reporting
from benchmarks.optimizer.opponents.registry import check, runs_on
from benchmarks.optimizer.running import run
from benchmarks.optimizer.tasks import CaseTask, choose, get_task
from benchmarks.tables import append


def seeds_of(text: str) -> range:
    """Parse ``10`` as 0 to 9, and ``10-19`` as an inclusive range.

    Raises:
        ValueError: If it is neither.
    """
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def _budgets(text: str) -> list[int]:
    return sorted({int(part) for part in text.split(",")})


def _names(parts: Sequence[str]) -> list[str]:
    return [name for part in parts for name in part.split(",") if name]


def _opponents(parts: Sequence[str]) -> list[str]:
    """Return names that ``check`` accepts; otherwise exit with its message."""
    names = _names(parts)
    for name in names:
        try:
            check(name)
        except ValueError as error:
            raise SystemExit(str(error)) from None
    return names


def _tasks(parts: Sequence[str]) -> list[str]:
    """Return task names; exit with a message if one is wrong."""
    try:
        return choose(_names(parts))
    except ValueError as error:
        raise SystemExit(str(error)) from None


def run_all(options: argparse.Namespace) -> int:
    """Run all missing jobs; return the number of failed runs."""
    opponents = _opponents(options.opts)
    out: Path = options.out
    done = {row.job for row in records.read([out] if out.exists() else [])}
    tasks = _tasks(options.tasks)
    # Seed by seed, so that finished runs are always paired.
    jobs = [(o, t, s) for s in seeds_of(options.seeds) for t in tasks for o in opponents]
    n_failed = 0
    began = time.monotonic()
    for name, task_name, seed in jobs:
        task = get_task(task_name)
        if not runs_on(name, has_cases=isinstance(task, CaseTask)):
            continue
        missing = [b for b in options.budgets if (name, task_name, seed, b) not in done]
        if not missing:
            continue
        try:
            rows = run(name, task, seed=seed, budgets=missing, batch=options.batch)
        except Exception:  # noqa: BLE001 - a library's fault costs its own run, not the night
            n_failed += 1
            print(f"failed: {name} {task_name} {seed}", file=sys.stderr)
            traceback.print_exc()
            continue
        append(out, [asdict(row) for row in rows])
    print(f"{out}: {time.monotonic() - began:.0f} s, {n_failed} failed; {describe_machine()}")
    return n_failed


def report(options: argparse.Namespace) -> int:
    """Print tables."""
    results = reporting.Results.read(options.files)
    opponents = _names(options.opts) or results.opponents
    tasks = _tasks(options.tasks) if options.tasks else results.tasks
    results = replace(results, rows=tuple(row for row in results.rows if row.task in tasks))
    for budget in options.budgets or results.budgets:
        print(f"\n## {budget} evaluations: mean normalised regret x 100\n")
        print(reporting.task_table(results, opponents, tasks, budget))
        print()
        print(reporting.summary(results, opponents, tasks, budget, options.reference))
    for title, table in (
        ("CPU per batch, ms", reporting.cost_table(results, opponents)),
        ("Claims about the recommendation", reporting.claims_table(results, opponents)),
    ):
        if table:
            print(f"\n## {title}\n\n{table}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m benchmarks.optimizer", description=__doc__)
    commands = top.add_subparsers(required=True)

    runs = commands.add_parser("run", help="run opponents; what a file holds is not run again")
    runs.add_argument("--opts", nargs="+", default=["random", "tpe"], help="opponents")
    runs.add_argument("--tasks", nargs="+", default=["mini"], help="sets, names or patterns")
    runs.add_argument("--seeds", default="10", help="10: 0 to 9; 10-19: both included")
    runs.add_argument("--budgets", type=_budgets, default=[100, 200], help="e.g. 100,200")
    runs.add_argument("--batch", type=int, default=20)
    runs.add_argument("--out", type=Path, required=True, help="CSV file to add to")
    runs.set_defaults(command=run_all)

    reports = commands.add_parser("report", help="tables of results")
    reports.add_argument("files", nargs="+", type=Path)
    reports.add_argument("--reference", default="tpe", help="opponent to compare with")
    reports.add_argument("--opts", nargs="+", default=[], help="default: all in the files")
    reports.add_argument("--tasks", nargs="+", default=[], help="default: all in the files")
    reports.add_argument("--budgets", type=_budgets, default=[], help="default: all")
    reports.set_defaults(command=report)

    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 1 if a run failed."""
    options = parser().parse_args(arguments)
    try:
        code = int(options.command(options))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe, so leave nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return min(1, code)
