"""Concurrency, pauses and breaker, with times that the test makes up."""

import math

import pytest
from hypothesis import given, strategies as st

from convergence_core.budget.rate_limit import (
    BACK_OFF_S,
    LONGEST_HINT_S,
    Aimd,
    Breaker,
    BreakerRules,
    Pacer,
    TokenBucket,
)
from convergence_core.records import RateInfo

ENDS = st.lists(st.sampled_from(["answered", "throttled", "ended"]), max_size=300)


# -- how many at once


@given(st.integers(1, 512), ENDS)
def test_the_limit_stays_between_one_and_the_most(most, ends):
    aimd = Aimd(most=most)
    for end in ends:
        getattr(aimd, end)(*(() if end == "ended" else (aimd.limit,)))
        assert 1 <= aimd.limit <= most


@pytest.mark.parametrize(("most", "start"), [(1, 1), (5, 5), (8, 8), (64, 8)])
def test_it_begins_at_eight_or_the_most(most, start):
    assert Aimd(most=most).limit == start


def test_before_the_first_complaint_it_grows_by_one_for_each_answer():
    aimd = Aimd(most=64)
    for _ in range(56):
        aimd.answered(aimd.limit)
    assert aimd.limit == 64
    aimd.answered(64)
    assert aimd.limit == 64


@given(st.integers(1, 40))
def test_after_a_complaint_it_grows_by_one_for_each_round(n_in_flight):
    aimd = Aimd(most=100, start=50)
    aimd.throttled(n_in_flight)
    for _ in range(3):
        before = aimd.limit
        for _ in range(before - 1):
            aimd.answered(aimd.limit)
            assert aimd.limit == before
        aimd.answered(aimd.limit)
        assert aimd.limit == before + 1


@given(st.integers(1, 64))
def test_all_complaints_of_one_round_halve_it_once(n_in_flight):
    aimd = Aimd(most=64, start=64)
    assert aimd.throttled(n_in_flight)
    assert aimd.limit == max(1, n_in_flight // 2)
    for left in range(n_in_flight - 1, 0, -1):
        assert not aimd.throttled(left)
        assert aimd.limit == max(1, n_in_flight // 2)
    assert aimd.throttled(aimd.limit)
    assert aimd.limit == max(1, n_in_flight // 2 // 2)


@given(st.integers(2, 64), st.data())
def test_between_two_falls_as_many_calls_end_as_were_in_flight(most, data):
    aimd = Aimd(most=most, start=most)
    n_in_flight, n_ended_since, owed = 0, 0, 0
    for _ in range(data.draw(st.integers(1, 60))):
        n_in_flight = max(1, min(aimd.limit, n_in_flight + data.draw(st.integers(0, most))))
        n_ended_since += 1
        if data.draw(st.booleans()):
            if aimd.throttled(n_in_flight):
                assert n_ended_since > owed
                owed, n_ended_since = n_in_flight - 1, 0
        else:
            aimd.answered(n_in_flight)
        n_in_flight -= 1


def test_answers_of_an_endpoint_that_nobody_keeps_busy_raise_nothing():
    aimd = Aimd(most=64, start=8)
    for _ in range(100):
        aimd.answered(3)
    assert aimd.limit == 8


def test_two_users_of_one_key_end_with_equal_shares():
    """Chiu & Jain's point: whoever has more loses more, so that unequal shares converge."""
    rich, poor = Aimd(most=100, start=60), Aimd(most=100, start=4)
    poor.throttled(4)
    rich.throttled(60)
    for _ in range(400):
        is_full = rich.limit + poor.limit > 64
        for aimd in (rich, poor):
            for _ in range(aimd.limit):
                (aimd.throttled if is_full else aimd.answered)(aimd.limit)
    assert 0.7 < rich.limit / poor.limit < 1.4


# -- pauses

RATES = st.builds(
    RateInfo,
    retry_after_s=st.none() | st.floats(0, 1000),
    remaining_requests=st.none() | st.integers(0, 2),
    remaining_tokens=st.none() | st.integers(0, 2),
    reset_s=st.none() | st.floats(0, 1000),
)


@given(st.lists(st.tuples(st.floats(0, 100), RATES), max_size=30))
def test_nothing_starts_before_any_pause_that_was_asked_for_is_over(steps):
    pacer, now_s, earliest_s = Pacer(), 0.0, 0.0
    for passed_s, rate in steps:
        now_s += passed_s
        pacer.observe(rate, now_s)
        earliest_s = max(earliest_s, now_s + (rate.retry_after_s or 0.0))
        if rate.is_used_up and rate.reset_s is not None:
            earliest_s = max(earliest_s, now_s + min(rate.reset_s, LONGEST_HINT_S))
        assert now_s + pacer.wait_s(now_s) == pytest.approx(earliest_s) or earliest_s <= now_s
        assert pacer.wait_s(max(now_s, earliest_s)) < 1e-9


@given(st.floats(0, 1e6), st.floats(0.001, 1000), st.floats(0, 1000))
def test_a_shorter_pause_shortens_no_longer_one(now_s, long_s, short_s):
    pacer = Pacer()
    pacer.observe(RateInfo(retry_after_s=long_s), now_s)
    longer_s = pacer.observe(RateInfo(retry_after_s=min(short_s, long_s)), now_s)
    assert longer_s == pytest.approx(0.0, abs=1e-6)
    assert pacer.wait_s(now_s) == pytest.approx(long_s, abs=1e-6)


def test_a_limit_with_something_left_asks_for_no_pause():
    pacer = Pacer()
    pacer.observe(RateInfo(remaining_requests=1, remaining_tokens=9, reset_s=30.0), 5.0)
    assert pacer.wait_s(5.0) == 0.0


def test_the_reset_of_a_daily_limit_is_a_hint_for_a_minute():
    pacer = Pacer()
    pacer.observe(RateInfo(remaining_requests=0, reset_s=86_400.0), 5.0)
    assert pacer.wait_s(5.0) == LONGEST_HINT_S


def test_pauses_of_its_own_double_up_to_their_longest_and_begin_anew_after_an_answer():
    pacer, now_s, waits = Pacer(), 0.0, []
    for _ in range(9):
        pacer.back_off(now_s)
        waits.append(pacer.wait_s(now_s))
        now_s += waits[-1]
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == BACK_OFF_S[1]
    pacer.answered()
    pacer.back_off(now_s)
    assert pacer.wait_s(now_s) == 0.5


# -- breaker


def opened(**rules) -> Breaker:
    breaker = Breaker("https://host", BreakerRules(**{"n_failures": 3, **rules}))
    for _ in range(3):
        breaker.failed("HTTP 500", 0.0)
    assert breaker.state == "open"
    return breaker


def test_failures_in_a_row_open_it_and_an_answer_between_them_does_not():
    breaker = Breaker("https://host", BreakerRules(n_failures=3))
    for _ in range(10):
        breaker.failed("no", 0.0)
        breaker.failed("no", 0.0)
        breaker.answered()
    assert breaker.state == "closed"


def test_a_probe_waits_for_the_cool_down_and_for_calls_in_flight():
    breaker = opened()
    assert breaker.wait_s(0.0, 0) == 1.0
    assert breaker.wait_s(0.4, 0) == pytest.approx(0.6)
    assert breaker.wait_s(5.0, 2) == math.inf
    assert breaker.wait_s(5.0, 0) == 0.0


def test_one_probe_at_a_time_and_its_answer_closes_it():
    breaker = opened()
    breaker.started()
    assert breaker.state == "half_open"
    assert breaker.wait_s(99.0, 1) == math.inf
    assert breaker.answered()
    assert (breaker.state, breaker.wait_s(99.0, 64)) == ("closed", 0.0)


def test_cool_downs_double_up_to_the_longest():
    breaker = opened(n_first_probes=9, longest_cool_down_s=20.0)
    now_s, cool_downs = 0.0, []
    for _ in range(7):
        cool_downs.append(breaker.wait_s(now_s, 0))
        now_s += cool_downs[-1]
        breaker.started()
        breaker.failed("HTTP 500", now_s)
    assert cool_downs == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]


def test_failures_of_calls_that_were_in_flight_when_it_opened_are_no_probes():
    breaker = opened(n_first_probes=1)
    for _ in range(20):
        breaker.failed("HTTP 500", 0.5)
    assert breaker.state == "open"
    assert breaker.wait_s(0.5, 0) == pytest.approx(0.5)


def test_a_late_answer_closes_it_before_any_probe():
    breaker = opened()
    assert breaker.answered()
    assert breaker.state == "closed"


def test_an_unused_probe_may_be_made_again():
    breaker = opened()
    breaker.started()
    breaker.unused()
    assert breaker.wait_s(5.0, 0) == 0.0


@pytest.mark.parametrize(("has_answered", "n_probes"), [(False, 2), (True, 5)])
def test_failed_probes_give_it_up_sooner_where_it_has_never_answered(has_answered, n_probes):
    rules = BreakerRules(n_failures=3, n_probes=5, n_first_probes=2)
    breaker = Breaker("https://host", rules)
    if has_answered:
        breaker.answered()
    for _ in range(3):
        breaker.failed("HTTP 500", 0.0)
    now_s, n_made = 0.0, 0
    while breaker.state != "dead":
        now_s += breaker.wait_s(now_s, 0)
        breaker.started()
        breaker.failed("no connection", now_s)
        n_made += 1
    assert n_made == n_probes
    assert breaker.verdict is not None
    for words in ("https://host", f"{3 + n_probes} calls", f"{n_probes} of them probes"):
        assert words in breaker.verdict
    assert breaker.verdict.endswith("no connection")
    assert ("Check the address" in breaker.verdict) is not has_answered
    assert breaker.wait_s(now_s + 1e9, 0) == math.inf
    assert not breaker.answered()


def test_a_complaint_about_load_is_a_sign_of_life():
    breaker = opened()
    breaker.started()
    assert breaker.answered(is_success=False)
    assert breaker.state == "closed"


def test_three_refusals_before_any_answer_give_it_up_at_once():
    breaker = Breaker("https://host")
    for n in range(3):
        assert breaker.state == "closed", n
        breaker.refused("HTTP 401. Check the value of MY_KEY.")
    assert breaker.state == "dead"
    assert breaker.verdict is not None
    assert "refused 3 calls" in breaker.verdict
    assert "MY_KEY" in breaker.verdict


def test_refusals_after_an_answer_are_of_single_requests():
    breaker = Breaker("https://host")
    breaker.answered()
    for _ in range(50):
        breaker.refused("HTTP 403")
    assert breaker.state == "closed"


def test_spent_credit_is_final_whatever_was_answered_before():
    breaker = Breaker("https://host")
    breaker.answered()
    for _ in range(3):
        breaker.refused("HTTP 402", is_final=True)
    assert breaker.state == "dead"


@given(
    st.lists(
        st.sampled_from(["ok", "failed", "throttled", "refused", "unused", "time"]), max_size=200
    )
)
def test_whatever_happens_it_is_never_stuck(ends):
    """Without calls in flight there is always a moment at which the next may start, or it is dead."""
    breaker, now_s = Breaker("https://host", BreakerRules(n_failures=2)), 0.0
    for end in ends:
        if breaker.state == "dead":
            assert breaker.verdict
            break
        wait_s = breaker.wait_s(now_s, 0)
        assert math.isfinite(wait_s)
        now_s += wait_s
        breaker.started()
        if end == "ok":
            breaker.answered()
        elif end == "failed":
            breaker.failed("no", now_s)
        elif end == "throttled":
            breaker.answered(is_success=False)
        elif end == "refused":
            breaker.refused("no")
        else:
            breaker.unused()
            now_s += 1.0


# -- breaker: controls


def until_dead_or(most: int, breaker: Breaker, *, control: bool | None) -> tuple[int, int]:
    """Fail calls in a row; return how many, and of them controls, which are answered or not (`control`)."""
    now_s, n_calls, n_controls = 0.0, 0, 0
    while breaker.state != "dead" and n_calls < most:
        now_s += breaker.wait_s(now_s, 0)
        breaker.started()
        n_calls += 1
        is_probe = breaker.state == "half_open"
        n_controls += is_probe
        if is_probe and control:
            breaker.answered(is_control=True)
        else:
            breaker.failed("HTTP 503", now_s)
    return n_calls, n_controls


def test_an_endpoint_that_dies_is_given_up_soon_whatever_is_asked():
    breaker = Breaker("https://host")
    breaker.answered()
    assert until_dead_or(100, breaker, control=False) == (16, 8)


def test_settings_that_fail_end_nothing_while_controls_are_answered_and_these_become_rare():
    breaker = Breaker("https://host")
    breaker.answered()
    n_calls, n_controls = until_dead_or(5_000, breaker, control=True)
    assert (n_calls, breaker.state != "dead") == (5_000, True)
    assert n_controls == 4 + (5_000 - 4 - 120) // 65 == 79


def test_an_endpoint_that_dies_after_settings_failed_is_given_up_all_the_same():
    breaker = Breaker("https://host")
    breaker.answered()
    until_dead_or(2_000, breaker, control=True)
    n_calls, _ = until_dead_or(200, breaker, control=False)
    assert breaker.state == "dead"
    assert n_calls <= 64 + 8


def test_an_answer_that_is_no_control_makes_it_as_wary_as_before():
    breaker = Breaker("https://host")
    breaker.answered()
    until_dead_or(2_000, breaker, control=True)
    breaker.answered()
    assert until_dead_or(100, breaker, control=False) == (16, 8)


def test_a_bucket_holds_one_seconds_worth_and_says_how_long_to_wait():
    bucket = TokenBucket(10.0, 0.0)
    assert [bucket.take(0.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert [bucket.take(0.35) for _ in range(3)] == [0.0] * 3
    assert bucket.take(0.35) == pytest.approx(0.05)
    assert [bucket.take(100.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(100.0) == pytest.approx(0.1)
