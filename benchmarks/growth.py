"""How a store grows, and whether questions stay quick: 1,000 generations after maintenance.

    python -m benchmarks.growth [--runs 100]

One real run (10 generations of 20 candidates with 10 cells each) is published again under new names
until there are so many runs; then the store is maintained. Told are bytes and milliseconds for each
generation, and how long questions and a report take: in this process on a store just opened, and as
commands of their own, imports included. ``--live`` leaves the last run unfinished with as many
generations as all others have together, which no maintenance merges.
"""

import argparse
import datetime
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, measure
from convergence_core.ports import RunRecord
from tasks.report.page import report_html
from tasks.run.maintenance import maintain_store
from tasks.store import ParquetStore, new_run_id
from tests.support.optimizations import write_project
from tests.support.searching import search

ROOT = Path(__file__).parents[1]
QUESTIONS = {
    "best of each run": "select run_id, candidate_id, posterior_mean from leaderboard where rank = 1",
    "learning curve of a run": (
        "select generation, posterior_mean, best_so_far from learning_curve "
        "where run_id = $run order by 1"
    ),
    "spending by day": "select day, purpose, model, sum(cost_usd) from costs group by all",
    "metrics by model": (
        "select model, metric, avg(value), count(*) from metrics "
        "join evaluations using (run_id, eval_id) group by all"
    ),
}


def first_run(folder: Path) -> tuple[ParquetStore, RunRecord]:
    """Make the real run, without Prefect."""
    config = write_project(
        folder,
        optimization__algorithm="random",
        optimization__evolution__population_size=20,
        optimization__evolution__generations=10,
        optimization__execution__parallel_workers=8,
    )
    search(config)
    store = ParquetStore(folder / "convergence-data")
    (record,) = store.runs()
    return store, record


def rows_of(store: ParquetStore, run_id: str) -> dict[int | None, dict[str, list[dict[str, Any]]]]:
    """Return generation → table → rows of a finished run; a generation of ``None`` is the final test."""
    found: dict[int | None, dict[str, list[dict[str, Any]]]] = {}
    for name in ("generations", "candidates", "evaluations", "attempts", "payloads"):
        rows = store.rows(f"select * from {name} where run_id = $run", {"run": run_id})  # noqa: S608
        for row in rows:
            row |= {key: micros(value) for key, value in row.items()}
            number = row.get("generation")
            at = 0 if name == "payloads" else None if number is None else int(str(number))
            found.setdefault(at, {}).setdefault(name, []).append(row)
    return found


def micros(value: Any) -> Any:
    """Return a moment as the store takes it, microseconds since the epoch; all else as it is."""
    if not isinstance(value, datetime.datetime):
        return value
    moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1e6)


def publish_again(
    store: ParquetStore, record: RunRecord, rows: dict[Any, Any], *, generations: int | None = None
) -> None:
    """Publish a run under a new name; unfinished if it is given a number of generations."""
    run_id = new_run_id(time.time_ns() // 1_000, os.urandom(10))
    label = f"{record.name}-{run_id[-6:].lower()}"
    again = replace(record, run_id=run_id, label=label, status="running")
    store.save_run(again)
    numbers = sorted(number for number in rows if number is not None)
    for number in range(generations or len(numbers)):
        tables = rows[numbers[number % len(numbers)]]
        store.publish(
            run_id,
            number,
            {
                name: [{**row, "run_id": run_id, "generation": number} if "generation" in row
                       else {**row, "run_id": run_id} for row in table]
                for name, table in tables.items()
            },
        )  # fmt: skip
    if generations is None:
        store.finish_run(replace(again, status="done"))


def timed(work: Callable[[], object]) -> float:
    """Return the least wall seconds of three."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def ask_all(path: Path, run_id: str) -> None:
    """Print how long each question and a report take."""

    def ask(sql: str) -> None:
        with_run = {"run": run_id} if "$run" in sql else {}
        store = ParquetStore(path)
        store.rows(sql, with_run)
        store.close()

    print("\n| question | here, s | as a command, s | CPU of the command, s |")
    print("|---|---|---|---|")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    base = [sys.executable, "-m", "convergence"]
    for name, sql in QUESTIONS.items():
        command = [*base, "query", sql.replace("$run", f"'{run_id}'"), "--store", str(path)]
        done = min((measure(command, env=environment) for _ in range(2)), key=lambda d: d.wall_s)
        seconds = timed(lambda sql=sql: ask(sql))  # type: ignore[misc]  # a default binds it
        print(f"| {name} | {seconds:.2f} | {done.wall_s:.2f} | {done.cpu_s:.2f} |", flush=True)
    command = [*base, "report", run_id, "--store", str(path), "--format", "html"]
    done = min((measure(command, env=environment) for _ in range(2)), key=lambda d: d.wall_s)
    seconds = timed(lambda: render(path, run_id))
    print(f"| report.html | {seconds:.2f} | {done.wall_s:.2f} | {done.cpu_s:.2f} |")


def render(path: Path, run_id: str) -> None:
    """Write the report of a run as HTML, into nothing."""
    from convergence_core.result import RunResult  # noqa: PLC0415 - as the command does

    record = ParquetStore(path).run(run_id)
    assert record.summary_json is not None
    report_html(RunResult.from_json(record.summary_json))


def main() -> None:
    """Grow a store and ask it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--live", action="store_true")
    options = parser.parse_args()
    print(f"{describe_machine()}, load {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory() as folder:
        store, record = first_run(Path(folder) / "p")
        rows = rows_of(store, record.run_id)
        began = time.perf_counter()
        for _ in range(options.runs - 1):
            publish_again(store, record, rows)
        if options.live:
            publish_again(store, record, rows, generations=10 * options.runs)
        n_generations = 10 * (options.runs - 1) * (2 if options.live else 1) or 1
        spent = (time.perf_counter() - began) / n_generations
        began = time.perf_counter()
        upkeep = maintain_store(store.path)
        maintained = time.perf_counter() - began
        (counted,) = store.rows("select count(*) as n from evaluations")
        per_generation = upkeep.n_bytes / (10 * options.runs * (2 if options.live else 1))
        print(
            f"{upkeep.n_runs} runs, {counted['n']:,} evaluations, {upkeep.n_bytes / 2**20:.0f} MiB; "
            f"a generation {per_generation / 2**10:.0f} KiB and {spent * 1e3:.0f} ms; "
            f"maintenance {maintained:.1f} s"
        )
        store.close()
        ask_all(store.path, record.run_id)


if __name__ == "__main__":
    main()
