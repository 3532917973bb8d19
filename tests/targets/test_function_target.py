"""Python functions as targets: limits, time-outs, processes."""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import CandidateFault, EndpointDownError
from tasks.functions.workers import failure_of
from tests.support.scratch_journal import ScratchJournal
from tests.support.sessions import ask_function, assignment, function_target, session

# -- what goes wrong


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, MemoryError])
def test_whatever_a_function_raises_ends_its_cell_only(error):
    def raises(case_input, params):
        raise error("why")

    with pytest.raises(CandidateFault) as caught:
        ask_function(raises)
    assert caught.value.error_type == error.__name__
    assert "raise error" in caught.value.details


def test_an_exception_that_cannot_describe_itself_is_named_by_its_type():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    def raises(case_input, params):
        raise MuteError

    with pytest.raises(CandidateFault, match="MuteError"):
        ask_function(raises)


def test_a_call_that_takes_too_long_is_the_candidates_fault():
    ended = threading.Event()

    def slow(case_input, params):
        ended.wait(30)

    with pytest.raises(CandidateFault) as caught:
        ask_function(slow, timeout_s=0.05)
    ended.set()
    assert caught.value.error_type == "timeout"


def test_an_async_call_that_takes_too_long_is_cancelled():
    cancelled = threading.Event()

    async def slow(case_input, params):
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    with pytest.raises(CandidateFault) as caught:
        ask_function(slow, timeout_s=0.05)
    assert caught.value.error_type == "timeout"
    assert cancelled.wait(20)


@pytest.mark.parametrize("is_async", [False, True])
def test_when_all_workers_hang_the_run_ends_with_a_clear_reason(is_async: bool):
    ended = threading.Event()
    journal = ScratchJournal()

    def hangs(case_input, params):
        ended.wait(60)

    async def blocks(case_input, params):
        ended.wait(60)

    target = function_target(blocks if is_async else hangs, workers=2, timeout_s=0.05)
    with session(target, workers=2, max_retries=2, journal=journal) as s:
        with pytest.raises(EndpointDownError, match="`workers: processes`, which can be ended"):
            s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(8)]), 0)
        ended.set()
    ends = sorted(
        (row["state"], row["error_type"]) for row in journal.attempts("run-1", generation=0)
    )
    assert ends[:2] == [("done", None)] * 2, "two timed out, and that is an answer"
    assert len(ends) <= 4, "nothing is asked that cannot be answered"


def test_a_hung_call_holds_its_worker_until_it_really_ends():
    n_inside = 0
    most = 0
    lock = threading.Lock()
    released = threading.Event()

    def hangs_once(case_input, params):
        nonlocal n_inside, most
        with lock:
            n_inside += 1
            most = max(most, n_inside)
        if case_input["x"] == 0:
            released.wait(30)
        with lock:
            n_inside -= 1
        return case_input["x"]

    target = function_target(hangs_once, workers=2, timeout_s=2.0)
    with session(target, n_cases=12, workers=2) as s:
        trial = s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(12)]), 0)
        released.set()
    assert most <= 2
    assert [e.reward for e in trial.evaluations] == [0.0] + [1.0] * 11


# -- limits and parallelism


@pytest.mark.parametrize("is_async", [False, True])
def test_worker_limit_is_reached_and_never_passed(is_async):
    n_inside = 0
    most = 0
    lock = threading.Lock()

    def enter() -> Any:
        nonlocal n_inside, most
        with lock:
            n_inside += 1
            most = max(most, n_inside)

    def leave() -> Any:
        nonlocal n_inside
        with lock:
            n_inside -= 1

    # The first three wait for each other; a fourth among them would show.
    meeting, loop_meeting = threading.Barrier(3), asyncio.Barrier(3)

    def sync(case_input, params):
        enter()
        if case_input["x"] < 3:
            meeting.wait(60)
        time.sleep(0.002)
        leave()
        return case_input["x"]

    async def coroutine(case_input, params):
        enter()
        if case_input["x"] < 3:
            await loop_meeting.wait()
        await asyncio.sleep(0.002)
        leave()
        return case_input["x"]

    target = function_target(coroutine if is_async else sync, workers=3)
    with session(target, n_cases=30, workers=3) as s:
        s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(30)]), 0)
    assert most == 3


# -- processes


@pytest.fixture
def worker_file(tmp_path):
    (tmp_path / "beside.py").write_text("BASE = 100\n")
    (tmp_path / "work.py").write_text(
        "import os, time, threading\n"
        "from beside import BASE\n"
        "def add(case_input, params):\n"
        "    return {'sum': BASE + case_input['x'] + params['k'], 'pid': os.getpid()}\n"
        "async def add_async(case_input, params):\n"
        "    return BASE + case_input['x']\n"
        "def raises(case_input, params):\n"
        "    raise ValueError('in the child')\n"
        "def dies(case_input, params):\n"
        "    os._exit(7)\n"
        "def hangs(case_input, params):\n"
        "    if case_input['x'] == 0:\n"
        "        time.sleep(3600)\n"
        "    return case_input['x']\n"
        "def nan(case_input, params):\n"
        "    return float('nan')\n"
    )
    return tmp_path


def processes(worker_file, name, **settings) -> Any:
    return function_target(
        lambda case_input, params: None,
        process_path=f"work.py:{name}",
        base_dir=worker_file,
        **settings,
    )


def test_processes_run_the_function_elsewhere(worker_file):
    with session(processes(worker_file, "add", workers=2), workers=2) as s:
        trial = s.evaluate(assignment({"k": 2}, ["c0", "c1", "c2", "c3"]), 0)
    values = [e.response_text for e in trial.evaluations]
    assert all(str(os.getpid()) not in str(value) for value in values)
    assert [f'"sum":{102 + i}' in str(value) for i, value in enumerate(values)] == [True] * 4
    assert len({str(value).partition(",")[0] for value in values}) <= 2


def test_an_exception_in_a_process_keeps_its_traceback(worker_file):
    with session(processes(worker_file, "raises", workers=1), workers=1) as s:
        (evaluation,) = s.evaluate(assignment({"k": 2}, ["c1"]), 0).evaluations
    assert (evaluation.error_type, evaluation.reward) == ("ValueError", 0.0)
    assert "work.py" in str(evaluation.error)


def test_a_process_that_dies_is_the_infrastructures_fault_and_is_replaced(worker_file):
    with session(processes(worker_file, "dies", workers=1), workers=1, max_retries=1) as s:
        (evaluation,) = s.evaluate(assignment({"k": 2}, ["c1"]), 0).evaluations
        assert s.calls_used == 2
    assert (evaluation.error_type, evaluation.reward) == ("worker_died", None)
    assert "exit code 7" in str(evaluation.error)


def test_a_process_that_hangs_is_ended_and_replaced(worker_file):
    target = processes(worker_file, "hangs", workers=1, timeout_s=2.0)
    with session(target, workers=1) as s:
        trial = s.evaluate(assignment({"k": 2}, ["c0", "c1", "c2"]), 0)
    assert [(e.error_type, e.reward) for e in trial.evaluations] == [
        ("timeout", 0.0),
        (None, 1.0),
        (None, 1.0),
    ]


def test_the_user_main_module_is_not_run_in_children(worker_file, tmp_path):
    import subprocess

    script = tmp_path / "main.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(worker_file)!r})\n"
        "print('main runs')\n"
        "from pathlib import Path\n"
        "from tests.support.sessions import assignment, function_target, session\n"
        "target = function_target(lambda a, b: 0, process_path='work.py:hangs', workers=1,\n"
        f"    base_dir=Path({str(worker_file)!r}))\n"
        "with session(target, workers=1) as s:\n"
        "    print(s.evaluate(assignment({'k': 1}, ['c1']), 0).evaluations[0].reward)\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert done.stdout.split("\n")[:2] == ["main runs", "1.0"]


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("googleapiclient.discovery", "agno-gmail"),
        ("bm25s", "quickstart"),
        ("playwright.async_api", "browserbase"),
    ],
)
def test_a_missing_package_of_an_extra_is_no_fault_of_a_candidate(module: str, extra: str):
    failure = failure_of(ModuleNotFoundError(f"No module named {module!r}", name=module))
    with pytest.raises(EndpointDownError) as caught:
        failure.fault()
    package = module.partition(".")[0]
    assert f"the package {package} must be installed. Run pip install -e '" in str(caught.value)
    assert f"[{extra}]', then `convergence resume`." in str(caught.value)
