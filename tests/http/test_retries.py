"""Pauses before retries, and what servers say about them."""

import random

import pytest
from hypothesis import given, strategies as st

from convergence_core.records import RateInfo
from tasks.http.retries import Backoff, parse_reset, parse_retry_after, rate_info, rate_of

NOW_S = 1445412480.0 - 60.0
"""A minute before Wed, 21 Oct 2015 07:28:00 GMT."""


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("3", 3.0),
        ("1.5", 1.5),
        ("-5", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 60.0),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0.0),
        ("2015-10-21T07:28:00Z", 60.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_seconds_and_dates_are_read(text, seconds):
    assert parse_retry_after(text, now_s=NOW_S) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("20ms", 0.02),
        ("1h2m", 3720.0),
        ("1h2m3.5s", 3723.5),
        ("2m59.56s", 179.56),
        ("1d", 86_400.0),
        ("150µs", 0.00015),
        ("0s", 0.0),
        ("7.66", 7.66),
        ("60", 60.0),
        ("1445412480", 60.0),
        ("1445412480000", 60.0),
        ("1445412000", 0.0),
        ("2015-10-21T07:28:00Z", 60.0),
        ("2015-10-21T09:28:00+02:00", 60.0),
        ("2015-10-21T07:28:00", 60.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 60.0),
        ("1x", None),
        ("s", None),
        ("", None),
        ("-", None),
        ("inf", None),
    ],
)
def test_resets_are_read_in_every_form(text, seconds):
    found = parse_reset(text, now_s=NOW_S)
    assert found == (None if seconds is None else pytest.approx(seconds))


@given(st.text(max_size=30))
def test_any_text_is_read_as_seconds_or_as_nothing(text):
    for found in (parse_reset(text, now_s=NOW_S), parse_retry_after(text, now_s=NOW_S)):
        assert found is None or 0.0 <= found < float("inf")


OPENAI = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-requests": "1s",
    "x-ratelimit-reset-tokens": "6m0s",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-requests-reset": "2015-10-21T07:27:01Z",
    "anthropic-ratelimit-input-tokens-remaining": "12000",
    "anthropic-ratelimit-input-tokens-reset": "2015-10-21T07:28:00Z",
    "anthropic-ratelimit-output-tokens-remaining": "0",
    "anthropic-ratelimit-output-tokens-reset": "2015-10-21T07:27:30Z",
}


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (OPENAI, RateInfo(remaining_requests=59, remaining_tokens=149_984, reset_s=360.0)),
        (
            OPENAI | {"x-ratelimit-remaining-requests": "0"},
            RateInfo(remaining_requests=0, remaining_tokens=149_984, reset_s=1.0),
        ),
        (ANTHROPIC, RateInfo(remaining_requests=49, remaining_tokens=0, reset_s=30.0)),
        (
            {
                "x-ratelimit-remaining-requests-day": "14399",
                "x-ratelimit-reset-requests-day": "33011.38",
                "x-ratelimit-remaining-tokens-minute": "0",
                "x-ratelimit-reset-tokens-minute": "11.38",
            },
            RateInfo(remaining_requests=14_399, remaining_tokens=0, reset_s=11.38),
        ),
        (
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1445412480"},
            RateInfo(remaining_requests=0, reset_s=60.0),
        ),
        (
            {"ratelimit-remaining": "3", "ratelimit-reset": "9"},
            RateInfo(remaining_requests=3, reset_s=9.0),
        ),
        (
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-tokens": "9"},
            RateInfo(remaining_requests=0, reset_s=None),
        ),
        ({"x-ratelimit-remaining-tokens": "-12"}, RateInfo(remaining_tokens=0)),
        ({"retry-after": "2"}, RateInfo(retry_after_s=2.0)),
        ({"retry-after-ms": "300"}, RateInfo(retry_after_s=0.3)),
        ({"retry-after-ms": "300", "retry-after": "1"}, RateInfo(retry_after_s=1.0)),
        ({"retry-after-ms": "300", "retry-after": "soon"}, RateInfo(retry_after_s=0.3)),
        ({"x-ratelimit-remaining-requests": "many", "x-ratelimit-limit-tokens": "9"}, None),
        ({}, None),
    ],
)
def test_limits_are_read_as_each_provider_says_them(headers, told):
    assert rate_info(headers, now_s=NOW_S) == told


def test_a_date_is_compared_with_the_servers_own_clock():
    """Ours may be wrong by hours: then a pause would be skipped, or last for hours."""
    headers = [
        (b"Date", b"Wed, 21 Oct 2015 07:27:57 GMT"),
        (b"Retry-After", b"Wed, 21 Oct 2015 07:28:00 GMT"),
        (b"Content-Type", b"application/json"),
    ]
    assert rate_of(headers) == RateInfo(retry_after_s=3.0)
