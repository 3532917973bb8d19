"""Pauses before retries."""

import random

import pytest
from hypothesis import given, strategies as st

from tasks.retries import Backoff, parse_retry_after


@given(st.integers(1, 2000), st.integers(0, 10**6))
def test_pauses_grow_up_to_their_cap(n_tries, seed):
    backoff = Backoff(base_s=0.5, cap_s=30.0)
    delay_s = backoff.delay_s(n_tries, None, random.Random(seed))
    assert delay_s is not None
    assert 0.0 <= delay_s <= min(30.0, 0.5 * 2.0 ** min(n_tries, 60))


@given(st.integers(1, 20), st.floats(0, 600), st.integers(0, 10**6))
def test_a_pause_is_never_shorter_than_the_server_asks(n_tries, retry_after_s, seed):
    delay_s = Backoff().delay_s(n_tries, retry_after_s, random.Random(seed))
    assert delay_s is not None
    assert retry_after_s <= delay_s <= retry_after_s + 0.5


def test_a_server_that_asks_for_too_long_a_pause_is_given_up():
    assert Backoff(max_retry_after_s=60).delay_s(1, 61.0, random.Random(1)) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("3", 3.0),
        ("1.5", 1.5),
        ("-5", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 60.0),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_seconds_and_dates_are_read(text, seconds):
    now_s = 1445412480.0 - 60.0
    assert parse_retry_after(text, now_s=now_s) == seconds
