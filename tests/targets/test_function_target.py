"""Python functions as targets: limits, time-outs, processes."""

import asyncio
import threading
import time
from typing import Any

import httpx
import pytest

from convergence_core.errors import CandidateFault, EndpointDownError, InfrastructureFault
from convergence_core.records import Case
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


def test_what_a_function_changes_in_its_arguments_stays_in_its_call():
    def changes(case_input, params):
        case_input["messages"].append("more")
        return len(case_input["messages"])

    case = Case(case_id="a", input={"messages": ["hello"]})
    assert [ask_function(changes, case=case).value for _ in "ab"] == [2, 2]


class RateLimitError(Exception):
    """As clients of providers call it."""


@pytest.mark.parametrize(
    ("error", "is_billed"),
    [
        (TimeoutError("t"), True),
        (ConnectionRefusedError("c"), False),
        (httpx.ConnectError("h"), True),
        (RateLimitError("r"), True),
    ],
)
def test_a_network_that_fails_within_a_function_is_no_fault_of_the_candidate(error, is_billed):
    def raises(case_input, params):
        raise error

    with pytest.raises(InfrastructureFault) as caught:
        ask_function(raises)
    assert (caught.value.retryable, caught.value.may_be_billed) == (True, is_billed)


def test_a_file_that_a_function_lacks_is_the_candidates_fault():
    with pytest.raises(CandidateFault):
        ask_function(lambda case_input, params: open("/no/such/prompt.txt"))  # noqa: PTH123, SIM115 - as users write


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


def behind_a_wrapper(function: Any) -> Any:
    return lambda case_input, params: function({**case_input}, params)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_an_async_call_that_takes_too_long_is_cancelled(is_wrapped):
    cancelled = threading.Event()

    async def slow(case_input, params):
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    with pytest.raises(CandidateFault) as caught:
        ask_function(behind_a_wrapper(slow) if is_wrapped else slow, timeout_s=0.05)
    assert caught.value.error_type == "timeout"
    assert cancelled.wait(20)


def test_a_wrapper_and_what_it_lets_wait_for_share_one_time_out_and_one_latency():
    async def later(seconds: float) -> None:
        await asyncio.sleep(seconds)

    def wrapped(case_input, params):
        time.sleep(0.1)
        return later(case_input["x"])

    case = Case(case_id="a", input={"x": 0.1})
    assert 190 <= ask_function(wrapped, case=case).latency_ms < 10_000
    started = time.monotonic()
    with pytest.raises(CandidateFault, match="took longer"):
        ask_function(wrapped, case=Case(case_id="a", input={"x": 3600}), timeout_s=0.2)
    assert time.monotonic() - started < 20


def test_calls_of_an_async_function_behind_a_wrapper_share_one_loop():
    loops = []
    n_inside = 0
    most = 0
    meeting = asyncio.Barrier(3)  # as a client kept between calls: of one loop

    async def later(case_input: Any) -> Any:
        nonlocal n_inside, most
        loops.append(asyncio.get_running_loop())
        n_inside += 1
        most = max(most, n_inside)
        await meeting.wait()
        n_inside -= 1
        return case_input["x"]

    target = function_target(lambda case_input, params: later(case_input), workers=3)
    with session(target, n_cases=30, workers=3) as s:
        trial = s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(30)]), 0)
    assert [e.reward for e in trial.evaluations] == [1.0] * 30
    assert len(set(loops)) == 1
    assert most == 3


@pytest.mark.parametrize("kind", ["sync", "async", "wrapped"])
def test_when_all_workers_hang_the_run_ends_with_a_clear_reason(kind: str):
    ended = threading.Event()
    journal = ScratchJournal()

    def hangs(case_input, params):
        ended.wait(60)

    async def blocks(case_input, params):
        ended.wait(60)

    functions = {"sync": hangs, "async": blocks, "wrapped": behind_a_wrapper(blocks)}
    target = function_target(functions[kind], workers=2, timeout_s=0.05)
    with session(target, workers=2, max_retries=2, journal=journal) as s:
        with pytest.raises(EndpointDownError, match="Give the function its own time-outs"):
            s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(8)]), 0)
        ended.set()
    ends = sorted(
        (row["state"], row["error_type"]) for row in journal.attempts("run-1", generation=0)
    )
    assert ends[:2] == [("done", None)] * 2, "two timed out, and that is an answer"
    assert len(ends) <= 4, "nothing is asked that cannot be answered"


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_call_that_was_given_up_before_it_began_frees_its_worker(is_wrapped: bool):
    async def blocks_once(case_input, params):
        if case_input["x"] == 0:
            time.sleep(0.6)
        return case_input["x"]

    function = behind_a_wrapper(blocks_once) if is_wrapped else blocks_once
    target = function_target(function, workers=2, timeout_s=0.2)

    async def go() -> list[Any]:
        cases = [Case(case_id=f"c{n}", input={"x": n}) for n in range(2)]
        given_up = [target.call({"k": 1}, case) for case in cases]
        ends = await asyncio.gather(*given_up, return_exceptions=True)
        await asyncio.sleep(0.6)
        pool = target._pool._loop
        try:
            return [*(getattr(end, "error_type", end) for end in ends), pool._n_busy, pool._n_hung]
        finally:
            await target.aclose()

    assert asyncio.run(go()) == ["timeout", "timeout", 0, 0]


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
