"""Runs against a paid chat model without Prefect. The model is a mock with real prices.

It makes the same calls in the same order as the flow: plan, evaluate all candidates in parallel,
learn, publish; then the finalists. Loading Prefect would take longer than most of these runs.
"""

import contextlib
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from subprocess import Popen
from typing import Any

from convergence_core.records import Assignment, Trial
from convergence_core.result import RunResult
from tasks.inputs.loader import load
from tasks.run.conclusion import choose_finalists, conclude
from tasks.run.opener import prepare_run, resume_run
from tasks.run.publication import generation_tables
from tasks.run.run import Run, StepResult
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.configuration_files import write_configuration
from tests.support.optimizations import start_command

STORE = "convergence-data"
OPENED = "opened.jsonl"
"""One line per child that opened the run, with the amounts spent and maybe paid."""

PRICES: Mapping[str, Mapping[str, float]] = {
    "swift-1": {"input": 0.15, "cached_input": 0.075, "output": 0.6},
    "grand-1": {"input": 2.5, "cached_input": 1.25, "output": 10.0, "request": 0.0001},
}
"""US dollars per million tokens, and per request, of the target models."""

PROMPTS = (
    "Add the numbers.",
    "Add the numbers. Answer with the sum only, never with words.",
    "Add the numbers carefully, step by step, and verify. Answer exactly in the format: 12",
)


def write_project(folder: Path, url: str, **overrides: Any) -> Path:
    """Write a runnable project that asks the server at ``url``; return its configuration's path.

    Keyword arguments replace keys by dotted path, ``.`` written as ``__``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sums = [(3 * n + 2, 7 * n + 5) for n in range(20)]
    cases = [
        {"id": f"c{n:02d}", "input": f"What is {a} + {b}?", "expected": str(a + b)}
        for n, (a, b) in enumerate(sums)
    ]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    tree: dict[str, Any] = {
        "api": {
            "name": "adder",
            "kind": "openai",
            "endpoint": f"{url}/v1",
            "request": {
                "options": {"max_tokens": 12},
                "messages": [
                    {"role": "system", "content": "{prompt}"},
                    {"role": "user", "content": "{input}"},
                ],
            },
        },
        "search_space": {
            "parameters": {
                "model": {"type": "categorical", "choices": [*PRICES], "default": "swift-1"},
                "prompt": {"type": "text", "variants": [*PROMPTS], "default": PROMPTS[0]},
                "temperature": {"type": "float", "min": 0.0, "max": 1.5, "default": 1.0},
            }
        },
        "evaluation": {
            "test_cases": {"path": "cases.json", "holdout": 0.2},
            "metrics": {"right": {"type": "exact_match", "weight": 1}},
        },
        "optimization": {
            "seed": 5,
            "evolution": {"population_size": 8, "generations": 4},
            "execution": {
                "parallel_workers": 8,
                "max_retries": 3,
                "early_stopping": {"enabled": False},
            },
        },
        "prices": {name: dict(price) for name, price in PRICES.items()},
        "output": {"formats": ["json"]},
    }
    return write_configuration(folder, tree, overrides)


# -- one run in this process


def begin(folder: Path, **settings: Any) -> Run:
    """Open a new run of the project in a folder; settings are those of ``prepare_run``."""
    return prepare_run(load(folder / "optimization.yaml"), **settings)


def go_on(folder: Path, name: str | None = None, **settings: Any) -> Run:
    """Open the run of a folder again; settings are those of ``resume_run``."""
    return resume_run(folder / STORE, name, **settings)


def play(run: Run) -> RunResult:
    """Finish an open run."""
    with run:
        while run.should_continue():
            generation = run.next_generation
            trials = evaluate(run, run.ask().assignments, generation)
            run.check_stop()
            publish(run, run.learn(trials))
        return conclude(run, evaluate(run, choose_finalists(run), None))


def evaluate(run: Run, assignments: Sequence[Assignment], generation: int | None) -> list[Trial]:
    """Evaluate candidates in parallel, each in a thread, as the flow does."""
    if not assignments:
        return []
    with ThreadPoolExecutor(len(assignments)) as threads:
        return [
            *threads.map(
                lambda assignment: run.session.evaluate(assignment, generation), assignments
            )
        ]


def publish(run: Run, learned: StepResult) -> None:
    """Publish a generation and move the run on, as ``tasks.steps.save_generation`` does."""
    generation = run.next_generation
    evaluations = [evaluation for trial in learned.trials for evaluation in trial.evaluations]
    members = learned.state.search.archive
    tables = generation_tables(
        run,
        generation,
        [],
        candidates=[one.candidate for one in members if one.generation == generation],
        evaluations=evaluations,
        state=learned.state,
        flow_run_id=None,
        partial=any(evaluation.status == "skipped" for evaluation in evaluations),
    )
    run.store.publish(run.run_id, generation, tables)
    run.commit(learned)


# -- one run in a process that may be killed

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__, "openai"])


def start(folder: Path) -> ForkServerProcess:
    """Finish a folder's run in a child process, starting it if needed."""
    process = PROCESSES.Process(target=_take_to_its_end, args=(folder,), daemon=True)
    process.start()
    return process


def is_done(folder: Path) -> bool:
    """Whether the run of a folder has ended."""
    return any(record.status == "done" for record in ParquetStore(folder / STORE).runs())


def _take_to_its_end(folder: Path) -> None:
    begun = ParquetStore(folder / STORE).runs()
    run = go_on(folder) if begun else begin(folder)
    totals = run.journal.totals(run.run_id)
    found = {
        "calls": totals.n_attempts,
        "usd": (totals.cost_usd or 0.0) + totals.maybe_usd,
        "tokens": totals.tokens + totals.maybe_tokens,
        "seconds": totals.active_s,
        "maybe_paid": sorted([lost.call_key, lost.attempt] for lost in run.resources.maybe_paid),
    }
    with (folder / OPENED).open("a") as file:
        file.write(json.dumps(found) + "\n")
    play(run)


# -- the server in a process of its own


class Server:
    """``convergence mock`` in a process of its own, which keeps its own count on disk."""

    def __init__(self, process: "Popen[str]", url: str, log: Path) -> None:
        self._process = process
        self.url = url
        self._path = log
        self._log = log.open("rb")
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """Return the log entries since the last call."""
        *lines, self._rest = (self._rest + self._log.read()).split(b"\n")
        return [json.loads(line) for line in lines]

    def n_logged(self) -> int:
        """Return how many requests the log holds, seen or not."""
        return self._path.read_bytes().count(b"\n")

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()
        self._log.close()


@contextlib.contextmanager
def mock_server(folder: Path, *options: object) -> Iterator[Server]:
    """Run ``convergence mock`` with a log in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "requests.jsonl"
    log.touch()
    process = start_command(
        *("mock", "--quiet", "--port", "0", "--log", os.fspath(log)),
        *map(str, options),
        cwd=folder,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    if not url:
        raise RuntimeError(process.communicate()[1])
    server = Server(process, url, log)
    try:
        yield server
    finally:
        server.close()
