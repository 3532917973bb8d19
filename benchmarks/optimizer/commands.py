"""The command line; ``README.md`` has examples."""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.optimizer import records, reporting, scaling, told
from benchmarks.optimizer.opponents.registry import check, runs_on
from benchmarks.optimizer.regret import read_scales
from benchmarks.optimizer.running import run
from benchmarks.optimizer.tasks import CaseTask, PromptTask, choose, get_task

LEAST_SEEDS = 2
"""Of a mean with its error."""


def seeds_of(text: str) -> range:
    """Read ``10`` as 0 to 9, and ``10-19`` as both included.

    Raises:
        ValueError: it is neither.
    """
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def _budgets(text: str) -> list[int]:
    return sorted({int(part) for part in text.split(",")})


def _names(parts: Sequence[str]) -> list[str]:
    return [name for part in parts for name in part.split(",") if name]


def _opponents(parts: Sequence[str]) -> list[str]:
    """Return names that ``check`` accepts; end the program with its message otherwise."""
    names = _names(parts)
    for name in names:
        try:
            check(name)
        except ValueError as error:
            raise SystemExit(str(error)) from None
    return names


def _tasks(parts: Sequence[str]) -> list[str]:
    """Return the names of tasks; end the program with what is wrong otherwise."""
    try:
        return choose(_names(parts))
    except ValueError as error:
        raise SystemExit(str(error)) from None


def _several(text: str) -> int:
    """Read a number of seeds that has a standard error.

    Raises:
        ValueError: it is no whole number.
        ArgumentTypeError: it is below 2.
    """
    if int(text) < LEAST_SEEDS:
        raise argparse.ArgumentTypeError(f"must be at least {LEAST_SEEDS}, not {text}")
    return int(text)


def run_all(options: argparse.Namespace) -> int:
    """Do what is not done yet; return how many runs failed."""
    opponents = _opponents(options.opts)
    out: Path = options.out
    done = {row.job for row in records.read(records.shards_of(out))}
    shard, n_shards = (int(part) for part in options.shard.split("/"))
    target = out if n_shards == 1 else out.with_name(f"{out.stem}.{shard}{out.suffix}")
    tasks = _tasks(options.tasks)
    # Seed by seed: what is done at any time is paired.
    jobs = [(o, t, s) for s in seeds_of(options.seeds) for t in tasks for o in opponents]
    n_failed = 0
    began = time.monotonic()
    for name, task_name, seed in jobs[shard::n_shards]:
        task = get_task(task_name)
        if not runs_on(name, has_cases=isinstance(task, CaseTask)):
            continue
        missing = [b for b in options.budgets if (name, task_name, seed, b) not in done]
        if not missing:
            continue
        try:
            rows = run(
                name,
                task,
                seed=seed,
                budgets=missing,
                batch=options.batch,
                with_pick=options.pick,
            )
        except Exception:  # noqa: BLE001 - a library's fault costs its own run, not the night
            n_failed += 1
            print(f"failed: {name} {task_name} {seed}", file=sys.stderr)
            traceback.print_exc()
            continue
        records.append(target, rows)
    print(f"{target}: {time.monotonic() - began:.0f} s, {n_failed} failed; {describe_machine()}")
    return n_failed


def report(options: argparse.Namespace) -> int:
    """Print tables."""
    results = reporting.Results.read(options.files, pick=options.recommendation)
    opponents = _names(options.opts) or results.opponents
    tasks = _tasks(options.tasks) if options.tasks else results.tasks
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


def plot(options: argparse.Namespace) -> int:
    """Draw learning curves."""
    from benchmarks.optimizer import plotting  # noqa: PLC0415 - runs need no Matplotlib

    results = reporting.Results.read(options.files, pick="native")
    opponents = _names(options.opts) or results.opponents
    panels = {name: _tasks([name]) for name in _names(options.panels)}
    try:
        plotting.learning_curves(results, opponents, panels, options.out)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    print(options.out)
    return 0


def measure_scaling(options: argparse.Namespace) -> int:
    """Measure CPU against observations."""
    opponents = _opponents(options.opts)
    points = scaling.measure(
        opponents,
        [int(n) for n in _names(options.parameters)],
        until=options.until,
        batch=options.batch,
        has_cases=options.cases,
        limit_s=options.limit,
    )
    scaling.write(options.out, points)
    print(f"{describe_machine()}\n\n{scaling.table(points)}")
    if options.picture is not None:
        from benchmarks.optimizer import plotting  # noqa: PLC0415 - runs need no Matplotlib

        plotting.scaling_curves(points, options.picture)
        print(options.picture)
    return 0


def measure_told(options: argparse.Namespace) -> int:
    """Print what searches reach that know more than any opponent."""
    scales = read_scales()
    tasks = [(get_task(name), scales[name]) for name in _tasks(options.tasks)]
    prompts = [(task, scale) for task, scale in tasks if isinstance(task, PromptTask)]
    if not prompts:
        raise SystemExit("`--tasks` must name tasks of prompts, e.g. `llm:prompt-snarks` or `llm`")
    print(told.table(prompts, budgets=options.budgets, batch=options.batch, n_seeds=options.seeds))
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
    runs.add_argument("--shard", default="0/1", help="i/n: every n-th run, into OUT.i.csv")
    runs.add_argument("--pick", action="store_true", help="score the shared recommender too")
    runs.set_defaults(command=run_all)

    reports = commands.add_parser("report", help="tables of results")
    reports.add_argument("files", nargs="+", type=Path)
    reports.add_argument("--reference", default="tpe", help="opponent to compare with")
    reports.add_argument("--opts", nargs="+", default=[], help="default: all in the files")
    reports.add_argument("--tasks", nargs="+", default=[], help="default: all in the files")
    reports.add_argument("--budgets", type=_budgets, default=[], help="default: all")
    reports.add_argument(
        "--recommendation",
        choices=sorted(reporting.RECOMMENDATIONS),
        default="native",
        help="the opponent's own; the shared recommender's; the best it evaluated",
    )
    reports.set_defaults(command=report)

    plots = commands.add_parser("plot", help="learning curves with 95 %% intervals")
    plots.add_argument("files", nargs="+", type=Path)
    plots.add_argument("--opts", nargs="+", default=[], help="default: all in the files")
    plots.add_argument("--panels", nargs="+", default=["all", "llm"], help="sets of tasks")
    plots.add_argument("--out", type=Path, required=True, help="PNG or SVG")
    plots.set_defaults(command=plot)

    scales = commands.add_parser("scaling", help="CPU of ask and tell against observations")
    scales.add_argument("--opts", nargs="+", default=["ours", "prototype", "tpe"])
    scales.add_argument("--parameters", nargs="+", default=["3", "6", "14"])
    scales.add_argument("--until", type=int, default=5000, help="observations")
    scales.add_argument("--batch", type=int, default=20)
    scales.add_argument("--cases", action="store_true", help="on a task with 100 test cases")
    scales.add_argument("--limit", type=float, default=600.0, help="CPU seconds of one curve")
    scales.add_argument("--out", type=Path, required=True, help="CSV file, written anew")
    scales.add_argument("--picture", type=Path, help="PNG or SVG")
    scales.set_defaults(command=measure_scaling)

    tolds = commands.add_parser(
        "told", help="prompts, by searches told each model's mean and spread"
    )
    tolds.add_argument("--tasks", nargs="+", default=["llm"], help="sets, names or patterns")
    tolds.add_argument("--seeds", type=_several, default=60)
    tolds.add_argument("--budgets", type=_budgets, default=[100, 200], help="e.g. 100,200")
    tolds.add_argument("--batch", type=int, default=20)
    tolds.set_defaults(command=measure_told)

    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 1 if something failed."""
    options = parser().parse_args(arguments)
    try:
        code = int(options.command(options))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it, such as `head`, has seen enough; nothing is left to flush at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return min(1, code)
