"""The limits of an endpoint, kept by many calls over real sockets."""

import asyncio
import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from convergence_core.budget.rate_limit import AddressCheck
from convergence_core.errors import (
    EndpointDownError,
    InfrastructureFault,
)
from convergence_core.records import Cell, RateInfo, Trial
from tasks.calls.rate_limiter import EndpointLimiter
from tasks.http.clients import within_limits
from tasks.http.retries import Backoff
from tests.support.configurations import http_api, loaded
from tests.support.http_server import Answer, LoopbackServer
from tests.support.http_targets import CASE, ask, made_target
from tests.support.sessions import assignment, session


class Minder:
    """A checkpoint that writes down what passes it."""

    def __init__(self, server=None) -> None:
        self.seen: list[RateInfo] = []
        self.n_arrived_at_clearance: list[int] = []
        self._server = server

    async def wait_to_send(self) -> None:
        if self._server is not None:
            self.n_arrived_at_clearance.append(len(self._server.requests))

    def observe(self, rate: RateInfo) -> None:
        self.seen.append(rate)


@pytest.mark.parametrize("status", [200, 429])
def test_a_checkpoint_is_asked_before_sending_and_sees_the_head_of_every_answer(status):
    headers = {"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "2s"}
    with LoopbackServer(lambda _: Answer({"result": 1}, status, headers)) as server:
        minder = Minder(server)
        with within_limits(minder), contextlib.suppress(InfrastructureFault):
            ask(http_api(server.url))
    assert minder.n_arrived_at_clearance == [0]
    assert minder.seen == [RateInfo(remaining_requests=5, reset_s=2.0)]


def test_a_request_that_is_held_back_never_leaves():
    class Closed(Minder):
        async def wait_to_send(self) -> None:
            raise InfrastructureFault("wait", error_type="held", retry_after_s=90.0)

    with LoopbackServer(lambda _: Answer({"result": 1})) as server:
        with within_limits(Closed()), pytest.raises(InfrastructureFault) as caught:
            ask(http_api(server.url))
        assert server.requests == []
    assert (caught.value.error_type, caught.value.may_be_billed) == ("held", False)


def test_waiting_for_clearance_is_not_part_of_the_limit_on_a_call():
    class Slow(Minder):
        async def wait_to_send(self) -> None:
            await asyncio.sleep(1.6)

    with LoopbackServer(lambda _: Answer({"result": 1})) as server, within_limits(Slow()):
        reply = ask(http_api(server.url, request={"timeout_seconds": 1.5}))
    assert reply.value == 1


# -- in a session


def http_session(
    server, *, workers, n_cases, target_workers=None, request=None, **settings
) -> Any:
    made = loaded(
        api=http_api(server.url, request={"timeout_seconds": 20, **(request or {})}),
        optimization__execution={"parallel_workers": target_workers or workers},
    )
    return session(made_target(made), workers=workers, n_cases=n_cases, **settings)


def test_worker_limit_is_hard_as_the_server_counts_it():
    with (
        LoopbackServer(lambda r: Answer({"result": r.body["x"]}), delay_s=0.02) as server,
        http_session(server, workers=3, n_cases=24) as s,
    ):
        threads = [
            threading.Thread(
                target=s.evaluate, args=(assignment({"k": k}, [f"c{i}" for i in range(24)]), 0)
            )
            for k in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.requests) == 48
    assert server.most_in_flight == 3


def test_latency_leaves_out_waiting_for_a_connection():
    """Eight calls at once over one connection: each waits for those before it, untimed."""
    with (
        LoopbackServer(lambda r: Answer({"result": r.body["x"]}), delay_s=0.05) as server,
        http_session(server, workers=8, n_cases=8, target_workers=1) as s,
    ):
        started = time.monotonic()
        trial = s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(8)]), 0)
        elapsed_ms = (time.monotonic() - started) * 1000
    assert server.most_in_flight == 1
    latencies = [e.latency_ms or 0.0 for e in trial.evaluations]
    assert min(latencies) >= 50.0
    # One after another they do not overlap; with the queue in them they would.
    assert sum(latencies) <= elapsed_ms


@pytest.mark.parametrize("form", ["seconds", "milliseconds"])
def test_retry_after_is_respected(form):
    header = {"retry-after": "1"} if form == "seconds" else {"retry-after-ms": "300"}
    pause_s = 1.0 if form == "seconds" else 0.3
    n_seen = 0

    def answer(request):
        nonlocal n_seen
        n_seen += 1
        return Answer({}, 429, header) if n_seen == 1 else Answer({"result": 0})

    with (
        LoopbackServer(answer) as server,
        http_session(server, workers=1, n_cases=1, max_retries=1, backoff=Backoff()) as s,
    ):
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert (evaluation.reward, evaluation.attempt) == (1.0, 2)
    assert server.arrived_s[1] - server.arrived_s[0] >= pause_s


def test_a_pause_that_one_cell_was_told_is_kept_by_all_of_them():
    seen: list[int] = []

    def answer(request):
        seen.append(request.body["x"])
        if len(seen) == 1:
            return Answer({}, 429, {"retry-after-ms": "300"})
        return Answer({"result": request.body["x"]})

    with (
        LoopbackServer(answer) as server,
        http_session(server, workers=1, n_cases=4, max_retries=1) as s,
    ):
        trial = s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(4)]), 0)
    assert sorted(seen) == [0, 0, 1, 2, 3]
    assert min(server.arrived_s[1:]) - server.arrived_s[0] >= 0.3
    assert [e.reward for e in trial.evaluations] == [1.0] * 4


def test_a_call_that_was_let_in_before_the_pause_keeps_it_too():
    n_seen = 0

    def answer(request):
        nonlocal n_seen
        n_seen += 1
        return Answer({}, 429, {"retry-after-ms": "300"}) if n_seen == 1 else Answer({"result": 1})

    async def go() -> None:
        gate, loop = EndpointLimiter(server.url, max_in_flight=2), asyncio.get_running_loop()
        target = made_target(loaded(api=http_api(server.url)))
        assert [gate.enter(loop.time()) for _ in range(2)] == [None, None]
        with within_limits(gate):
            with pytest.raises(InfrastructureFault):
                await target.call({"k": 2}, CASE)
            await target.call({"k": 2}, CASE)
        await target.aclose()

    with LoopbackServer(answer) as server:
        asyncio.run(go())
    assert server.arrived_s[1] - server.arrived_s[0] >= 0.3


CHAOS = (
    (0.20, Answer({}, 429, {"retry-after-ms": "20"})),
    (0.10, Answer({}, 500)),
    (0.05, Answer(hangs=True)),
    (0.05, Answer({"result": "x" * 500}, cut_after=40)),
    (0.05, Answer(b'{"result": ')),
)


def test_chaos_that_heals_leaves_no_trace_in_the_rewards():
    """Two fifths of all calls fail; which, depends on the cell and its try alone."""
    tries: dict[int, int] = {}
    lock = threading.Lock()

    def answer(request):
        x = request.body["x"]
        with lock:
            tries[x] = tries.get(x, 0) + 1
        drawn = random.Random(f"{x} {tries[x]}").random()
        for share, bad in CHAOS:
            drawn -= share
            if drawn < 0:
                return bad
        return Answer({"result": x if x % 3 else -1})

    with (
        LoopbackServer(answer) as server,
        http_session(
            server, workers=16, n_cases=100, max_retries=20, request={"timeout_seconds": 0.5}
        ) as s,
    ):
        trial = s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(100)]), 0)
    assert [e.reward for e in trial.evaluations] == [float(bool(x % 3)) for x in range(100)]
    assert max(tries.values()) > 3, "there was chaos"
    assert {e.fault for e in trial.evaluations} == {None}


@pytest.mark.parametrize(
    "retry_after",
    [
        "-5",
        "soon",
        "",
        "inf",
        "nan",
        "1e400",
        "99999999999",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "0x1F",
    ],
)
def test_a_case_that_is_always_throttled_is_missing_and_the_others_are_not(retry_after: str):
    def answer(request):
        if request.body["x"] == 3:
            return Answer({}, 429, {"retry-after": retry_after})
        return Answer({"result": request.body["x"]})

    with (
        LoopbackServer(answer) as server,
        http_session(server, workers=1, n_cases=6, max_retries=1, max_rate_limit_retries=1) as s,
    ):
        trial = s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(6)]), 0)
    assert [e.reward for e in trial.evaluations] == [1.0, 1.0, 1.0, None, 1.0, 1.0]
    assert trial.evaluations[3].fault == "infrastructure"
    assert sum(request.body["x"] == 3 for request in server.requests) <= 3


def test_a_wrong_key_ends_the_run_before_all_its_cells_are_lost():
    with (
        LoopbackServer(lambda _: Answer({}, 401)) as server,
        http_session(server, workers=2, n_cases=40) as s,
        pytest.raises(EndpointDownError, match="refused 3 calls and has answered none") as caught,
    ):
        s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(40)]), 0)
    assert len(server.requests) <= 4
    assert "convergence resume" in str(caught.value)


@pytest.mark.slow
def test_an_endpoint_that_is_not_there_ends_the_run_with_what_to_do():
    with LoopbackServer(lambda _: Answer({})) as server:
        pass
    with (
        http_session(server, workers=4, n_cases=40) as s,
        pytest.raises(EndpointDownError, match="nothing listens on") as caught,
    ):
        s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(40)]), 0)
    assert server.url in str(caught.value)
    assert "convergence resume" in str(caught.value)


def candidates_at_once(session: Any, models: list[str], n_cases: int) -> list[Trial]:
    """Evaluate candidates, each in a thread, as a generation does."""
    plans = [
        assignment({"k": number, "model": model}, [f"c{i}" for i in range(n_cases)])
        for number, model in enumerate(models)
    ]
    with ThreadPoolExecutor(len(plans)) as threads:
        return [*threads.map(lambda plan: session.evaluate(plan, 0), plans)]


@pytest.mark.parametrize("status", [404, 405, 410])
def test_an_address_that_is_wrong_for_every_candidate_ends_the_run_early(status: int):
    with (
        LoopbackServer(lambda _: Answer({}, status)) as server,
        http_session(server, workers=4, n_cases=20, max_retries=3) as s,
        pytest.raises(EndpointDownError, match=f"HTTP {status} from {server.url}") as caught,
    ):
        candidates_at_once(s, ["m"] * 6, 20)
    assert 10 <= len(server.requests) <= 40
    told = str(caught.value)
    for words in ("dealt with none of", "different candidates", "`api.endpoint`"):
        assert words in told
    assert caught.value.exit_code == 1


def test_while_an_address_finds_nothing_no_candidate_is_asked_again_before_others():
    """All cells are queued at once, those of one candidate behind those of another."""
    n_candidates, n_cases, workers = 12, 20, 4
    cells = tuple(
        Cell(candidate_id=f"candidate {i // n_cases}", case_id=f"c{i}")
        for i in range(n_candidates * n_cases)
    )
    with (
        LoopbackServer(lambda _: Answer({}, 404)) as server,
        http_session(server, workers=workers, n_cases=len(cells), max_retries=3) as s,
        pytest.raises(EndpointDownError, match="for 10 different candidates"),
    ):
        s.evaluate(replace(assignment({"k": 1}, []), cells=cells), 0)
    # The first ones of one candidate, then one of each other, and those under way at the end.
    assert len(server.requests) <= 10 + 2 * (workers - 1)


def test_candidates_whose_model_is_unknown_are_at_fault_themselves_whoever_is_asked_first():
    def answer(request):
        if request.body["model"] != "good":
            return Answer({"detail": "no such model"}, 404)
        return Answer({"result": request.body["x"]})

    with (
        LoopbackServer(answer) as server,
        http_session(server, workers=4, n_cases=12, max_retries=9) as s,
    ):
        trials = candidates_at_once(s, ["bad", "worse", "bad", "good", "worse"], 12)
    for trial in trials:
        is_good = trial.candidate.params["model"] == "good"
        assert [e.reward for e in trial.evaluations] == [float(is_good)] * 12
        assert {e.fault for e in trial.evaluations} == {None if is_good else "candidate"}


def test_nothing_is_concluded_about_an_address_before_each_model_was_tried():
    check = AddressCheck(n_models=3)
    for number in range(40):
        check.missed(f"candidate {number}", ("bad", "worse")[number % 2])
        assert not check.is_wrong(others_wait=False)
    check.missed("one more", "worst")
    assert check.is_wrong(others_wait=False)


def test_a_space_of_two_candidates_needs_no_third_one_to_show_a_wrong_address():
    few, many = AddressCheck(n_candidates=2), AddressCheck()
    for check in (few, many):
        for number in range(10):
            check.missed(f"candidate {number % 2}", "")
    assert few.is_wrong(others_wait=False)
    assert not few.is_wrong(others_wait=True), "another one is still to be asked"
    assert not many.is_wrong(others_wait=False)


def test_an_address_that_finds_nothing_for_one_candidate_is_missing_and_never_zero():
    with (
        LoopbackServer(lambda _: Answer({}, 404)) as server,
        http_session(server, workers=2, n_cases=4, max_retries=1) as s,
    ):
        trial = s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(4)]), 0)
    assert [(e.fault, e.reward) for e in trial.evaluations] == [("infrastructure", None)] * 4
    assert len(server.requests) == 8
