"""``optimize`` and ``resume``: whole runs, their ends, and what they leave behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from convergence.cli.interrupts import Terminated
from tasks.store.journal.lease import Lease
from tests.support.commands import Done, Runner

ROOT = Path(__file__).parents[2]

CONFIG = """\
api: {{name: bot, function: "target.py:answer"}}
search_space:
  parameters:
    x: {{type: float, min: 0.0, max: 1.0, default: 0.1}}
    kind: {{type: categorical, choices: [a, b], default: a}}
evaluation:
  test_cases: {{path: cases.json, holdout: 0.25}}
  metrics: {{right: {{type: function, function: "target.py:judge"}}}}
optimization:
  seed: 3
  evolution: {{population_size: 4, generations: {generations}, elite_size: 1}}
  execution: {{parallel_workers: 2, early_stopping: {{enabled: false}}}}
"""

TARGET = """\
import os, time
from pathlib import Path

def answer(case, x, kind):
    with open(Path(__file__).with_name("calls.txt"), "a") as file:
        file.write(f"{case} {x!r} {kind}\\n")
    time.sleep(float(os.environ.get("TARGET_SLEEP_S", "0")))
    return max(0.0, 1 - abs(x - 0.6) - (0.2 if kind == "a" else 0.0))

def judge(result, expected, params, metric):
    return result
"""


@pytest.fixture
def project(here: Path) -> Path:
    write_project(here)
    return here


def write_project(folder: Path, generations: int = 2) -> None:
    (folder / "optimization.yaml").write_text(CONFIG.format(generations=generations))
    (folder / "target.py").write_text(TARGET)
    cases = [{"id": f"c{n}", "input": {"case": n}, "expected": 1} for n in range(8)]
    (folder / "cases.json").write_text(json.dumps(cases))


def calls(folder: Path) -> list[str]:
    path = folder / "calls.txt"
    return path.read_text().splitlines() if path.exists() else []


def best(result: dict[str, Any]) -> tuple[Any, ...]:
    """Return what two runs of one seed must share."""
    winner = result["winner"]
    return winner["params"], winner["search"]["mean"], winner["holdout"]["mean"]


@pytest.mark.prefect
def test_example_of_init_runs_and_can_be_read(here: Path, cli: Runner):
    cli("init", ".", "--template", "function")
    done = cli("optimize", "--generations", 2, "--quiet", "--json")
    assert done.code == 0, done.err
    assert done.json["system"] == "help_desk"
    assert done.json["winner"]["holdout"]["n_cases"] == 24
    assert all(Path(path).exists() for path in done.json["files"].values())
    run = done.json["label"]
    assert [row["status"] for row in cli("runs", "--json").json] == ["done"]
    assert run in cli("runs").out
    assert run in cli("report").out
    assert cli("report", run, "--format", "json").json["run_id"] == done.json["run_id"]
    rows = cli("query", "select count(distinct candidate_id) as n from evaluations", "--json").json
    assert rows[0]["n"] >= 2


@pytest.mark.prefect
def test_a_budget_that_allows_nothing_is_a_budget_reached(project: Path, cli: Runner):
    done = cli("optimize", "--max-minutes", "0.00001")
    assert done.code == 3
    assert "No configuration can be recommended: the budget refused" in done.out
    assert "budget.max_minutes=1e-05" in done.out


def test_second_run_of_one_system_is_refused(project: Path, cli: Runner):
    store = project / "convergence-data"
    cli("query", "select 1")
    lease = Lease(store, "bot")
    lease.acquire()
    try:
        done = cli("optimize")
    finally:
        lease.close()
    assert done.code == 1
    assert "bot" in done.err
    assert calls(project) == []


class Session:
    """`convergence` in a process group of its own, as in a terminal; Ctrl-C reaches all of it."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        sleep_s: float,
        api_url: str | None = None,
        prefect_home: Path | None = None,
    ) -> None:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PREFECT_HOME": str(prefect_home or folder / "prefect"),
            "TARGET_SLEEP_S": str(sleep_s),
            "COLUMNS": "100",
        }
        env.pop("PREFECT_API_URL", None)
        if api_url is not None:
            env["PREFECT_API_URL"] = api_url
        self.process = subprocess.Popen(
            [sys.executable, "-m", "convergence", *arguments],
            cwd=folder, env=env, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> Done:
        try:
            out, err = self.process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
        return Done(self.process.returncode, out, err)


def wait_for_calls(folder: Path, n: int) -> None:
    deadline = time.monotonic() + 240
    while len(calls(folder)) < n:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(calls(folder))} of {n} calls were made")
        time.sleep(0.05)  # another process works; there is nothing to wait on


@pytest.mark.slow
def test_ctrl_c_ends_cleanly_and_resume_repeats_nothing(tmp_path: Path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "whole").mkdir()
    for name in ("broken", "whole"):
        write_project(tmp_path / name)
    session = Session(tmp_path / "broken", "optimize", sleep_s=0.2)
    wait_for_calls(tmp_path / "broken", 9)
    session.press_ctrl_c()
    stopped = session.end()
    assert stopped.code == 130, stopped.err
    assert "Traceback" not in stopped.err
    assert "convergence resume bot-" in stopped.err
    done_before = calls(tmp_path / "broken")

    resumed = Session(tmp_path / "broken", "resume", "--json", sleep_s=0).end()
    assert resumed.code == 0, resumed.err
    whole = Session(tmp_path / "whole", "optimize", "--json", sleep_s=0).end()
    assert best(json.loads(resumed.out)) == best(json.loads(whole.out))
    all_calls = calls(tmp_path / "broken")
    assert sorted(all_calls) == sorted(calls(tmp_path / "whole"))
    assert all_calls[: len(done_before)] == done_before


@pytest.mark.prefect
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_request_to_end_saves_the_run_and_names_the_command_that_resumes_it(
    project: Path, cli: Runner, name: str
):
    told = f"import signal\n\ndef answer(case, x, kind):\n    signal.raise_signal(signal.{name})\n"
    (project / "target.py").write_text(TARGET.replace("def answer(case, x, kind):\n", told))
    with pytest.raises(Terminated, match=name) as caught:
        cli("optimize", "--quiet")
    (row,) = cli("runs", "--json").json
    assert (row["status"], row["ended_at"] is None) == ("stopped", False)
    assert caught.value.farewell == f"Continue with: convergence resume {row['label']}"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_asked_to_end_says_how_to_go_on_and_ends_by_that_signal(
    tmp_path: Path, number: signal.Signals
):
    write_project(tmp_path)
    session = Session(tmp_path, "optimize", "--quiet", sleep_s=0.2)
    wait_for_calls(tmp_path, 3)
    session.process.send_signal(number)
    done = session.end()
    assert done.code == -number
    assert "Continue with: convergence resume bot-" in done.err
    assert "Error" not in done.err


@pytest.mark.slow
def test_second_ctrl_c_ends_at_once(tmp_path: Path):
    write_project(tmp_path)
    session = Session(tmp_path, "optimize", sleep_s=600)
    wait_for_calls(tmp_path, 2)
    session.press_ctrl_c()
    assert session.process.stderr is not None
    for line in session.process.stderr:
        if "Stopping" in line:
            break
    session.press_ctrl_c()
    done = session.end()
    assert done.code == 130
    assert "convergence resume bot-" in done.err
