"""The limits of an endpoint, kept by many calls over real sockets."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from convergence_core.budget.rate_limit import AddressCheck, Breaker, BreakerRules
from convergence_core.errors import EndpointDownError, InfrastructureFault
from convergence_core.records import Cell, RateInfo, Trial
from tasks.http.clients import within_limits
from tasks.http.retries import Backoff
from tests.support.configurations import http_api, loaded
from tests.support.http_server import Answer, LoopbackServer
from tests.support.http_targets import ask, made_target
from tests.support.scratch_journal import ScratchJournal
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
    for words in ("accepted none of", "different candidates", "`api.endpoint`"):
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


# -- settings that fail while the endpoint answers others


def failing_session(server: Any, **settings: Any) -> Any:
    given = {"workers": 2, "n_cases": 15, "max_retries": 2, **settings}
    return http_session(server, **given)


IS_UNANSWERED: dict[str, Callable[[Any], bool]] = {
    "one value": lambda body: body["k"] == 3,
    "two values": lambda body: body["k"] >= 3,
    "one of two models": lambda body: body["model"] == "down",
    "one test case": lambda body: body["x"] == 7,
}


@pytest.mark.parametrize(
    ("kind", "is_last"),
    [
        ("two values", False),
        ("one of two models", True),
        *(
            pytest.param(kind, True, marks=pytest.mark.slow)
            for kind in ("one value", "two values")
        ),
        pytest.param("one value", False, marks=pytest.mark.slow),
        pytest.param("one of two models", False, marks=pytest.mark.slow),
        ("one test case", False),
        ("one test case", True),
    ],
)
def test_a_setting_that_is_never_answered_is_missing_and_ends_no_run(kind: str, is_last: bool):
    """Its retries fail in a row when everything else is answered, also first or last in the queue."""
    is_unanswered = IS_UNANSWERED[kind]

    def answer(request: Any) -> Answer:
        failed = is_unanswered(request.body)
        return Answer({}, 500) if failed else Answer({"result": request.body["x"]})

    plans = [
        assignment({"k": k, "model": model, "t": t}, [f"c{i}" for i in range(15)])
        for t, (k, model) in enumerate(
            [(3, "down"), (3, "up"), (4, "down"), (1, "up"), (2, "up"), (1, "down")]
        )
    ]
    plans = plans[::-1] if is_last else plans
    with (
        LoopbackServer(answer) as server,
        failing_session(server) as s,
        ThreadPoolExecutor(len(plans)) as threads,
    ):
        trials = [*threads.map(lambda plan: s.evaluate(plan, 0), plans)]
    for trial in trials:
        for number, evaluation in enumerate(trial.evaluations):
            failed = is_unanswered({**trial.candidate.params, "x": number})
            assert evaluation.reward == (None if failed else 1.0)


def test_one_bad_setting_that_is_asked_last_of_all_is_missing_and_ends_no_run():
    """Its 24 test cases fail four times each: 96 calls in a row without an answer."""

    def answer(request: Any) -> Answer:
        failed = request.body["k"] == 3
        return Answer({}, 500) if failed else Answer({"result": request.body["x"]})

    with (
        LoopbackServer(answer) as server,
        failing_session(server, workers=1, n_cases=24, max_retries=3) as s,
    ):
        for k in (1, 2, 3):
            plan = assignment({"k": k}, [f"c{i}" for i in range(24)])
            rewards = [one.reward for one in s.evaluate(plan, 0).evaluations]
            assert rewards == [None if k == 3 else 1.0] * 24
        asked = [r.body["k"] for r in server.requests[48:]]
        assert asked.count(3) == 96
        assert len(asked) == 96 + 3  # a control after 8, 24 and 56 failures


def test_a_new_candidate_alone_at_an_endpoint_that_died_ends_the_run_soon(monkeypatch):
    """Its requests say nothing of the endpoint, but those that were answered before do."""
    rules = BreakerRules(first_cool_down_s=0.005)
    monkeypatch.setattr(Breaker.__init__, "__defaults__", (rules,))
    down = threading.Event()

    def answer(request: Any) -> Answer:
        return Answer({}, 500) if down.is_set() else Answer({"result": request.body["x"]})

    journal = ScratchJournal()
    with (
        LoopbackServer(answer) as server,
        failing_session(server, workers=1, max_retries=3, journal=journal) as s,
    ):
        s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(15)]), 0)
        down.set()
        with pytest.raises(EndpointDownError, match="does not answer any more: 16 calls in a row"):
            s.evaluate(assignment({"k": 9}, [f"c{i}" for i in range(15)]), 1)
        assert [r.body["k"] for r in server.requests[15:]] == [9] * 8 + [1] * 8
    rows = [row for row in journal.ledger if row["state"] == "failed"]
    assert len(rows) == 16  # controls are journaled like any other call


def test_stored_answers_show_that_an_endpoint_serves_others_than_the_one_that_fails():
    plans = [assignment({"k": k}, [f"c{i}" for i in range(15)]) for k in (3, 1)]

    def answer(request: Any) -> Answer:
        failed = request.body["k"] == 3
        return Answer({}, 500) if failed else Answer({"result": request.body["x"]})

    journal = ScratchJournal()
    with LoopbackServer(answer) as server:
        for n_expected in (15, 0):
            n_before = sum(r.body["k"] == 1 for r in server.requests)
            with (
                failing_session(server, journal=journal) as s,
                ThreadPoolExecutor(len(plans)) as threads,
            ):
                failed, fine = threads.map(lambda plan: s.evaluate(plan, 0), plans)
            assert [e.reward for e in failed.evaluations] == [None] * 15
            assert [e.reward for e in fine.evaluations] == [1.0] * 15
            n_asked = sum(r.body["k"] == 1 for r in server.requests) - n_before
            assert n_expected <= n_asked <= n_expected + 3  # and controls
