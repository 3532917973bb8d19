"""Rate limiters, with many calls at once. Time is the loop's, and jumps."""

import asyncio
import contextlib
import math
import pickle
import random
import selectors
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from convergence_core.budget.rate_limit import AddressCheck
from convergence_core.errors import (
    CandidateFault,
    EndpointDownError,
    EvaluationFault,
    InfrastructureFault,
)
from convergence_core.records import RateInfo
from tasks.calls.rate_limiter import LONGEST_HOLD_S, EndpointLimiter
from tasks.http.clients import Stopwatch, within_limits
from tests.support.sessions import function_target, session

T = TypeVar("T")


class _Jump(selectors.DefaultSelector):
    """Waits for nothing: when nothing is ready, time goes on to the next timer at once.

    It also goes on a little with each round of the loop, as it does in the world.
    """

    now_s = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for ever"
            self.now_s += max(1e-7, timeout)
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jump = _Jump()
        super().__init__(self.jump)

    def time(self) -> float:
        return self.jump.now_s


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)


def throttled(retry_after_s: float | None = None, kind: str = "http_429") -> InfrastructureFault:
    rate = None if retry_after_s is None else RateInfo(retry_after_s=retry_after_s)
    return InfrastructureFault(kind, error_type=kind, retry_after_s=retry_after_s, rate=rate)


def failed(kind: str = "http_500") -> InfrastructureFault:
    return InfrastructureFault(f"{kind} from http://host", error_type=kind)


def refused(kind: str = "http_401") -> InfrastructureFault:
    return InfrastructureFault("Check the value of KEY.", error_type=kind, retryable=False)


def limiter_of(most: int = 8, **settings: Any) -> EndpointLimiter:
    return EndpointLimiter("http://host", max_in_flight=most, **settings)


def down_text(limiter: EndpointLimiter, now_s: float = 0.0) -> str:
    """Why it was given up."""
    with pytest.raises(EndpointDownError) as caught:
        limiter.enter(now_s)
    text = str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text  # noqa: S301 - our own
    return text


def ends(limiter: EndpointLimiter, *faults: EvaluationFault | None, now_s: float = 0.0) -> None:
    """One call after another."""
    for fault in faults:
        assert limiter.enter(now_s) is None
        limiter.leave(fault, now_s)


# -- entering


def test_no_more_enter_than_the_limit_allows_until_one_has_left():
    limiter = limiter_of(3)
    assert [limiter.enter(0.0) for _ in range(5)] == [None, None, None, math.inf, math.inf]
    assert (limiter.n_in_flight, limiter.limit) == (3, 3)
    limiter.leave(None, 1.0)
    assert limiter.enter(1.0) is None


def test_a_pause_that_one_call_was_told_holds_for_all():
    limiter = limiter_of(4)
    ends(limiter, throttled(12.0), now_s=1.0)
    assert limiter.enter(1.0) == 12.0
    assert limiter.enter(12.9) == pytest.approx(0.1)
    assert limiter.enter(13.0) is None


def test_a_call_that_is_not_made_leaves_no_trace():
    limiter = limiter_of(1)
    assert limiter.enter(0.0) is None
    limiter.leave_unused()
    assert (limiter.n_in_flight, limiter.n_entered) == (0, 0)
    assert limiter.enter(0.0) is None


def test_gates_are_per_endpoint_and_key():
    with session(function_target(lambda case_input, params: 1)) as s:
        limiter_of = s._calls.limiter_of
        local = limiter_of("http://a", "KEY")
        assert local is limiter_of("http://a", "KEY")
        keys = (("http://a", "OTHER"), ("http://a", None), ("http://b", "KEY"))
        others = [limiter_of(*key) for key in keys]
        assert len({local, *others}) == 4
        ends(local, throttled(5.0))
        assert local.enter(0.0) == 5.0
        assert [limiter.enter(0.0) for limiter in others] == [None] * 3


# -- what the ends of calls mean


@pytest.mark.parametrize("kind", ["http_429", "http_498", "http_503", "http_529"])
def test_too_much_for_the_endpoint_halves_the_calls_in_flight(kind):
    limiter = limiter_of(8)
    for _ in range(8):
        limiter.enter(0.0)
    for _ in range(8):
        limiter.leave(throttled(1.0, kind), 0.0)
    assert limiter.limit == 4


@pytest.mark.parametrize("kind", ["http_500", "http_502", "timeout", "network", "bad_body"])
def test_failures_of_the_endpoint_open_its_breaker_and_halve_nothing(kind):
    reported: list[str] = []
    limiter = limiter_of(8, on_event=reported.append)
    ends(limiter, *[failed(kind)] * 8)
    assert limiter.limit == 8
    assert limiter.enter(0.0) == pytest.approx(1.0)
    assert limiter.enter(1.0) is None
    assert limiter.enter(1.0) == math.inf, "one probe"
    limiter.leave(None, 2.0)
    assert reported == [
        f"8 calls in a row failed; trying one in 1 s: {kind} from http://host",
        "http://host answers again",
    ]


@pytest.mark.parametrize("kind", ["http_429", "http_408", "http_409", "http_425"])
def test_answers_of_a_living_endpoint_open_no_breaker(kind):
    limiter = limiter_of(8)
    ends(limiter, None)
    for n in range(40):
        ends(limiter, throttled(0.001, kind), now_s=float(100 * n))
    assert limiter.enter(5000.0) is None


def test_a_candidates_fault_is_an_answer():
    limiter = limiter_of(8)
    for _ in range(5):
        ends(limiter, *[failed()] * 7, CandidateFault("refusal", error_type="refusal"))
    assert limiter.enter(0.0) is None


def test_a_call_that_was_held_back_says_nothing_about_the_endpoint():
    limiter = limiter_of(8)
    ends(limiter, *[InfrastructureFault("x", error_type="held")] * 20)
    assert limiter.enter(0.0) is None


@pytest.mark.parametrize(("most", "left", "pause_s"), [(6, 3, 12), (2, 1, 540)])
def test_slowing_down_is_reported_with_its_reason(most, left, pause_s):
    reported: list[str] = []
    limiter = limiter_of(most, on_event=reported.append)
    for _ in range(most):
        limiter.enter(0.0)
    limiter.leave(throttled(pause_s), 0.0)
    assert limiter.limit == left
    assert reported == [
        f"paused for {pause_s} s, as http://host asks",
        f"slowed down to {left} in flight: HTTP 429, {pause_s} s",
    ]


# -- giving up


def test_three_refused_keys_before_any_answer_end_it_with_the_name_of_the_variable():
    reported: list[str] = []
    limiter = limiter_of(8, run_label="bot-7f3a", on_event=reported.append)
    ends(limiter, *[refused()] * 3)
    text = down_text(limiter)
    for words in ("http://host", "refused 3 calls", "Check the value of KEY", "resume bot-7f3a"):
        assert words in text
    assert [text.startswith(one.rstrip(".")) for one in reported] == [True]


def test_one_request_that_is_asked_to_wait_for_hours_ends_nothing_but_a_row_of_them_does():
    limiter = limiter_of(8)
    for _ in range(20):
        ends(limiter, None, *[throttled(1e9)] * 7)
        assert limiter.enter(0.0) is None
        limiter.leave_unused()
    ends(limiter, throttled(1e9))
    assert "waits no longer than 600 s" in down_text(limiter)


def test_a_wait_for_a_rate_limit_says_how_long_for_whom_and_which_attempt_it_was():
    reported: list[str] = []
    limiter = limiter_of(4, on_event=reported.append)
    limiter.report_wait(12.2, 0.0, n_attempts=3, most=6)
    limiter.report_wait(12.2, 1.0, n_attempts=4, most=6)  # while the first one lasts
    limiter.report_wait(4.0, 50.0, n_attempts=5, most=6)  # too short to be reported
    limiter.report_wait(30.0, 60.0, n_attempts=1, most=6)  # its pause is reported already
    limiter.report_wait(8.0, 60.0, n_attempts=6, most=6)
    assert reported == [
        "waiting 12 s for host: rate limit, 3 of 6 attempts",
        "waiting 8 s for host: rate limit, 6 of 6 attempts",
    ]


def test_an_endpoint_that_says_nothing_but_that_it_is_too_much_is_given_up_after_ten_minutes():
    limiter = limiter_of()
    for now_s in range(0, 641, 40):
        ends(limiter, throttled(), now_s=now_s)  # each enters: until 600 s it is not given up
    text = down_text(limiter, 680.0)
    for words in ("refused every call for 640 s", "by its rate limit"):
        assert words in text


@pytest.mark.parametrize(
    "error",
    [
        "page.goto: net::ERR_CONNECTION_REFUSED at http://127.0.0.1:8700/lamp",
        "no answer from http://127.0.0.1:8700/v1: All connection attempts failed",
    ],
)
def test_a_service_of_this_machine_that_was_not_started_is_named_at_once(error: str):
    named = (
        "nothing listens on http://127.0.0.1:8700. Start it with `python shop.py`, "
        "or correct the address"
    )
    lines: list[str] = []
    address = AddressCheck(commands={"8700": "python shop.py"})
    limiter, now_s = limiter_of(8, on_event=lines.append, address=address), 0.0
    with contextlib.suppress(EndpointDownError):
        for n_calls in range(1_000):
            wait_s = limiter.enter(now_s)
            if wait_s is None:
                limiter.leave(InfrastructureFault(error, error_type="network"), now_s)
            else:
                now_s += wait_s
            assert lines[0] == f"{named}; trying one in 1 s", n_calls
    assert named in down_text(limiter, now_s)


def test_a_pause_of_an_hour_ends_it_rather_than_be_cut_short():
    limiter = limiter_of(8)
    ends(limiter, throttled(3600.0))
    assert "3600 s" in down_text(limiter)


# -- at the moment of sending


def test_a_call_that_entered_before_a_pause_is_held_until_it_is_over():
    async def go() -> tuple[float, float]:
        limiter, loop = limiter_of(2), asyncio.get_running_loop()
        assert [limiter.enter(loop.time()) for _ in range(2)] == [None, None]
        limiter.leave(throttled(5.0), loop.time())
        asked_s = loop.time()
        with within_limits(limiter):
            watch = Stopwatch(asyncio.timeout(None), 1.0)
            async with watch._deadline:
                await watch("http11.send_request_headers.started", {})
        return asked_s, loop.time()

    asked_s, sent_s = run(go())
    assert sent_s - asked_s >= 5.0


def test_a_long_hold_gives_the_call_back_unsent():
    async def go() -> InfrastructureFault:
        limiter = limiter_of(4)
        limiter.observe(RateInfo(retry_after_s=LONGEST_HOLD_S + 30.0))
        with pytest.raises(InfrastructureFault) as caught:
            await limiter.wait_to_send()
        return caught.value

    fault = run(go())
    assert (fault.error_type, fault.retryable, fault.may_be_billed) == ("held", True, False)
    assert fault.retry_after_s == pytest.approx(LONGEST_HOLD_S + 30.0)


def test_the_head_of_a_good_answer_is_heeded():
    async def go() -> float | None:
        limiter, loop = limiter_of(4), asyncio.get_running_loop()
        headers = [
            (b"X-RateLimit-Remaining-Requests", b"0"),
            (b"x-ratelimit-reset-requests", b"8s"),
        ]
        with within_limits(limiter):
            watch = Stopwatch(asyncio.timeout(None), 1.0)
            info = {"return_value": (b"HTTP/1.1", 200, b"OK", headers)}
            async with watch._deadline:
                await watch("http11.receive_response_headers.complete", info)
        return limiter.enter(loop.time())

    assert run(go()) == pytest.approx(8.0)


# -- many calls at once


class Strict:
    """An endpoint that serves so many at once, complains of more, and counts who comes too early."""

    def __init__(self, n_at_once: int, rng: random.Random, *, chaos: float = 0.0) -> None:
        self.n_violations = self.n_served = self.n_complaints = self.in_service = 0
        self.most_in_service = 0
        self._n_at_once = n_at_once
        self._chaos = chaos
        self._rng = rng
        self._closed_until_s = -math.inf

    async def serve(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self.n_violations += now_s < self._closed_until_s - 1e-9
        if self.in_service >= self._n_at_once or self._rng.random() < self._chaos:
            self.n_complaints += 1
            pause_s = self._rng.uniform(0.1, 20.0)
            self._closed_until_s = max(self._closed_until_s, now_s + pause_s)
            raise throttled(pause_s)
        self.in_service += 1
        self.most_in_service = max(self.most_in_service, self.in_service)
        await asyncio.sleep(self._rng.uniform(0.1, 2.0))
        self.in_service -= 1
        if self._rng.random() < self._chaos:
            raise failed(self._rng.choice(["http_500", "timeout", "network", "bad_body"]))
        self.n_served += 1


async def serve_all(
    endpoint: Strict, limiter: EndpointLimiter, n_calls: int, rng: random.Random
) -> None:
    """A queue whose calls, between entering and sending, take their time (they are journaled)."""
    loop, left, moved = asyncio.get_running_loop(), deque(range(n_calls)), asyncio.Event()

    async def slot() -> None:
        while left:
            wait_s = limiter.enter(loop.time())
            if wait_s is not None:
                moved.clear()
                timeout = None if math.isinf(wait_s) else wait_s
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(moved.wait(), timeout)
                continue
            call = left.popleft()
            fault: EvaluationFault | None = None
            try:
                await asyncio.sleep(rng.uniform(0.0, 0.5))
                await limiter.wait_to_send()
                await endpoint.serve()
            except EvaluationFault as error:
                fault = error
                left.append(call)
            limiter.leave(fault, loop.time())
            moved.set()

    while left:
        await asyncio.gather(*(slot() for _ in range(64)))


@pytest.mark.parametrize("seed", range(3))
def test_no_retry_after_is_violated_by_any_call_and_all_are_served(seed):
    rng = random.Random(seed)
    endpoint = Strict(rng.randint(1, 12), rng, chaos=0.2)
    limiter = limiter_of(64)
    run(serve_all(endpoint, limiter, 300, rng))
    assert endpoint.n_violations == 0
    assert endpoint.n_served == 300
    assert limiter.n_in_flight == 0
