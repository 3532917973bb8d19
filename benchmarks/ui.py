"""CPU and memory of the web application on a large store, and with many viewers of a run.

    python -m benchmarks.ui [--candidates 2000] [--cases 500] [--viewers 50]

The store is made up: every candidate is asked every case, in twenty generations, each answer with its
text and its attempt. The server is `convergence ui` in a process of its own; its CPU is that of all its
threads. Viewers keep a stream of events open and read the run's page again at each event, as the page
does, while a run goes on in another process.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from tasks.inputs.loader import load
from tasks.inputs.records import new_record
from tasks.store import ParquetStore
from tasks.store.layout import SCHEMA_VERSION, folder_of, generation_file
from tasks.store.tables.damage import in_memory
from tasks.store.tables.tables import TABLES
from tests.support.optimizations import write_project

N_GENERATIONS = 20
_TICKS = os.sysconf("SC_CLK_TCK")
_ADDRESS = re.compile(r"http://\S+/ui/\?token=\S+")
_CANDIDATE = "printf('%016x', {at} * 7919)"
_CELLS = """
SELECT c AS c, k AS k, printf('%016x', c * 7919) AS candidate_id, printf('case-%03d', k) AS case_id,
       hash(c, k) % 1000 / 1000.0 AS reward, md5(c || '-' || k) AS key
FROM range({low}, {high}) AS a(c), range({n_cases}) AS b(k)
"""
_SELECTS = {
    "candidates": "SELECT '{run}' AS run_id, printf('%016x', c * 7919) AS candidate_id, {g} AS generation, "
    "'sample' AS origin, []::VARCHAR[] AS parent_ids, "
    """'{{"kind":"' || ['a', 'b', 'c'][1 + c % 3] || '","x":' || (c % 997) / 997.0 || '}}' AS params_json """
    "FROM range({low}, {high}) AS a(c)",
    "evaluations": "SELECT '{run}' AS run_id, {g} AS generation, substr(key, 1, 24) AS eval_id, candidate_id, "
    "case_id, 0 AS replicate, 1 AS attempt, if(reward < 0.02, 'error', 'ok') AS status, "
    "if(reward < 0.02, 'http_500', NULL) AS error_type, 'model' AS model, 'http' AS provider, reward, "
    "map {{'worth': reward}} AS metrics, 800 * reward AS latency_ms, 0.001 AS cost_usd, 100 AS tokens_in, "
    "50 AS tokens_out, now() AS started_at, now() AS ended_at, key AS call_key, false AS cached, "
    "key AS payload_sha256, 'search' AS role, md5(case_id) AS request_sha256, 1.0 AS weight FROM ({cells})",
    "attempts": "SELECT '{run}' AS run_id, {g} AS generation, key AS call_key, 'evaluation' AS purpose, "
    "'http' AS provider, 'model' AS model, 'done' AS state, 1 AS attempt, 100 AS tokens_in, 50 AS tokens_out, "
    "0.001 AS cost_usd, now() AS started_at, now() AS ended_at, substr(key, 1, 24) AS eval_id FROM ({cells})",
    "payloads": "SELECT '{run}' AS run_id, key AS payload_sha256, 'response' AS kind, "
    "'\"The answer to ' || case_id || ' is ' || md5(key) || ' and so on, at some length, as they do.\"' AS text "
    "FROM ({cells}) UNION ALL SELECT DISTINCT '{run}', md5(case_id), 'prompt', "
    "'\"Please answer ' || case_id || ' in one sentence.\"' FROM ({cells})",
    "estimates": "SELECT '{run}' AS run_id, {g} AS generation, printf('%016x', c * 7919) AS candidate_id, "
    "'search' AS role, {g} + 1 AS n_generations, (1 + row_number() OVER (ORDER BY hash(c))) AS rank, "
    "hash(c) % 1000 / 1000.0 AS mean, hash(c) % 1000 / 1000.0 - 0.05 AS low, "
    "hash(c) % 1000 / 1000.0 + 0.05 AS high, 0.95 AS level, 500 AS n_cases, c = 0 AS recommended "
    "FROM range(0, {high}) AS a(c)",
    "generations": "SELECT '{run}' AS run_id, {g} AS generation, now() AS started_at, now() AS ended_at, "
    "'done' AS status, {high} - {low} AS n_candidates, ({high} - {low}) * {n_cases} AS n_evaluations",
}


def made_up_store(folder: Path, n_candidates: int, n_cases: int) -> tuple[Path, str]:
    """Write a run in which every candidate was asked every case; return the store and the run."""
    loaded = load(write_project(folder))
    store = ParquetStore(folder / "data")
    record = new_record(loaded, name="known", tags={})
    store.save_run(replace(record, n_generations=N_GENERATIONS))
    per = n_candidates // N_GENERATIONS
    connection = in_memory(threads=2)
    for g in range(N_GENERATIONS):
        part = {"low": g * per, "high": (g + 1) * per, "n_cases": n_cases}
        for name, select in _SELECTS.items():
            known = {"run": record.run_id, "g": g, "cells": _CELLS.format(**part), **part}
            file = folder_of(store.path, "live", name, record.run_id) / generation_file(g)
            _write(connection, file, name, select.format(**known))
    store.save_run(replace(record, n_generations=N_GENERATIONS, status="stopped"))
    store.close()
    return store.path, record.run_id


def _write(connection: Any, file: Path, name: str, select: str) -> None:
    table = TABLES[name]
    given = {row[0] for row in connection.execute(f"DESCRIBE {select}").fetchall()}
    columns = ", ".join(
        f'CAST("{c.name}" AS {c.sql_type}) AS "{c.name}"'
        if c.name in given
        else f'NULL::{c.sql_type} AS "{c.name}"'
        for c in table.columns
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    connection.execute(
        f"COPY (SELECT {columns} FROM ({select})) TO '{file}' (FORMAT parquet, "  # noqa: S608 - our own
        f"COMPRESSION zstd, FIELD_IDS {table.field_ids_sql()}, KV_METADATA {{convergence_table: "
        f"'{name}', convergence_schema_version: '{SCHEMA_VERSION}'}})"
    )


@contextlib.contextmanager
def served(store: Path) -> Iterator[tuple[int, httpx.Client]]:
    """Serve a store in a process of its own; give its number and a client with a session."""
    command = [sys.executable, "-u", "-m", "convergence", "ui", "--store", str(store)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--no-open"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = _ADDRESS.search(process.stdout.readline())
        assert found is not None
        threading.Thread(target=process.stdout.read, daemon=True).start()
        with httpx.Client(timeout=120, base_url=found[0].partition("/ui/")[0]) as client:
            client.get(found[0])
            yield process.pid, client
    finally:
        process.terminate()
        process.wait()


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mb(pid: int) -> float:
    """Return the most memory that a process held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def measure_pages(store: Path, run_id: str) -> None:
    """Print CPU, time and size of each page's data, asked for the first time."""
    run = f"runs/{run_id}"
    with served(store) as (pid, client):
        best = client.get(f"/ui/api/{run}/leaderboard").json()["rows"][:2]
        a, b = (row["candidate_id"] for row in best)
    pages = {
        "overview": "overview",
        "run": run,
        "learning curve": f"{run}/curve",
        "leaderboard": f"{run}/leaderboard",
        "allocation": f"{run}/allocation",
        "spend": f"{run}/spend",
        "answers": f"{run}/answers?n_cases=50&n_candidates=50",
        "answers, worst": f"{run}/answers?filter=worst&n_cases=50&n_candidates=50",
        "answers, failed": f"{run}/answers?filter=failed&n_cases=50&n_candidates=50",
        "answers, disagreement": f"{run}/answers?filter=disagreement&n_cases=50&n_candidates=50",
        "answers, search": f"{run}/answers?search=ANSWER to case-007&n_cases=50&n_candidates=50",
        "cell": f"{run}/cell?candidate={a}&case=case-007",
        "compare": f"compare?a={run_id}:{a}&b={run_id}:{b}",
        "SQL, a mean by case": "sql?q=select case_id, avg(reward) from evaluations group by all",
    }
    print("| data of | CPU s | seconds | KB |\n|---|---|---|---|")
    with served(store) as (pid, client):
        client.get("/ui/api/session")
        for name, path in pages.items():
            before, begun = cpu_s(pid), time.perf_counter()
            answer = client.get(f"/ui/api/{path}")
            answer.raise_for_status()
            took = time.perf_counter() - begun
            print(
                f"| {name} | {cpu_s(pid) - before:.2f} | {took:.2f} | {len(answer.content) / 1024:,.0f} |"
            )
        print(f"\nMost memory: {peak_mb(pid):.0f} MB")


def measure_viewers(folder: Path, n_viewers: int) -> None:
    """Print the CPU of a run's process without viewers and with them, and that of the server."""
    for n in (0, n_viewers, 0, n_viewers):
        place = folder / f"run-{n}-{time.monotonic_ns()}"
        write_project(place, storage__path="./data", optimization__evolution__generations=12)
        code = (
            "import sys, time; from pathlib import Path; from tests.support.searching import search; "
            "search(Path(sys.argv[1])); print(time.process_time())"
        )
        run = subprocess.Popen(
            [sys.executable, "-c", code, str(place / "optimization.yaml")],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "TARGET_DELAY_S": "0.2"},
        )  # fmt: skip
        while not (place / "data" / "store.json").is_file():
            time.sleep(0.1)
        with served(place / "data") as (pid, client):
            begun, before = time.perf_counter(), cpu_s(pid)
            for _ in range(n):
                threading.Thread(target=_view, args=(client,), daemon=True).start()
            out, _ = run.communicate()
            took = time.perf_counter() - begun
            used = (cpu_s(pid) - before) / took
        print(
            f"{n} viewers: the run used {float(out):.2f} CPU s in {took:.1f} s, the server {used:.3f} cores"
        )


def _view(client: httpx.Client) -> None:
    """Watch a run as the page does."""
    with contextlib.suppress(httpx.HTTPError):
        limits = httpx.Client(base_url=client.base_url, cookies=client.cookies, timeout=60)
        with limits as own, own.stream("GET", "/ui/api/events") as events:
            for line in events.iter_lines():
                if line.startswith("data: "):
                    run_id = json.loads(line.removeprefix("data: "))["run_id"]
                    own.get(f"/ui/api/runs/{run_id}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=2_000)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--store", type=Path, help="keep the store here, or use it again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.store or Path(name) / "large"
        if (folder / "data" / "store.json").is_file():
            store = folder / "data"
            run_id = ParquetStore(store).runs()[0].run_id
        else:
            store, run_id = made_up_store(folder, options.candidates, options.cases)
        measure_pages(store, run_id)
        measure_viewers(Path(name), options.viewers)


if __name__ == "__main__":
    main()
